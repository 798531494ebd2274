"""What several commands share: the study option, the console, reading a ledger."""

from __future__ import annotations

import getpass
import json
import os
import sys
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
    from nightlab.knowledge.records import Experiment

__all__ = [
    "DEFAULT",
    "JsonOption",
    "StudyOption",
    "checked_output",
    "checked_url",
    "command",
    "console",
    "experiment_of",
    "opened",
    "person",
    "print_json",
    "short",
]

DEFAULT = Path("study.yaml")
PIPE_COLUMNS = 200
"""Width of tables that are not shown on a terminal: no row is to be broken before a script reads it."""

StudyOption = Annotated[Path, typer.Option("--study", "-s", help="The study file.", show_default=True, metavar="FILE")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]


def console() -> Console:
    """A console that leaves text alone: no markup, no guessing of numbers or paths."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    return Console(markup=False, highlight=False, width=width)


def print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


@contextmanager
def opened(file: Path, *, to_read: bool = False) -> Iterator[tuple[Ledger, Study, Place]]:
    """The ledger of a study that has begun, with the study as the ledger holds it. Raises ConfigError before that.

    `to_read`: nothing is written, so that it works on a full disk.
    """
    from nightlab.agents.code_space import study_of
    from nightlab.configs.loading import load_study
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.opening import locate
    from nightlab.knowledge.ledger import Ledger
    from nightlab.tools.redaction import carrying

    loaded = load_study(file)
    place = locate(loaded)
    mend = f"start it with `{command('run', file)}`"
    fault = Fault(f"the study {loaded.study.study} has not begun", file=file, mend=mend)
    if not Ledger.exists(place.paths.ledger):
        raise ConfigError(fault)
    with carrying(place.redactor), place.read_ledger() if to_read else place.open_ledger() as ledger:
        if not ledger.has_study():
            raise ConfigError(fault)
        yield ledger, study_of(ledger), place


def experiment_of(ledger: Ledger, number: int, file: Path) -> Experiment:
    """The experiment of this number. Raises ConfigError that says which there are."""
    from nightlab.errors import ConfigError, Fault

    experiments = ledger.experiments()
    found = next((experiment for experiment in experiments if experiment.number == number), None)
    if found is None:
        last = f"they go from 00 to {experiments[-1].number:02d}" if experiments else "none has been planned yet"
        mend = f"{last}; `{command('results', file)}` lists them"
        raise ConfigError(Fault(f"has no experiment {number:02d}", file=file, mend=mend))
    return found


def person() -> str:
    """Who sits at the keyboard, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "unknown"


def checked_output(path: Path, *, is_folder: bool = False) -> Path:
    """What a command is to write, looked at before its work. Raises ConfigError where it could not be written."""
    from nightlab.errors import ConfigError, Fault

    there = next(place for place in (path, *path.absolute().parents) if place.exists())
    if there == path and not is_folder and path.is_dir():
        raise ConfigError(Fault("is a folder", file=path, mend="name a file"))
    if (there != path or is_folder) and not there.is_dir():
        raise ConfigError(
            Fault(f"cannot be written: {short(there)} is no folder", file=path, mend="name another place")
        )
    if not os.access(there, os.W_OK):
        raise ConfigError(Fault(f"cannot be written: {short(there)} may not be changed by you", file=path))
    return path


def checked_url(url: str) -> str:
    """The URL given as `--base-url`. Raises ConfigError for what is no address of an endpoint."""
    from nightlab.configs.brain import url_problem
    from nightlab.errors import ConfigError, Fault

    if wrong := url_problem(url):
        raise ConfigError(Fault(wrong[0], key="--base-url", mend=wrong[1]))
    return url


def short(path: Path) -> str:
    """`path` relative to the current folder where that is shorter."""
    relative = os.path.relpath(path)
    return relative if len(relative) < len(str(path)) else str(path)


def command(name: str, file: Path, *words: str) -> str:
    """How a person calls a command on the study in `file` from where they are: `nightlab run demo/study.yaml`."""
    place = "" if file.resolve() == DEFAULT.resolve() else short(file)
    option = [] if not place else [place] if name in ("check", "run") else ["--study", place]
    return " ".join(["nightlab", name, *words, *option])
