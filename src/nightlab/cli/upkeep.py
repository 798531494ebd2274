"""Commands on a study that has begun: stop, answer, gc."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import DEFAULT, JsonOption, StudyOption, command, opened, print_json, short

if TYPE_CHECKING:
    from nightlab.configs.paths import StudyPaths

__all__ = ["register"]


def stop(
    study: StudyOption = DEFAULT,
    kill_jobs: Annotated[bool, typer.Option("--kill-jobs", help="End the running jobs as well.")] = False,
) -> None:
    """Ask the running lab to stop; its jobs go on.

    The next `nightlab run` takes them over, or ends them with --kill-jobs.
    """
    from nightlab.knowledge.records import JobState
    from nightlab.report.numbers import count
    from nightlab.tools.backends.local import LocalBackend
    from nightlab.upkeep import end_jobs

    with opened(study) as (ledger, declared, place):
        _stop_lab(place.paths)
        jobs = {job.key: Path(job.directory) for job in ledger.jobs(states=(JobState.RUNNING,))}
        backend = LocalBackend(declared.backend)
        running = sum(status.state is JobState.RUNNING for status in backend.poll(jobs).values())
    if kill_jobs:
        typer.echo(f"Ended {count(end_jobs(place, declared), 'running job')}.")
    elif running:
        go_on = f"{running} job{'s go' if running > 1 else ' goes'} on"
        typer.echo(f"{go_on}; `{command('run', study)}` takes over, `{command('stop', study, '--kill-jobs')}` ends.")


def _stop_lab(paths: StudyPaths) -> None:
    from nightlab.graph.process import running_lab

    lab = running_lab(paths)
    if lab is None:
        typer.echo("No lab is running this study.")
        return
    lab.terminate()
    typer.echo(f"Asked the lab (process {lab.pid}) to stop …")
    while running_lab(paths) is not None:
        time.sleep(0.1)
    typer.echo("It has stopped.")


def answer(
    question: Annotated[str, typer.Argument(help="Id of the question.", metavar="ID")],
    choice: Annotated[str, typer.Argument(help="One of its options.", metavar="OPTION")],
    study: StudyOption = DEFAULT,
) -> None:
    """Answer a question of the lab."""
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.process import running_lab

    with opened(study) as (ledger, _, place):
        known = ledger.questions()
        if question not in {asked.id for asked in known}:
            mend = f"asked so far: {', '.join(asked.id for asked in known)}" if known else "nothing has been asked yet"
            raise ConfigError(Fault(f"has no question {question}", file=study, mend=mend))
        answered = ledger.answer(question, choice, by=_person())
        is_running = running_lab(place.paths) is not None
    go_on = "The lab goes on with it." if is_running else f"Go on: {command('run', study)}"
    typer.echo(f"{answered.id}: {answered.answer}. {go_on}")


def _person() -> str:
    """Who sits at the keyboard, for the record."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return "unknown"


def gc(
    study: StudyOption = DEFAULT,
    branches: Annotated[
        bool, typer.Option("--branches", help="Delete branches of ended experiments that were not kept, too.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Remove worktrees that nothing needs.

    Those of running jobs and of results not read yet stay. What a killed lab left half done is healed. Records and
    logs stay, and without --branches all branches.
    """
    from nightlab.graph.process import hold_study
    from nightlab.report.numbers import count
    from nightlab.upkeep import clear_branches, clear_trees

    with opened(study) as (ledger, _, place), hold_study(place.paths):
        trees = clear_trees(ledger, place.paths)
        deleted = clear_branches(ledger, place.paths) if branches else {}
    if json:
        print_json({"worktrees": [str(tree) for tree in trees], "branches": deleted})
        return
    for tree in trees:
        typer.echo(f"removed {short(tree)}")
    for branch, tip in deleted.items():
        typer.echo(f"deleted {branch} (was {tip[:12]})")
    removed = count(len(trees), "worktree") + (f" and {count(len(deleted), 'branch', 'branches')}" if branches else "")
    typer.echo(f"Removed {removed}.")


def register(app: typer.Typer) -> None:
    for function in (stop, answer, gc):
        app.command()(function)
