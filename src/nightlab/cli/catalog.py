"""Commands over what the lab knows: the technique catalog, the lessons, the study file's schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import JsonOption, StudyOption, console, print_json

if TYPE_CHECKING:
    from nightlab.knowledge.catalog import Technique

__all__ = ["register"]

CatalogFile = Annotated[Path | None, typer.Option("--file", help="A catalog of your own, read on top.", metavar="FILE")]
Method = Annotated[str | None, typer.Option("--method", help="Only techniques for this training method.")]
Tier = Annotated[int | None, typer.Option("--tier", min=1, max=6, help="Only this tier.")]

catalog_app = typer.Typer(help="The techniques the lab knows.", no_args_is_help=True, rich_markup_mode=None)
lessons_app = typer.Typer(help="What earlier experiments taught.", no_args_is_help=True, rich_markup_mode=None)


def _print_techniques(techniques: list[Technique], json: bool) -> None:
    if json:
        print_json([technique.model_dump(mode="json") for technique in techniques])
        return
    from rich.table import Table

    table = Table("tier", "id", "technique", "methods", "symptoms", box=None)
    for t in techniques:
        table.add_row(str(t.tier), t.id, t.name, ", ".join(t.applies_to), ", ".join(t.symptoms))
    console().print(table)
    typer.echo(f"{len(techniques)} techniques")


@catalog_app.command("list")
def list_techniques(
    method: Method = None, tier: Tier = None, file: CatalogFile = None, json: JsonOption = False
) -> None:
    """Every technique, by tier."""
    from nightlab.knowledge.catalog import load_catalog

    _print_techniques(load_catalog(file).match(method=method, tier=tier), json)


@catalog_app.command("show")
def show_technique(
    technique: Annotated[str, typer.Argument(help="Id of the technique.", metavar="ID")],
    file: CatalogFile = None,
    json: JsonOption = False,
) -> None:
    """One technique in full."""
    from nightlab.knowledge.catalog import load_catalog

    entry = load_catalog(file).get(technique)
    if json:
        print_json(entry.model_dump(mode="json"))
        return
    import yaml

    typer.echo(yaml.safe_dump(entry.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=110), nl=False)


@catalog_app.command("match")
def match_techniques(
    symptom: Annotated[list[str] | None, typer.Option("--symptom", help="A symptom; may be repeated.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Words to look for.")] = None,
    method: Method = None,
    tier: Tier = None,
    file: CatalogFile = None,
    json: JsonOption = False,
) -> None:
    """Techniques that fit a method, symptoms or words, best first."""
    from nightlab.knowledge.catalog import load_catalog

    matched = load_catalog(file).match(method=method, symptoms=tuple(symptom or ()), text=text, tier=tier)
    _print_techniques(matched, json)


@lessons_app.command("list")
def list_lessons(
    study: StudyOption = Path("study.yaml"),
    file: Annotated[Path | None, typer.Option("--file", help="A lessons file, instead of the study's.")] = None,
    json: JsonOption = False,
) -> None:
    """Lessons in force, newest last."""
    from nightlab.configs.loading import load_study
    from nightlab.graph.opening import locate
    from nightlab.knowledge.lessons import current, read

    path = file
    if path is None:
        loaded = load_study(study)
        place = locate(loaded)
        path = place.root / loaded.study.lessons if loaded.study.lessons else place.paths.lessons
    lessons = current(read(path).lessons)
    if json:
        print_json([lesson.model_dump(mode="json") for lesson in lessons])
        return
    from rich.table import Table

    from nightlab.agents.documents import format_effect

    table = Table("id", "study", "change", "verdict", "effect", box=None)
    for lesson in lessons:
        change = ", ".join(f"{k}={v}" for k, v in lesson.parameters.items())
        effect = format_effect(lesson.effect) if lesson.effect else "–"
        table.add_row(lesson.id[:8], lesson.study, change, f"{lesson.verdict.value}: {lesson.label}", effect)
    console().print(table)
    typer.echo(f"{len(lessons)} lessons in {path}")


def schema() -> None:
    """Print the study file's JSON Schema, for editors."""
    from nightlab.configs.schema import json_schema

    print_json(json_schema())


def register(app: typer.Typer) -> None:
    app.add_typer(catalog_app, name="catalog")
    app.add_typer(lessons_app, name="lessons")
    app.command()(schema)
