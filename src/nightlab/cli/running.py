"""Commands that start, stop and clean: init, check, run, demo, stop, answer, gc."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightlab.cli.common import JsonOption, StudyOption, opened, print_json, short

__all__ = ["register"]

DEFAULT = Path("study.yaml")
FileArgument = Annotated[Path, typer.Argument(help="The study file.", metavar="[FILE]", show_default=True)]
SnapshotOption = Annotated[
    bool, typer.Option("--snapshot", help="Start from the working tree as it is: its changes become the base commit.")
]


def init(
    file: FileArgument = DEFAULT,
    name: Annotated[str, typer.Option(help="Name of the study (default: the folder's).")] = "",
    command: Annotated[str, typer.Option(help="The training command.")] = "",
) -> None:
    """Write a commented study file."""
    from nightlab.configs.init import write_template
    from nightlab.worktrees.names import slug

    written = write_template(
        file, name=name or slug(file.resolve().parent.name)[:40].strip("-"), command=command or None
    )
    typer.echo(f"Wrote {short(written)}. Edit it, then: nightlab check {short(written)}")


def check(file: FileArgument = DEFAULT, snapshot: SnapshotOption = False) -> None:
    """Look for everything that would ruin the night, the dry run included."""
    from nightlab.configs.loading import load_study
    from nightlab.graph.opening import locate
    from nightlab.night import check as preflight

    loaded = load_study(file)
    place = locate(loaded)
    for warning in loaded.warnings:
        typer.echo(f"note: {warning}", err=True)
    preflight(loaded, place, allow_dirty=snapshot, say=typer.echo)
    typer.echo(f"{short(file)} is ready: nightlab run {short(file)}")


def run(file: FileArgument = DEFAULT, snapshot: SnapshotOption = False) -> None:
    """Run the study to its end, or go on with it after a stop, a crash or an answer."""
    from nightlab.cli.live import run_with_display

    raise typer.Exit(run_with_display(file, allow_dirty=snapshot))


def demo(
    directory: Annotated[
        Path, typer.Option("--dir", help="Where to make the demo's repository; never overwritten.", show_default=True)
    ] = Path("nightlab-demo"),
) -> None:
    """Make a small training repository and run its whole study there: no key, no network, a few minutes."""
    from nightlab.cli.live import run_with_display
    from nightlab.demo import make_demo

    file = make_demo(directory)
    raise typer.Exit(run_with_display(file))


def stop(
    study: StudyOption = DEFAULT,
    kill_jobs: Annotated[bool, typer.Option("--kill-jobs", help="End the running jobs as well.")] = False,
) -> None:
    """Ask the lab that runs the study to stop; its jobs go on and are adopted by the next `nightlab run`."""
    import time

    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import JobState
    from nightlab.tools.backends.local import LocalBackend

    with opened(study) as (ledger, declared, place):
        lab = running_lab(place.paths)
        if lab is None:
            typer.echo("No lab is running this study.")
        else:
            lab.terminate()
            typer.echo(f"Asked the lab (process {lab.pid}) to stop …")
            while running_lab(place.paths) is not None:
                time.sleep(0.1)
            typer.echo("It has stopped.")
        jobs = {job.key: Path(job.directory) for job in ledger.jobs(states=(JobState.RUNNING,))}
        if kill_jobs:
            ended = list(LocalBackend(declared.backend).cancel(jobs))
            typer.echo(f"Ended {len(ended)} job{'s' * (len(ended) != 1)}.")
        elif jobs:
            typer.echo(f"{len(jobs)} job{'s go' if len(jobs) > 1 else ' goes'} on; `nightlab run` takes them over.")


def answer(
    question: Annotated[str, typer.Argument(help="Id of the question.", metavar="ID")],
    choice: Annotated[str, typer.Argument(help="One of its options.", metavar="OPTION")],
    study: StudyOption = DEFAULT,
) -> None:
    """Answer a question of the lab; `nightlab run` then goes on."""
    from nightlab.graph.driver import person

    with opened(study) as (ledger, _, _place):
        answered = ledger.answer(question, choice, by=person())
        typer.echo(f"{answered.id}: {answered.answer}. Go on with `nightlab run`.")


def gc(study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """Remove worktrees that no running experiment needs, and heal what a killed lab left; branches stay."""
    from nightlab.graph.process import hold_study
    from nightlab.worktrees.trees import Worktrees

    with opened(study) as (_, _declared, place), hold_study(place.paths):
        trees = Worktrees(place.paths)
        trees.heal()
        left = [str(path) for path in trees.leftovers()]
        trees.remove_all()
    if json:
        print_json({"removed": left})
    else:
        typer.echo(f"Removed {len(left)} worktree{'s' * (len(left) != 1)}. Branches and results stay.")


def register(app: typer.Typer) -> None:
    for command in (init, check, run, demo, stop, answer, gc):
        app.command()(command)
