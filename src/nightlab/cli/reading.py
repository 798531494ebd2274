"""Commands that only read: status, results, show, logs, diff, report."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nightlab.cli.common import (
    DEFAULT,
    JsonOption,
    StudyOption,
    command,
    console,
    experiment_of,
    opened,
    print_json,
    short,
)

if TYPE_CHECKING:
    from rich.table import Table

    from nightlab.agents.code_space import Code
    from nightlab.configs.study import Study
    from nightlab.graph.opening import Place
    from nightlab.knowledge.ledger import Ledger
    from nightlab.knowledge.records import Experiment
    from nightlab.report.model import StudyReport
    from nightlab.status import Snapshot
    from nightlab.tools.redaction import Redactor
    from nightlab.tools.sizing.batch import EffectiveBatch

__all__ = ["register"]

RESULT_COLUMNS = (
    ("value", "runs", "change", "interval", "verdict"),
    ("value", "change", "interval", "verdict"),
    ("value", "change", "verdict"),
)
"""What the table shows besides number and variable: as much as fits without a broken row."""

Number = Annotated[int, typer.Argument(help="Number of the experiment.", metavar="NN")]


def status(
    study: StudyOption = DEFAULT,
    json: JsonOption = False,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and follow until the lab ends.")] = False,
) -> None:
    """Where the study stands now."""
    from nightlab.cli.panel import render
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import utc_now

    with opened(study, to_read=True) as (ledger, declared, place):
        lab = running_lab(place.paths)
        snapshot = _snapshot(ledger, declared, place)
        if json:
            print_json({**snapshot.model_dump(mode="json"), "lab_pid": lab.pid if lab else None})
        elif watch and lab:
            _follow(study, place, lambda: _snapshot(ledger, declared, place))
        else:
            console().print(render(snapshot, utc_now(), study, alive=lab is not None))


def _snapshot(ledger: Ledger, declared: Study, place: Place) -> Snapshot:
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import JobState, utc_now
    from nightlab.knowledge.stress import IN_FLIGHT
    from nightlab.status import snapshot_of
    from nightlab.tools.backends.local import LocalBackend

    if running_lab(place.paths) is not None:
        return snapshot_of(ledger, declared, utc_now())
    # Nobody keeps the ledger up to date: the jobs themselves say whether they still run.
    jobs = {job.key: Path(job.directory) for job in ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING))}
    jobs |= {one.key: Path(one.directory) for one in ledger.stresses(states=IN_FLIGHT)}
    states = LocalBackend(declared.backend).poll(jobs)
    running = {key for key, now in states.items() if now.state is JobState.RUNNING}
    return snapshot_of(ledger, declared, utc_now(), running=running)


def _follow(study: Path, place: Place, read: Callable[[], Snapshot]) -> None:
    import time

    from rich.live import Live

    from nightlab.cli.panel import render
    from nightlab.graph.process import running_lab
    from nightlab.knowledge.records import utc_now

    with Live(console=console(), auto_refresh=False) as live:
        try:
            while running_lab(place.paths) is not None:
                live.update(render(read(), utc_now(), study, alive=True), refresh=True)
                time.sleep(1)
        except KeyboardInterrupt:
            return
        live.update(render(read(), utc_now(), study, alive=False), refresh=True)


def results(study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """Every experiment: value, effect, verdict."""
    from nightlab.report.load import load_report

    with opened(study, to_read=True) as (ledger, declared, place):
        report = load_report(ledger, declared, place.paths)
    if json:
        print_json([row.as_dict() for row in report.rows])
        return
    out = console()
    for columns in RESULT_COLUMNS:
        table = _result_table(report, columns)
        if out.measure(table).maximum <= out.width:
            break
    out.print(table)
    out.print(report.headline)


def _result_table(report: StudyReport, columns: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("NN", no_wrap=True, min_width=2)
    table.add_column("variable", overflow="fold", min_width=10)
    for name in columns:
        table.add_column(report.metric.name if name == "value" else name, overflow="fold")
    for row in report.rows:
        cells = {
            "value": row.value,
            "runs": str(row.runs),
            "change": row.effect,
            "interval": row.interval,
            "verdict": row.verdict,
        }
        table.add_row(f"{row.number:02d}", row.variable, *(cells[name] for name in columns))
    return table


def show(number: Number, study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """One experiment: change, reason, runs, verdict."""
    with opened(study, to_read=True) as (ledger, declared, place):
        experiment = experiment_of(ledger, number, study)
        runs = ledger.runs(number)
        verdict = ledger.verdicts().get(number)
        observations = {o.key: o for o in ledger.observations()}
        jobs = {job.key: job for job in ledger.jobs(number)}
        batch = _batch(place, experiment)
        if json:
            print_json(
                {
                    "experiment": experiment.model_dump(mode="json"),
                    "effective_batch": {**vars(batch), "size": batch.size} if batch else None,
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
        from nightlab.agents.history import history_of
        from nightlab.search.attribution import move_of

        several = len(experiment.changed) > 1
        move = move_of(declared, history_of(ledger), number, experiment.variable) if several else None
        entries = [(run, jobs.get(run.key), observations.get(run.key)) for run in runs]
        code = _code(ledger, place, experiment)
        typer.echo(describe(declared, experiment, entries, verdict, move=move, code=code, batch=batch))
        typer.echo(f"State: {experiment.state}. Logs: {short(place.paths.experiment_logs(number))}")


def _batch(place: Place, experiment: Experiment) -> EffectiveBatch | None:
    """As committed on its branch; None before that, and where nothing told it."""
    from nightlab.agents.cards import CONFIGURATION, recorded_batch
    from nightlab.errors import GitError
    from nightlab.worktrees.git import Git

    try:
        text = Git(place.root).show_file(experiment.commit, CONFIGURATION) if experiment.commit else "{}"
    except GitError:
        # Branches can be deleted by hand; the ledger still tells the rest.
        return None
    return recorded_batch(text)


def _code(ledger: Ledger, place: Place, experiment: Experiment) -> Code:
    """What it changes in the code; nothing where its ideas cannot be applied, as its failed run says."""
    from nightlab.agents.code_space import Code, accepted, code_of
    from nightlab.errors import PatchError
    from nightlab.worktrees.git import Git

    try:
        return code_of(Git(place.root), experiment, accepted(ledger))
    except PatchError:
        return Code()


def logs(
    number: Number,
    study: StudyOption = DEFAULT,
    seed: Annotated[int | None, typer.Option(help="Only the run with this seed.", metavar="SEED")] = None,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, help="How many of the last lines of each log.", metavar="N")
    ] = 40,
) -> None:
    """The end of an experiment's logs."""
    from nightlab.configs.paths import JobPaths
    from nightlab.errors import ConfigError, Fault

    with opened(study, to_read=True) as (ledger, _, place):
        experiment_of(ledger, number, study)
        jobs = {job.key: JobPaths(Path(job.directory)) for job in ledger.jobs(number)}
        seeds = {run.key: run.seed for run in ledger.runs(number) if run.key in jobs}
        stresses = [JobPaths(Path(one.directory)) for one in ledger.stresses(number) if one.directory]
    if not jobs:
        typer.echo(f"No run of experiment {number:02d} has started yet; `{command('status', study)}` shows what runs.")
        return
    if seed is not None and seed not in seeds.values():
        ran = ", ".join(map(str, dict.fromkeys(seeds.values())))
        raise ConfigError(Fault(f"experiment {number:02d} has no run with seed {seed}", mend=f"it ran with {ran}"))
    for key, paths in jobs.items():
        if seed is None or seeds[key] == seed:
            _tail(paths.stdout, lines, place.redactor)
            _tail(paths.stderr, lines, place.redactor)
    for paths in stresses if seed is None else ():
        _tail(paths.stdout, lines, place.redactor)
        _tail(paths.stderr, lines, place.redactor)


