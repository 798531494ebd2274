"""The evaluation agent: turns an ended job into an observation, or into a failure with a cause."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.context import Lab
from nightlab.configs.paths import JobPaths
from nightlab.errors import MetricError
from nightlab.knowledge.records import Job, JobState, Observation, Run, RunState
from nightlab.tools.backends.base import JobStatus
from nightlab.tools.metrics import read_metrics
from nightlab.tools.metrics.base import RunFiles

__all__ = ["EvaluationState", "cancel", "evaluation_agent", "last_line", "observe_jobs"]

TAIL_BYTES = 4096


class EvaluationState(TypedDict):
    keys: list[str]
    """Runs whose jobs have ended."""


def observe_jobs(lab: Lab, *, cancelled: Collection[str] = ()) -> list[str]:
    """Ask the backend about every job in flight, record what changed, return the keys of those that ended.

    `cancelled` are those the lab has just cut short at the deadline: their runs say nothing.
    """
    jobs = {job.key: job for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
    statuses = lab.backend.poll({key: Path(job.directory) for key, job in jobs.items()})
    ended = [key for key, status in statuses.items() if status.state in (JobState.ENDED, JobState.LOST)]
    for key in ended:
        record_end(lab, lab.ledger.run(key), statuses[key], cut_short=key in cancelled)
    return ended


def record_end(lab: Lab, run: Run, status: JobStatus, *, cut_short: bool) -> None:
    """Write a job's end and its resources at once; a job that vanished with its machine is a failed run."""
    ended_at = status.ended_at or lab.now()
    with lab.ledger.transaction():
        lab.ledger.update_job(
            run.key,
            state=status.state,
            started_at=status.started_at,
            ended_at=ended_at,
            exit_code=status.exit_code,
            timed_out=status.timed_out,
            wall_seconds=status.wall_seconds,
            cpu_seconds=status.cpu_seconds,
            peak_memory_bytes=status.peak_memory_bytes,
        )
        lab.ledger.settle(run.key, wall_seconds=status.wall_seconds or 0.0, gpu_hours=_gpu_hours(lab, status))
        if cut_short:
            cancel(lab, run)
        elif status.state is JobState.LOST:
            fail(
                lab, run, "lost", status.detail or "the job vanished without a result: its runner or machine was killed"
            )
        else:
            lab.ledger.update_run(run.key, state=RunState.FINISHED, ended_at=ended_at)


def _gpu_hours(lab: Lab, status: JobStatus) -> float:
    gpus = len(lab.study.backend.gpus) // lab.backend.slots
    return gpus * (status.wall_seconds or 0.0) / 3600


def fail(lab: Lab, run: Run, cause: str, detail: str) -> None:
    with lab.ledger.transaction():
        lab.ledger.update_run(run.key, state=RunState.FAILED, cause=cause, detail=detail, ended_at=lab.now())
        lab.ledger.add_event("failed", f"seed {run.seed}: {cause}. {detail}", run.number)


def cancel(lab: Lab, run: Run) -> None:
    """End a run that the wall-clock budget no longer covers; it says nothing about its configuration."""
    detail = "the wall-clock budget ran out"
    with lab.ledger.transaction():
        lab.ledger.update_run(run.key, state=RunState.CANCELLED, cause="deadline", detail=detail, ended_at=lab.now())
        lab.ledger.add_event("cancelled", f"seed {run.seed}: {detail}", run.number)


def _measure(state: EvaluationState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    for key in state["keys"]:
        run = lab.ledger.run(key)
        if run.state is RunState.FINISHED:
            measure(lab, run, lab.ledger.job(key))
            lab.on_change()
    return {}


def measure(lab: Lab, run: Run, job: Job | None) -> None:
    """Read the metrics of an ended job; a bad exit or an unreadable metric is a failure, never a number."""
    assert job is not None, f"run {run.key} is finished without a job"
    paths = JobPaths(Path(job.directory))
    if job.timed_out:
        fail(lab, run, "timeout", f"ended after {job.wall_seconds:.0f} s; backend.timeout allows no more")
        return
    if job.exit_code != 0:
        cause = "signal" if job.exit_code is not None and job.exit_code < 0 else "exit-status"
        fail(lab, run, cause, f"exit status {job.exit_code}: {last_line(paths.stderr) or last_line(paths.stdout)}")
        return
    files = RunFiles(
        stdout=paths.stdout,
        stderr=paths.stderr,
        worktree=Path(job.worktree),
        output=paths.output,
        started_at=job.started_at,
    )
    try:
        readings = read_metrics(lab.study, files)
    except MetricError as error:
        fail(lab, run, error.cause, str(error))
        return
    metric = lab.study.objective.metric
    observation = Observation(
        key=run.key,
        values={name: reading.value for name, reading in readings.items()},
        sources={name: reading.source for name, reading in readings.items()},
        read_at=lab.now(),
    )
    with lab.ledger.transaction():
        lab.ledger.record_observation(observation)
        lab.ledger.update_run(run.key, state=RunState.MEASURED)
        lab.ledger.add_event("measured", f"seed {run.seed}: {metric} {readings[metric].value:.6g}", run.number)


def last_line(path: Path) -> str:
    """The last non-empty line of a log, shortened; '' when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - TAIL_BYTES))
        text = log.read().decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


evaluation_agent = (
    StateGraph(EvaluationState, context_schema=Lab)
    .add_node("measure", _measure)
    .add_edge(START, "measure")
    .add_edge("measure", END)
    .compile()
)
