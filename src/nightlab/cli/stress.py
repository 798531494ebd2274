"""Commands that put something under stress, without a study: `nightlab load`, `nightlab slices`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nightlab.cli.common import JsonOption, checked_output, checked_url, console, print_json, short

if TYPE_CHECKING:
    from nightlab.tools.stress.load import LoadPlan

__all__ = ["register"]

INTERRUPTED = 130
COLUMNS = ("at a time", "answered", "errors", "p50 ms", "p90 ms", "p99 ms", "first token p50", "tokens/s", "req/s")


def load(
    base_url: Annotated[
        str, typer.Option("--base-url", help="The endpoint with its version: http://127.0.0.1:8000/v1.", metavar="URL")
    ],
    model: Annotated[str, typer.Option("--model", help="The model's name there.")],
    concurrency: Annotated[
        str, typer.Option("--concurrency", help="Requests at a time, one level after the other.", metavar="N,N,…")
    ] = "1,4,16",
    requests: Annotated[int, typer.Option("--requests", min=1, max=1_000_000, help="Requests of each level.")] = 100,
    prompts: Annotated[
        Path | None, typer.Option("--prompts", help="Prompts, one a line: text or JSON.", metavar="FILE")
    ] = None,
    max_tokens: Annotated[int, typer.Option("--max-tokens", min=1, help="Tokens of an answer at most.")] = 128,
    stream: Annotated[bool, typer.Option("--stream", help="Have answers streamed; measures the first token.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=0.001, help="Seconds a request may take.")] = 120.0,
    key_env: Annotated[str, typer.Option("--key-env", help="Variable that holds the key.")] = "OPENAI_API_KEY",
    out: Annotated[Path | None, typer.Option("--json", help="Write the figures to a file.", metavar="OUT")] = None,
) -> None:
    """Put an OpenAI-compatible endpoint under load.

    Latency, first token, tokens a second, errors.
    """
    import os

    from nightlab.tools.stress.load import LoadPlan, read_prompts

    if out is not None:
        checked_output(out)
    plan = LoadPlan(
        base_url=checked_url(base_url),
        model=model,
        concurrency=_levels(concurrency),
        requests=requests,
        prompts=read_prompts(prompts) if prompts else (),
        max_tokens=max_tokens,
        stream=stream,
        timeout_seconds=timeout,
        api_key=os.environ.get(key_env, ""),
    )
    raise typer.Exit(_run(plan, out))


def _levels(text: str) -> tuple[int, ...]:
    """Raises ConfigError for what is no list of whole numbers above 0."""
    from nightlab.errors import ConfigError, Fault

    levels = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= 4096 for part in levels):
        raise ConfigError(Fault(f"{text!r} is no list of numbers from 1 to 4096", key="--concurrency", mend="1,4,16"))
    return tuple(int(part) for part in levels)


def _run(plan: LoadPlan, out: Path | None) -> int:
    """Exit status: 1 where a level got no answer, 130 where somebody interrupted it; what there is is told."""
    import asyncio
    import json

    from nightlab.configs.files import write_atomically
    from nightlab.tools.stress.load import LoadTest

    test, interrupted = LoadTest(plan), False
    try:
        asyncio.run(test.run())
    except KeyboardInterrupt:
        interrupted = True
    result = test.result | {"interrupted": interrupted}
    if out is not None:
        write_atomically(out, json.dumps(result, indent=2) + "\n")
    _print(result)
    if interrupted:
        return INTERRUPTED
    return 0 if all(level["answered"] for level in result["levels"]) else 1


def _print(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for level in result["levels"]:
        latency, first = level["latency_ms"] or {}, level["first_token_ms"] or {}
        figures = [latency.get("p50"), latency.get("p90"), latency.get("p99"), first.get("p50")]
        figures += [level["tokens_per_second"], level["requests_per_second"]]
        told = ["–" if value is None else f"{value:.4g}" if value < 1000 else f"{value:.0f}" for value in figures]
        table.add_row(str(level["concurrency"]), str(level["answered"]), str(level["errors"]), *told)
    console().print(table)
    for level in result["levels"]:
        for kind, times in level["error_kinds"].items():
            console().print(f"{level['concurrency']} at a time: {times} × {kind}")
    if result["interrupted"]:
        console().print("Interrupted: the last level is what there was until then.")


def slices(
    file: Annotated[Path, typer.Argument(help="Evaluation data.", metavar="FILE")],
    out: Annotated[Path, typer.Option("--out", help="Folder for noisy.jsonl, long.jsonl, rare.jsonl.", metavar="DIR")],
    share: Annotated[float, typer.Option("--share", help="Share of the rows in the long and the rare slice.")] = 0.2,
    noise: Annotated[float, typer.Option("--noise", help="Share of an input's words that noise changes.")] = 0.06,
    seed: Annotated[int, typer.Option("--seed", help="Of the noise.")] = 0,
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", help="Field that a model is asked; may be given again.", metavar="FIELD"),
    ] = None,
    label: Annotated[str, typer.Option("--label", help="Field of the class.")] = "",
    json: JsonOption = False,
) -> None:
    """Make harder slices of an evaluation file.

    With noise, the longest rows, the rarest rows.
    """
    from nightlab.errors import ConfigError, Fault
    from nightlab.report.numbers import count
    from nightlab.tools.stress.slices import SliceRules, make_slices

    for option, value in (("--share", share), ("--noise", noise)):
        if not 0 < value <= 1:
            raise ConfigError(Fault(f"{value:g} is no share", key=option, mend="above 0, at most 1"))
    made = make_slices(file, out, SliceRules(share, noise, seed, tuple(inputs or ()), label))
    if json:
        from dataclasses import asdict

        print_json(asdict(made))
        return
    typer.echo(f"{short(made.noisy)}: {count(made.rows, 'row')} with noise in their inputs")
    typer.echo(f"{short(made.long)}: the {count(made.kept, 'longest row')}")
    typer.echo(f"{short(made.rare)}: the {count(made.kept, 'row')} with the rarest words and labels")
    if made.broken:
        typer.echo(f"{count(made.broken, 'row')} could not be used and {'is' if made.broken == 1 else 'are'} left out")


def register(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command()(load)
    app.command()(slices)
