"""The stress agent: measures confirmed finalists, and the baseline beside them, under load or on harder data.

Each repeat is a job of its own beside the runs. Its intent is in the ledger before it is submitted, so that a killed
lab finds it by its key; its values are seen by no search and change no belief but that a win is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from nightlab.agents.context import Lab
from nightlab.agents.failures import last_line
from nightlab.agents.secrecy import clean_logs
from nightlab.agents.stress_words import told_end, told_plan, told_start
from nightlab.agents.training import free_slots
from nightlab.configs.metric_source import MetricSource
from nightlab.configs.paths import JobPaths
from nightlab.configs.stress import StressCheck
from nightlab.errors import GitError, MetricError
from nightlab.knowledge.records import JobState, Phase, Run, RunState
from nightlab.knowledge.stress import IN_FLIGHT, Stress, StressState, stress_key
from nightlab.search.spending import run_amounts
from nightlab.tools.backends.base import JobSpec, JobStatus
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.stress.commands import Place, stress_launch
from nightlab.worktrees.inputs import init_submodules, link_inputs

__all__ = [
    "adopt_stresses",
    "cancel_stresses",
    "observe_stresses",
    "plan_checks",
    "running_stresses",
    "submit_stresses",
]

MOST_LOSSES = 2
"""A repeat lost with its machine, or ended by somebody, is run again once."""


def plan_checks(lab: Lab, number: int, checks: Iterable[StressCheck]) -> None:
    """Write which repeats an experiment and the baseline are to go through, where that is not written yet."""
    for check in checks:
        if lab.ledger.stresses(number, check=check.name):
            continue
        with lab.ledger.transaction():
            for repeat in range(check.repeats):
                # The baseline beside the finalist, so that a slow drift of the machine favours neither.
                for one in (number, 0):
                    _plan(lab, one, check, repeat)
            lab.ledger.add_event("stress", told_plan(check.name, check.repeats), number)


def _plan(lab: Lab, number: int, check: StressCheck, repeat: int) -> None:
    sources = _sources(lab, number)
    gpu_hours, cost_usd = run_amounts(lab.study, check.timeout_seconds)
    lab.ledger.plan_stress(
        Stress(
            key=stress_key(lab.study.study, number, check.name, repeat),
            number=number,
            check=check.name,
            repeat=repeat,
            run=sources[repeat % len(sources)].key,
            gpu_hours=gpu_hours,
            cost_usd=cost_usd,
            planned_at=lab.now(),
        )
    )


def _sources(lab: Lab, number: int) -> list[Run]:
    """The runs whose outputs are put under stress: confirmation's, else whatever is believed."""
    believed = lab.ledger.runs(number, states=(RunState.REVIEWED,))
    fresh = [run for run in believed if run.phase is Phase.CONFIRM]
    assert believed, f"experiment {number} is confirmed, so it has runs"
    return sorted(fresh or believed, key=lambda run: run.seed)


def adopt_stresses(lab: Lab) -> None:
    """Record the jobs that were started but never written down, because the lab was killed in between."""
    for one in lab.ledger.stresses(states=(StressState.INTENDED,)) if lab.study.stress else ():
        native_id = lab.backend.find(one.key, Path(one.directory))
        if native_id is not None:
            _record_submission(lab, one, native_id)


def submit_stresses(lab: Lab) -> None:
    """Give free slots to the repeats that wait; what was intended and may have been lost is submitted again."""
    intended = lab.ledger.stresses(states=(StressState.INTENDED,))
    # The backend may have fewer slots now than when the intent was written.
    stranded = [one for one in intended if (one.slot or 0) >= lab.backend.slots]
    for one in intended:
        if one not in stranded:
            _submit(lab, one)
    for one in (*stranded, *lab.ledger.stresses(states=(StressState.PLANNED,))):
        slot = next(iter(free_slots(lab)), None)
        if slot is None:
            return
        paths = lab.paths.stress(one.number, one.check, one.repeat, one.losses + 1)
        tree = lab.paths.worktree(one.number, replica=f"stress-{one.check}-{one.repeat}")
        place = {"slot": slot, "directory": str(paths.directory), "worktree": str(tree)}
        _submit(lab, lab.ledger.update_stress(one.key, state=StressState.INTENDED, **place))


def _submit(lab: Lab, stress: Stress) -> None:
    """Start the job, or find the one that was started already."""
    paths = JobPaths(Path(stress.directory))
    native_id = lab.backend.find(stress.key, paths.directory)
    if native_id is None:
        try:
            native_id = lab.backend.submit(_spec(lab, stress, paths))
        except GitError as error:
            _end(lab, stress, StressState.FAILED, str(error))
            return
    _record_submission(lab, stress, native_id)


def _record_submission(lab: Lab, stress: Stress, native_id: str) -> None:
    with lab.ledger.transaction():
        running = lab.ledger.update_stress(stress.key, state=StressState.RUNNING, native_id=native_id)
        lab.ledger.add_event("stress", told_start(running), stress.number)


