"""Commands on a study that has begun: pause, resume, stop, gc."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import DEFAULT, JsonOption, StudyOption, command, opened, person, print_json, short

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
    from nightlab.knowledge.stress import StressState
    from nightlab.report.numbers import count
    from nightlab.tools.backends.local import LocalBackend
    from nightlab.upkeep import end_jobs

    with opened(study) as (ledger, declared, place):
        _stop_lab(place.paths)
        jobs = {job.key: Path(job.directory) for job in ledger.jobs(states=(JobState.RUNNING,))}
        jobs |= {one.key: Path(one.directory) for one in ledger.stresses(states=(StressState.RUNNING,))}
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


def pause(study: StudyOption = DEFAULT) -> None:
    """Start no new job from now on; running ones go on.

    A running lab collects their results and stays; `resume` lets it go on.
    """
    _set_paused(study, paused=True)


def resume(study: StudyOption = DEFAULT) -> None:
    """Start new jobs again after a pause."""
    _set_paused(study, paused=False)


def _set_paused(study: Path, *, paused: bool) -> None:
    from nightlab.errors import ConfigError, Fault
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import StudyStatus

    with opened(study) as (ledger, _, place):
        row = ledger.study_row()
        if row.status is StudyStatus.FINISHED:
            raise ConfigError(Fault("the study is finished", file=study, mend="there is nothing to pause or resume"))
        if row.paused != paused:
            with ledger.transaction():
                ledger.update_study(paused=paused)
                ledger.add_event("paused" if paused else "resumed", f"by {person()}")
        is_running = running_lab(place.paths) is not None
    is_new = row.paused != paused
    if paused:
        told = "Paused" if is_new else "Paused already"
        typer.echo(f"{told}: no new job is started before `{command('resume', study)}`; running ones go on.")
    else:
        told = "Resumed" if is_new else "Not paused"
        go_on = "the lab goes on" if is_running else f"go on: {command('run', study)}"
        typer.echo(f"{told}; {go_on}.")


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
    for function in (pause, resume, stop, gc):
        app.command()(function)
