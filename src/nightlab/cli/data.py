"""`nightlab data`: what the diagnosis measures of training data, on its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightlab.cli.common import DEFAULT, JsonOption, StudyOption, console, print_json

if TYPE_CHECKING:
    from nightlab.tools.datasets.findings import Finding

__all__ = ["register"]


def measure(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Training data; without any: what the study names.", metavar="FILE…")
    ] = None,
    evaluation: Annotated[
        list[Path] | None, typer.Option("--eval", help="Evaluation data; may be repeated.", metavar="FILE")
    ] = None,
    window: Annotated[
        int | None, typer.Option("--window", min=1, help="Tokens a row may have (cutoff_len).", metavar="TOKENS")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="A tokenizer.json or its folder.", metavar="PATH")
    ] = None,
    study: StudyOption = DEFAULT,
    json: JsonOption = False,
) -> None:
    """Measure data: lengths, broken rows, copies, leakage.

    Labels, languages and template tokens as well.
    """
    found = _of_files(files, evaluation or [], window, tokenizer) if files else _of_study(study)
    if json:
        from dataclasses import asdict

        print_json([asdict(one) for one in found])
    else:
        _print(found)


def _of_files(files: list[Path], evaluation: list[Path], window: int | None, tokenizer: Path | None) -> list[Finding]:
    from nightlab.configs.data import DataSettings
    from nightlab.tools.datasets.findings import data_findings
    from nightlab.tools.datasets.measuring import measure_data

    given: dict[str, Any] = {"train": [str(file) for file in files], "eval": [str(file) for file in evaluation]}
    settings = DataSettings(**given, tokenizer=str(tokenizer) if tokenizer else None)
    return data_findings(measure_data(settings, Path.cwd(), window=window))


def _of_study(file: Path) -> list[Finding]:
    from nightlab.agents.measures import measured_data, measured_sizes
    from nightlab.configs.loading import load_study
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.opening import locate

    loaded = load_study(file)
    root = locate(loaded).root
    data = measured_data(loaded.study, root)
    if not data:
        raise ConfigError(
            Fault("names no data", file=file, key="data", mend="add data: {train: <file>}, or name files")
        )
    return [*data, *measured_sizes(loaded.study, root)]


def _print(found: list[Finding]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("about", "finding", "symptoms"):
        table.add_column(name, overflow="fold", no_wrap=name != "finding")
    for one in found:
        text = f"{one.text} For example {'; '.join(one.evidence)}." if one.evidence else one.text
        table.add_row(one.about, f"! {text}" if one.is_loud else text, ", ".join(one.symptoms))
    console().print(table)


def register(app: typer.Typer) -> None:
    app.command("data")(measure)
