"""Commands over what the lab knows: the technique catalog, the lessons, the study file's schema."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import DEFAULT, JsonOption, StudyOption, console, print_json, short

if TYPE_CHECKING:
    from nightlab.knowledge.catalog import Catalog, Technique
    from nightlab.knowledge.records import Lesson

__all__ = ["register"]

CatalogFile = Annotated[Path | None, typer.Option("--file", help="A catalog of your own, read on top.", metavar="FILE")]
Method = Annotated[
    str | None, typer.Option("--method", help="Only techniques for this training method.", metavar="METHOD")
]
Tier = Annotated[int | None, typer.Option("--tier", min=1, max=6, help="Only this tier, 1 to 6.", metavar="TIER")]

WIDE_COLUMNS = 120
"""From this width on a table shows what a technique is for."""

catalog_app = typer.Typer(help="The techniques the lab knows.", no_args_is_help=True, rich_markup_mode=None)
lessons_app = typer.Typer(help="What earlier experiments taught.", no_args_is_help=True, rich_markup_mode=None)


def _print_techniques(techniques: list[Technique], json: bool) -> None:
    if json:
        print_json([technique.model_dump(mode="json") for technique in techniques])
        return
    from rich.table import Table

    from nightlab.report.numbers import count

    out = console()
    table = Table(box=None, pad_edge=False)
    columns = (
        ("tier", "id", "technique", "methods", "symptoms") if out.width >= WIDE_COLUMNS else ("tier", "id", "technique")
    )
    for name in columns:
        table.add_column(name, no_wrap=True)
    for t in techniques:
        row = str(t.tier), t.id, t.name, ", ".join(t.applies_to), ", ".join(t.symptoms)
        table.add_row(*row[: len(columns)])
    out.print(table)
    out.print(f"{count(len(techniques), 'technique')}; `nightlab catalog show ID` tells all of one")


def _check_method(catalog: Catalog, method: str | None) -> None:
    """Raise ConfigError for a method that no technique is for."""
    from nightlab.errors import ConfigError, Fault

    if method and not catalog.match(method=method):
        methods = sorted({name for technique in catalog.techniques for name in technique.applies_to})
        raise ConfigError(Fault(f"no technique is for the method {method!r}", mend=f"methods: {', '.join(methods)}"))


@catalog_app.command("list")
def list_techniques(
    method: Method = None, tier: Tier = None, file: CatalogFile = None, json: JsonOption = False
) -> None:
    """Every technique, by tier."""
    from nightlab.knowledge.catalog import load_catalog

    catalog = load_catalog(file)
    _check_method(catalog, method)
    _print_techniques(catalog.match(method=method, tier=tier), json)


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

    told = entry.model_dump(mode="json", exclude_none=True)
    typer.echo(yaml.safe_dump(told, sort_keys=False, allow_unicode=True, width=110), nl=False)


@catalog_app.command("match")
def match_techniques(
    symptom: Annotated[
        list[str] | None, typer.Option("--symptom", help="A symptom; may be repeated.", metavar="SYMPTOM")
    ] = None,
    text: Annotated[str | None, typer.Option("--text", help="Words to look for.", metavar="WORDS")] = None,
    method: Method = None,
    tier: Tier = None,
    file: CatalogFile = None,
    json: JsonOption = False,
) -> None:
    """Techniques for a method, symptoms or words, best first."""
    from nightlab.knowledge.catalog import load_catalog

    catalog = load_catalog(file)
    _check_method(catalog, method)
    _print_techniques(catalog.match(method=method, symptoms=tuple(symptom or ()), text=text, tier=tier), json)


@lessons_app.command("list")
def list_lessons(
    study: StudyOption = DEFAULT,
    file: Annotated[
        Path | None, typer.Option("--file", help="A lessons file, instead of the study's.", metavar="FILE")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Lessons in force, newest last."""
    from nightlab.knowledge.lessons import current, read

    path = _lessons_of(study) if file is None else _existing(file)
    lessons = current(read(path).lessons)
    if json:
        print_json([lesson.model_dump(mode="json") for lesson in lessons])
        return
    from rich.table import Table

    from nightlab.report.numbers import count, level

    table = Table(box=None, pad_edge=False)
    for name in ("id", "study", "change", "verdict", "gain"):
        table.add_column(name, overflow="fold", no_wrap=name in ("id", "study"))
    for lesson in lessons:
        change = ", ".join(f"{name}={level(value)}" for name, value in lesson.parameters.items())
        table.add_row(lesson.id[:8], lesson.study, change, lesson.label, _gain(lesson))
    out = console()
    out.print(table)
    out.print(f"{count(len(lessons), 'lesson')} in {short(path)}", soft_wrap=True)


def _lessons_of(study: Path) -> Path:
    from nightlab.configs.loading import load_study
    from nightlab.graph.opening import locate

    loaded = load_study(study)
    place = locate(loaded)
    return place.root / loaded.study.lessons if loaded.study.lessons else place.paths.lessons


def _existing(file: Path) -> Path:
    from nightlab.errors import ConfigError, Fault

    if not file.is_file():
        raise ConfigError(Fault("does not exist", file=file, mend="lessons are kept in .nightlab/lessons.jsonl"))
    return file


def _gain(lesson: Lesson) -> str:
    """`+0.35 nats, +0.31 … +0.39`: above 0 is better, whatever the metric's direction."""
    from nightlab.report.numbers import decimals_for, interval, signed

    effect = lesson.effect
    if effect is None:
        return "–"
    if effect.low is None or effect.high is None:
        return signed(effect.delta, decimals_for(None, value=effect.delta), unit=effect.unit)
    decimals = decimals_for((effect.high - effect.low) / 2, value=effect.delta)
    return f"{signed(effect.delta, decimals, unit=effect.unit)}, {interval(effect.low, effect.high, decimals)}"


def schema() -> None:
    """The study file's JSON Schema, for editors."""
    from nightlab.configs.schema import json_schema

    print_json(json_schema())


def register(app: typer.Typer) -> None:
    app.add_typer(catalog_app, name="catalog")
    app.add_typer(lessons_app, name="lessons")
    app.command()(schema)
