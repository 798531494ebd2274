"""Commands that start: init, check, run, demo."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from nightlab.cli.common import DEFAULT, command, short

__all__ = ["register"]

FileArgument = Annotated[Path, typer.Argument(help="The study file.", metavar="FILE", show_default=True)]
SnapshotOption = Annotated[
    bool, typer.Option("--snapshot", help="Start from the working tree as it is; its changes become a commit.")
]


def init(
    file: FileArgument = DEFAULT,
    name: Annotated[str, typer.Option(help="Name of the study (default: the folder's).", metavar="NAME")] = "",
    training: Annotated[str, typer.Option("--command", help="The training command.", metavar="COMMAND")] = "",
    template: Annotated[
        str, typer.Option(help="What to start from; --list tells what there is.", metavar="KIND")
    ] = "script",
    templates: Annotated[bool, typer.Option("--list", help="List the templates and write nothing.")] = False,
) -> None:
    """Write a commented study file to start from."""
    from nightlab.configs.init import TEMPLATES, write_template
    from nightlab.worktrees.names import slug

    if templates:
        width = max(map(len, TEMPLATES))
        typer.echo("\n".join(f"{kind:{width}}  {purpose}" for kind, purpose in TEMPLATES.items()))
        return
    folder = (file if file.is_dir() else file.parent).resolve()
    study = name or slug(folder.name)[:40].strip("-")
    written = write_template(file, kind=template, name=study, command=training or None)
    for note in _notes(written.resolve().parent) if template == "karpathy" else ():
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"Wrote {short(written)}. Edit the lines marked CHANGE, then: {command('check', written)}")


def _notes(folder: Path) -> list[str]:
    """What such a repository, this machine and this shell lack for a night."""
    from shutil import which

    from nightlab.configs.autoresearch import read_autoresearch

    notes = read_autoresearch(folder).notes
    if which("nvidia-smi") is None:
        notes.append("no GPU was found on this machine; where there is none, write gpus: [] under backend")
    if not os.environ.get("NIGHTLAB_MODEL"):
        notes.append("NIGHTLAB_MODEL is not set: name a language model before `nightlab check`, or write kind: rules")
    return notes


def check(file: FileArgument = DEFAULT, snapshot: SnapshotOption = False) -> None:
    """Look for all that would ruin the night.

    Reads the study file, the repository and the budget, and starts the training command once (dry run).
    """
    from nightlab.configs.loading import load_study
    from nightlab.graph.opening import locate
    from nightlab.night import check as preflight

    loaded = load_study(file)
    place = locate(loaded)
    for warning in loaded.warnings:
        typer.echo(f"note: {warning}", err=True)
    preflight(loaded, place, allow_dirty=snapshot, say=typer.echo)
    typer.echo(f"{short(file)} is ready: {command('run', file)}{' --snapshot' if snapshot else ''}")


def run(file: FileArgument = DEFAULT, snapshot: SnapshotOption = False) -> None:
    """Run the study to its end, or go on with it.

    Ctrl-C stops it cleanly; the same command takes it up again, after a crash or an answer as well. A terminal that is
    closed does not end it.
    """
    from nightlab.cli.live import run_with_display

    raise typer.Exit(run_with_display(file, allow_dirty=snapshot))


def demo(
    directory: Annotated[
        Path,
        typer.Option("--dir", help="Where to make its repository; nothing is overwritten.", metavar="DIR"),
    ] = Path("nightlab-demo"),
) -> None:
    """Make a small repository and run its study.

    A byte-level language model on the text of Python's own documentation: no key, no network, a few minutes.
    """
    from nightlab.cli.live import run_with_display
    from nightlab.demo import make_demo

    file = make_demo(directory)
    raise typer.Exit(run_with_display(file))


def register(app: typer.Typer) -> None:
    for function in (init, check, run, demo):
        app.command()(function)
