"""Commands that only read: status, results, show, logs, diff, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nightlab.cli.common import JsonOption, StudyOption, console, opened, print_json, short

__all__ = ["register"]

DEFAULT = Path("study.yaml")
Number = Annotated[int, typer.Argument(help="Number of the experiment.", metavar="NN")]


def status(
    study: StudyOption = DEFAULT,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and follow until the lab ends.")] = False,
) -> None:
    """Where the study stands: phase, slots, best so far, budget, expected end."""
    import time

    from nightlab.cli.live import render
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import utc_now
    from nightlab.status import snapshot_of

    with opened(study) as (ledger, declared, place):
        snapshot = snapshot_of(ledger, declared, utc_now())
        if json:
            lab = running_lab(place.paths)
            print_json({**snapshot.model_dump(mode="json"), "lab_pid": lab.pid if lab else None})
            return
        if not watch:
            console().print(render(snapshot, alive=running_lab(place.paths) is not None))
            return
        from rich.live import Live

        with Live(render(snapshot, alive=True), console=console(), auto_refresh=False) as live:
            while running_lab(place.paths) is not None:
                live.update(render(snapshot_of(ledger, declared, utc_now()), alive=True), refresh=True)
                time.sleep(1)
            live.update(render(snapshot_of(ledger, declared, utc_now()), alive=False), refresh=True)


def results(study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """Every experiment with its value, effect and verdict."""
    from rich.table import Table

    from nightlab.report.write import load_report

    with opened(study) as (ledger, declared, place):
        report = load_report(ledger, declared, place.paths)
    if json:
        print_json([row.as_dict() for row in report.rows])
        return
    table = Table("NN", "variable", report.metric.name, "runs", "change", "interval", "verdict", box=None)
    for row in report.rows:
        cells = row.variable, row.value, str(row.runs), row.effect, row.interval, row.verdict
        table.add_row(f"{row.number:02d}", *cells)
    console().print(table)
    typer.echo(report.headline)


def show(number: Number, study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """One experiment: what was changed and why, its runs, its verdict."""
    with opened(study) as (ledger, declared, place):
        experiment = ledger.experiment(number)
        runs = ledger.runs(number)
        verdict = ledger.verdicts().get(number)
        observations = {o.key: o for o in ledger.observations()}
        jobs = {job.key: job for job in ledger.jobs(number)}
        if json:
            print_json(
                {
                    "experiment": experiment.model_dump(mode="json"),
                    "verdict": verdict.model_dump(mode="json") if verdict else None,
                    "runs": [
                        {
                            "run": run.model_dump(mode="json"),
                            "job": jobs[run.key].model_dump(mode="json") if run.key in jobs else None,
                            "values": observations[run.key].values if run.key in observations else None,
                        }
                        for run in runs
                    ],
                }
            )
            return
        from nightlab.agents.cards import describe

        entries = [(run, jobs.get(run.key), observations.get(run.key)) for run in runs]
        typer.echo(describe(declared, experiment, entries, verdict))
        typer.echo(f"State: {experiment.state}. Logs: {short(place.paths.experiment_logs(number))}")


def logs(
    number: Number,
    study: StudyOption = DEFAULT,
    seed: Annotated[int | None, typer.Option(help="Only the run with this seed.")] = None,
    lines: Annotated[int, typer.Option("--lines", "-n", help="How many of the last lines of each log.")] = 40,
) -> None:
    """The end of an experiment's logs."""
    from collections import deque

    from nightlab.configs.paths import JobPaths

    with opened(study) as (ledger, _, _place):
        ledger.experiment(number)
        for job in ledger.jobs(number):
            if seed is not None and ledger.run(job.key).seed != seed:
                continue
            paths = JobPaths(Path(job.directory))
            for log in (paths.stdout, paths.stderr):
                if not log.exists() or not log.stat().st_size:
                    continue
                typer.echo(f"==> {short(log)} <==")
                with log.open(encoding="utf-8", errors="replace") as text:
                    for line in deque(text, maxlen=lines):
                        typer.echo(line.rstrip("\n"))


def diff(number: Number, study: StudyOption = DEFAULT) -> None:
    """What an experiment's branch changes, against the study's base commit."""
    from nightlab.errors import GitError
    from nightlab.worktrees.git import Git

    with opened(study) as (ledger, _, place):
        experiment = ledger.experiment(number)
        if experiment.commit is None:
            raise GitError(
                f"experiment {number:02d} has no commit yet: it is {experiment.state} (wait for it to be prepared)"
            )
        typer.echo(Git(place.root).diff_text(experiment.base_commit, experiment.commit), nl=False)


def report(study: StudyOption = DEFAULT) -> None:
    """Write the report and the table anew from the ledger, at any time of the night, and name them."""
    from nightlab.report.write import write_files

    with opened(study) as (ledger, declared, place):
        for path in write_files(ledger, declared, place.paths):
            typer.echo(short(path))


def register(app: typer.Typer) -> None:
    for command in (status, results, show, logs, diff, report):
        app.command()(command)
