"""Commands that start: init, check, run, demo."""

from __future__ import annotations

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
        str, typer.Option(help="script (flags or a settings file) or karpathy (constants).", metavar="KIND")
    ] = "script",
) -> None:
    """Write a commented study file to start from."""
    from nightlab.configs.init import write_template
    from nightlab.worktrees.names import slug

    folder = (file if file.is_dir() else file.parent).resolve()
    study = name or slug(folder.name)[:40].strip("-")
    written = write_template(file, kind=template, name=study, command=training or None)
    typer.echo(f"Wrote {short(written)}. Edit the lines marked CHANGE, then: {command('check', written)}")


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
