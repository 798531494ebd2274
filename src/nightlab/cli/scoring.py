"""The command that scores a file of predictions by itself, without a study."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightlab.cli.common import JsonOption, console, print_json

if TYPE_CHECKING:
    from nightlab.configs.scoring import ScoringSettings
    from nightlab.tools.scoring.compare import Comparison
    from nightlab.tools.scoring.intervals import Interval
    from nightlab.tools.scoring.score import Score

__all__ = ["register"]

BY_EXAMPLES = "intervals are over examples: what another seed would give, they do not say"


def score(
    file: Annotated[Path, typer.Argument(help="Predictions and labels, JSON objects a line.", metavar="FILE")],
    metric: Annotated[
        list[str], typer.Option("--metric", "-m", help="f1, rouge_l, accuracy, …; may be given again.", metavar="SCORE")
    ],
    against: Annotated[
        Path | None, typer.Option("--against", help="Compare with another file's predictions.", metavar="FILE")
    ] = None,
    label: Annotated[str, typer.Option("--label", help="Field of the right answer.")] = "label",
    prediction: Annotated[str, typer.Option("--prediction", help="Field of the model's answer.")] = "predict",
    prompt: Annotated[str, typer.Option("--prompt", help="Field that says which example a row is.")] = "prompt",
    language: Annotated[str, typer.Option("--language", help="auto, en or zh.")] = "auto",
    strip_thinking: Annotated[bool, typer.Option("--strip-thinking", help="Take <think>…</think> out.")] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", help="case, punctuation, space, articles, width; may be given again.", metavar="WHAT"),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="For ndcg and pass_at_k.")] = None,
    group_by: Annotated[str | None, typer.Option("--group-by", help="Field of the query or problem.")] = None,
    required_key: Annotated[
        list[str] | None, typer.Option("--required-key", help="For json_valid; may be given again.", metavar="KEY")
    ] = None,
    slice_by: Annotated[str | None, typer.Option("--slice-by", help="Field by which to slice.")] = None,
    slice_edge: Annotated[
        list[float] | None,
        typer.Option("--slice-edge", help="Limit between slices; may be given again.", metavar="LIMIT"),
    ] = None,
    bad_cases: Annotated[int, typer.Option("--bad-cases", help="How many of the worst examples to show.")] = 0,
    json: JsonOption = False,
) -> None:
    """Score predictions against their labels."""
    from nightlab.tools.scoring.compare import compare

    found: list[tuple[Score, Comparison | None]] = []
    for name in metric:
        settings = _settings(
            kind=name,
            label=label,
            prediction=prediction,
            prompt=prompt,
            language=language,
            strip_thinking=strip_thinking,
            ignore=ignore or [],
            k=k,
            group_by=group_by,
            required_keys=required_key or [],
            slice_by=slice_by,
            slice_edges=slice_edge or [],
            bad_cases=bad_cases,
        )
        result = _scored(file, settings)
        if against is None:
            found.append((result, None))
            continue
        other = _scored(against, settings)
        with _named(against, settings):
            found.append((result, compare(other, result)))
    if json:
        print_json([_as_json(result, comparison) for result, comparison in found])
    else:
        _print(found, against)


def _settings(**values: Any) -> ScoringSettings:
    """Raises ConfigError that names the option."""
    from pydantic import ValidationError

    from nightlab.configs.scoring import ScoringSettings
    from nightlab.errors import ConfigError, Fault

    try:
        return ScoringSettings.model_validate(values)
    except ValidationError as error:
        faults = [
            Fault(f"{fault['msg']}", key=_option(str(fault["loc"][0])))
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise ConfigError(faults) from error


def _option(name: str) -> str:
    options = {"kind": "metric", "required_keys": "required-key", "slice_edges": "slice-edge"}
    return f"--{options.get(name, name.replace('_', '-'))}"


def _scored(file: Path, settings: ScoringSettings) -> Score:
    from nightlab.tools.scoring.score import score_file

    with _named(file, settings):
        return score_file(file, settings)


@contextmanager
def _named(file: Path, settings: ScoringSettings) -> Iterator[None]:
    """Errors with the file's name and the score's; raises MetricError."""
    from nightlab.errors import MetricError

    try:
        yield
    except OSError as error:
        raise MetricError(f"{file}: {error.strerror or error}", cause="metric-unreadable") from error
    except MetricError as error:
        raise MetricError(f"{file}: {settings.kind}: {error}", cause=error.cause) from error


def _as_json(result: Score, comparison: Comparison | None) -> dict[str, Any]:
    from dataclasses import asdict

    from nightlab.agents.scores import summary_of

    told = summary_of(result) | {"bad_cases": [asdict(case) for case in result.bad_cases]}
    return told | ({"against": asdict(comparison) | {"delta": comparison.delta}} if comparison else {})


def _print(found: list[tuple[Score, Comparison | None]], against: Path | None) -> None:
    from rich.table import Table

    from nightlab.configs.wording import one_line

    out = console()
    table = Table(box=None, pad_edge=False)
    for name in ("score", "value", "interval", "examples"):
        table.add_column(name, justify="left" if name == "score" else "right", no_wrap=True)
    for result, comparison in found:
        kind = result.settings.kind
        table.add_row(kind, f"{result.value:.4f}", _range(result.interval), str(result.examples))
        for part in result.slices:
            table.add_row(f"  {one_line(part.name)}", f"{part.value:.4f}", _range(part.interval), str(part.examples))
        if comparison:
            table.add_row(
                f"  against {against}",
                f"{comparison.delta:+.4f}",
                _range(comparison.interval),
                str(comparison.examples),
            )
    out.print(table)
    for result, comparison in found:
        for line in _lines(result, comparison):
            out.print(line)
    out.print(BY_EXAMPLES)


def _range(interval: Interval | None) -> str:
    return f"{interval.low:.4f} to {interval.high:.4f}" if interval else "–"


def _lines(result: Score, comparison: Comparison | None) -> Iterator[str]:
    from nightlab.configs.wording import one_line
    from nightlab.report.numbers import count

    kind = result.settings.kind
    if result.rows.broken:
        lines = ", ".join(map(str, result.rows.first_broken))
        yield f"{kind}: {count(result.rows.broken, 'broken row')} left out (line {lines})"
    if comparison and comparison.better is not None:
        better = count(comparison.better, "example")
        yield f"{kind}: {better} better, {comparison.worse} worse, {comparison.same} the same"
    if comparison and (comparison.only_first or comparison.only_second):
        here, there = count(comparison.only_second, "example"), count(comparison.only_first, "example")
        yield f"{kind}: {here} only here, {there} only in the other file"
    for case in result.bad_cases:
        yield one_line(f"{kind} {case.value:.4f}, line {case.line}: {case.prediction!r} for {case.label!r}")


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command()(score)
