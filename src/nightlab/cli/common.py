"""What several commands share: the study option, the console, reading a ledger."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from nightlab.configs.study import Study
    from nightlab.graph.opening import Place
    from nightlab.knowledge.ledger import Ledger

__all__ = ["JsonOption", "StudyOption", "console", "opened", "print_json", "short"]

StudyOption = Annotated[Path, typer.Option("--study", "-s", help="The study file.", show_default=True, metavar="FILE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def console() -> Console:
    """A console that leaves text alone: no markup, no guessing of numbers or paths."""
    from rich.console import Console

    return Console(markup=False, highlight=False, soft_wrap=True)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def opened(file: Path) -> Iterator[tuple[Ledger, Study, Place]]:
    """The ledger of a study that has begun, with the study as the ledger holds it. Raises ConfigError before that."""
    from nightlab.configs.loading import load_study
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.opening import locate
    from nightlab.knowledge.ledger import Ledger

    loaded = load_study(file)
    place = locate(loaded)
    fault = Fault(f"the study {loaded.study.study} has not begun", file=file, mend="start it with `nightlab run`")
    if not place.paths.ledger.exists():
        raise ConfigError(fault)
    with Ledger.open(place.paths.ledger) as ledger:
        if not ledger.has_study():
            raise ConfigError(fault)
        yield ledger, ledger.study_row().study, place


def short(path: Path) -> str:
    """`path` relative to the current folder where that is shorter."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