def _spec(lab: Lab, stress: Stress, paths: JobPaths) -> JobSpec:
    check, experiment, run = _check_of(lab, stress), lab.ledger.experiment(stress.number), lab.ledger.run(stress.run)
    assert experiment.commit is not None, f"experiment {stress.number} has run"
    replica = f"stress-{stress.check}-{stress.repeat}"
    tree = lab.worktrees.ensure_replica_tree(stress.number, experiment.commit, replica)
    link_inputs(lab.paths.root, tree, lab.study.inputs)
    init_submodules(tree)
    paths.output.mkdir(parents=True, exist_ok=True)
    stressed = lab.paths.job(run.number, run.seed, run.attempt)
    place = Place(tree, stressed.directory, stressed.output, run.seed, paths.output)
    launch = stress_launch(lab.study, check, {**experiment.parameters, **run.overrides}, place)
    return JobSpec(
        key=stress.key,
        command=launch.command,
        cwd=launch.cwd,
        env=launch.env,
        directory=paths.directory,
        slot=stress.slot or 0,
        timeout_seconds=check.timeout_seconds,
    )


def running_stresses(lab: Lab) -> dict[str, Path]:
    """Folders of the jobs in flight, by key."""
    return {one.key: Path(one.directory) for one in lab.ledger.stresses(states=(StressState.RUNNING,))}


def observe_stresses(lab: Lab) -> bool:
    """Read what has ended; True where something has."""
    running = {one.key: one for one in lab.ledger.stresses(states=(StressState.RUNNING,))}
    if not running:
        return False
    statuses = lab.backend.poll({key: Path(one.directory) for key, one in running.items()})
    ended = {key: status for key, status in statuses.items() if status.state in (JobState.ENDED, JobState.LOST)}
    for key, status in ended.items():
        _collect(lab, running[key], status)
        lab.on_change()
    return bool(ended)


def cancel_stresses(lab: Lab, why: str, states: Sequence[StressState] = (StressState.PLANNED, *IN_FLIGHT)) -> None:
    """End every repeat in one of these states."""
    if (running := running_stresses(lab)) and StressState.RUNNING in states:
        lab.backend.cancel(running)
        observe_stresses(lab)
    for one in lab.ledger.stresses(states=states):
        _end(lab, one, StressState.CANCELLED, why, wall_seconds=0.0)


def _collect(lab: Lab, stress: Stress, status: JobStatus) -> None:
    paths = JobPaths(Path(stress.directory))
    clean_logs(paths, lab.redactor)
    says_nothing = status.state is JobState.LOST or (status.cancelled and not status.timed_out)
    if says_nothing and stress.losses + 1 < MOST_LOSSES and not lab.is_overdue:
        lab.ledger.update_stress(stress.key, state=StressState.PLANNED, losses=stress.losses + 1)
    elif status.state is JobState.LOST:
        _end(lab, stress, StressState.FAILED, f"lost: {status.detail}", status.wall_seconds)
    elif status.timed_out:
        _end(lab, stress, StressState.FAILED, f"ended after {status.wall_seconds or 0:.0f} s", status.wall_seconds)
    elif status.cancelled:
        why = "the wall-clock budget ran out" if lab.is_overdue else "somebody ended its job"
        _end(lab, stress, StressState.CANCELLED, why, status.wall_seconds)
    elif status.exit_code != 0:
        said = last_line(paths.stderr) or last_line(paths.stdout) or "it printed nothing"
        detail = f"exit status {status.exit_code}: {said}"
        _end(lab, stress, StressState.FAILED, detail, status.wall_seconds, exit_code=status.exit_code)
    else:
        _measure(lab, stress, status, paths)


def _measure(lab: Lab, stress: Stress, status: JobStatus, paths: JobPaths) -> None:
    """The metrics of a repeat that ended well; one that is missing is a failure, never a number."""
    from nightlab.tools.metrics.reader import SourceReader

    check = _check_of(lab, stress)
    files = RunFiles(paths.stdout, paths.stderr, Path(stress.worktree), paths.output, status.started_at)
    values = {}
    for name, source in check.metrics.items():
        bound = check.limits.get(name)
        smaller = bound is not None and bound.max is not None
        try:
            reading = SourceReader().read(files, name, _own_source(source), maximize=not smaller)
        except MetricError as error:
            _end(lab, stress, StressState.FAILED, str(error), status.wall_seconds, exit_code=0)
            return
        values[name] = reading.value
    _end(lab, stress, StressState.MEASURED, "", status.wall_seconds, exit_code=0, values=values)


def _own_source(source: MetricSource) -> MetricSource:
    if source.path is None:
        return source
    return source.model_copy(update={"path": source.path.replace("{results_dir}", "{output_dir}")})


def _end(
    lab: Lab,
    stress: Stress,
    state: StressState,
    detail: str,
    wall_seconds: float | None = None,
    *,
    exit_code: int | None = None,
    values: dict[str, float] | None = None,
) -> None:
    """Write how a repeat ended and what it took; without a time what was reserved is taken as spent."""
    spent = {}
    if wall_seconds is not None:
        gpu_hours, cost_usd = run_amounts(lab.study, wall_seconds)
        spent = {"wall_seconds": wall_seconds, "gpu_hours": gpu_hours, "cost_usd": cost_usd}
    with lab.ledger.transaction():
        ended = {"state": state, "detail": detail, "exit_code": exit_code, "values": values or {}}
        now = lab.ledger.update_stress(stress.key, **ended, **spent, ended_at=lab.now())
        lab.ledger.add_event("stress", told_end(now), stress.number)


def _check_of(lab: Lab, stress: Stress) -> StressCheck:
    # A study that has begun keeps its checks (`opening.CHANGEABLE`).
    return next(check for check in lab.study.stress if check.name == stress.check)