def _tail(log: Path, lines: int, redactor: Redactor) -> None:
    """A running job's log is redacted here only: it is rewritten when the job has ended."""
    if not log.exists() or not log.stat().st_size:
        return
    typer.echo(f"==> {short(log)} <==")
    with log.open(encoding="utf-8", errors="replace") as text:
        for line in deque(text, maxlen=lines):
            typer.echo(redactor.redact(line.rstrip("\n")))


def diff(
    number: Number,
    study: StudyOption = DEFAULT,
    everything: Annotated[bool, typer.Option("--all", help="The lab's own files on the branch, too.")] = False,
) -> None:
    """What an experiment changes, against the base commit."""
    from nightlab.errors import ConfigError, Fault
    from nightlab.report.numbers import level
    from nightlab.worktrees.git import Git

    with opened(study, to_read=True) as (ledger, declared, place):
        experiment = experiment_of(ledger, number, study)
    if experiment.commit is None:
        message = f"experiment {number:02d} has no commit yet: it is {experiment.state}"
        raise ConfigError(Fault(message, mend="wait for it to be prepared"))
    own = () if everything else _own_files()
    text = Git(place.root).diff_text(experiment.base_commit, experiment.commit, leave_out=own)
    typer.echo(text, nl=False)
    if not text:
        values = [f"{name} {level(declared.parameters[name])} → {level(v)}" for name, v in experiment.changed.items()]
        what = f"only what its command is given: {', '.join(values)}" if values else "nothing: it is the baseline"
        typer.echo(f"Experiment {number:02d} changes {what}.", err=True)


def _own_files() -> tuple[str, ...]:
    from nightlab.agents.cards import CARD, CONFIGURATION, EXPERIMENT

    return EXPERIMENT, CONFIGURATION, CARD


def ideas(study: StudyOption = DEFAULT, json: JsonOption = False) -> None:
    """Changes to the code that a model proposed."""
    from nightlab.report.ideas import told_of
    from nightlab.report.load import load_report

    with opened(study, to_read=True) as (ledger, declared, place):
        if json:
            print_json([idea.model_dump(mode="json", exclude={"asked"}) for idea in ledger.ideas()])
            return
        report = load_report(ledger, declared, place.paths)
    if not report.ideas:
        typer.echo("None yet. Which files a language model may change stands under `code` in the study file.")
        return
    out = console()
    out.print(_idea_table(report))
    for line in told_of(report.ideas):
        out.print(line)


def _idea_table(report: StudyReport) -> Table:
    from rich.table import Table

    from nightlab.report.wording import Wording

    words = Wording(report.metric, report.noise)
    table = Table(box=None, pad_edge=False)
    for name in ("idea", "changes", "lines", "state", "verdict", "effect"):
        table.add_column(name, overflow="fold")
    for idea in report.ideas:
        effect = words.change(idea.effect) if idea.effect else ""
        table.add_row(idea.name, idea.title, idea.size, idea.state.value, idea.gain or idea.verdict, effect)
    return table


def report(
    study: StudyOption = DEFAULT,
    tsv: Annotated[bool, typer.Option("--tsv", help="Write results.tsv too: autoresearch's five columns.")] = False,
) -> None:
    """Write report and table anew, and name them."""
    from nightlab.report.write import write_files

    with opened(study) as (ledger, declared, place):
        for path in write_files(ledger, declared, place.paths, place.redactor, tsv=tsv):
            typer.echo(short(path))


def register(app: typer.Typer) -> None:
    for function in (status, results, show, logs, diff, ideas, report):
        app.command()(function)
