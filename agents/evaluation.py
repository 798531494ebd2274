"""The evaluation agent: turns an ended job into an observation, or into a failure with a cause."""

from __future__ import annotations

from pathlib import Path

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.context import Lab
from nightlab.agents.failures import fail, tell_cause
from nightlab.agents.history import LOST
from nightlab.agents.pruning import intent_of, keep_curve, record_pruned
from nightlab.agents.run_findings import keep_findings
from nightlab.agents.scores import keep_scores
from nightlab.agents.secrecy import clean_logs
from nightlab.agents.watchdog import ended_by_watchdog
from nightlab.configs.paths import JobPaths
from nightlab.errors import MetricError
from nightlab.knowledge.records import Job, JobState, Observation, Run, RunState
from nightlab.search.spending import run_amounts
from nightlab.tools.backends.base import JobStatus
from nightlab.tools.metrics import read_metrics
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.health import Sickness, read_course, sickness
from nightlab.tools.metrics.summary import findings_in

__all__ = ["EvaluationState", "cancel_unstarted", "evaluation_agent", "observe_jobs"]

DEADLINE = ("deadline", "the wall-clock budget ran out")
REWARDED = ("grpo", "ppo", "rloo", "rl", "reinforce", "gspo", "dapo", "online")
"""How methods are called whose loss says nothing of learning."""
LANGUAGE_MODELS = ("sft", "cpt", "pt", "pretrain", "distill", "lora", "full")
"""How methods are called whose loss is in nats a token."""
STOPPED = ("stopped", "somebody ended its job")


class EvaluationState(TypedDict):
    keys: list[str]
    """Runs whose jobs have ended."""


def observe_jobs(lab: Lab) -> list[str]:
    """Ask the backend about every job in flight, record what changed, return the keys of those that ended."""
    jobs = {job.key: job for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
    statuses = lab.backend.poll({key: Path(job.directory) for key, job in jobs.items()})
    ended = [key for key, status in statuses.items() if status.state in (JobState.ENDED, JobState.LOST)]
    for key in ended:
        record_end(lab, lab.ledger.run(key), statuses[key])
    return ended


def record_end(lab: Lab, run: Run, status: JobStatus) -> None:
    """Write a job's end and its resources at once.

    Whoever cut it short, now or before a crash, the job's own record says so: such a run says nothing.
    """
    ended_at = status.ended_at or lab.now()
    if status.state is JobState.LOST or status.cancelled:
        # Nothing will be read of them.
        clean_logs(lab.paths.job(run.number, run.seed, run.attempt), lab.redactor)
    with lab.ledger.transaction():
        job = lab.ledger.update_job(
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
        paths = JobPaths(Path(job.directory))
        # A run that came to its end before it could be ended counts as any other.
        intent = intent_of(paths)
        gpu_hours, cost_usd = run_amounts(lab.study, status.wall_seconds or 0.0)
        lab.ledger.settle(run.key, wall_seconds=status.wall_seconds, gpu_hours=gpu_hours, cost_usd=cost_usd)
        if status.state is JobState.LOST:
            fail(lab, run, LOST, status.detail or "the job vanished without a result")
        elif intent and status.cancelled:
            record_pruned(lab, run, job, intent)
        elif finding := None if intent else ended_by_watchdog(paths):
            fail(lab, run, finding.cause, finding.detail)
        elif status.cancelled and not status.timed_out:
            cancel(lab, run, *(DEADLINE if lab.is_overdue else STOPPED))
        else:
            lab.ledger.update_run(run.key, state=RunState.FINISHED, ended_at=ended_at)


def cancel(lab: Lab, run: Run, cause: str, detail: str) -> None:
    """End a run that says nothing about its configuration; the search may ask for it again."""
    with lab.ledger.transaction():
        lab.ledger.update_run(run.key, state=RunState.CANCELLED, cause=cause, detail=detail, ended_at=lab.now())
        lab.ledger.add_event("cancelled", f"seed {run.seed}: {detail}", run.number)


def cancel_unstarted(lab: Lab, run: Run) -> None:
    """Take a planned run back because the wall-clock budget is over: its slot and its reservation are free again."""
    with lab.ledger.transaction():
        if lab.ledger.job(run.key) is not None:
            lab.ledger.update_job(run.key, state=JobState.LOST, ended_at=lab.now())
        lab.ledger.settle(run.key, wall_seconds=0.0, runs=0)
        cancel(lab, run, *DEADLINE)


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
    # Before anything is read or quoted: half a secret at the end of an excerpt would not be recognised.
    clean_logs(paths, lab.redactor)
    if not Path(job.worktree).is_dir():
        fail(lab, run, LOST, f"its worktree {job.worktree} was removed before its results were read")
        return
    if job.timed_out:
        fail(lab, run, "timeout", f"ended after {job.wall_seconds:.0f} s; backend.timeout allows no more")
        return
    if job.exit_code != 0:
        fail(lab, run, *tell_cause(lab, paths, job.exit_code))
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
    keep_scores(paths, readings, lab.redactor)
    if (sick := _sickness(lab, files)) is not None:
        fail(lab, run, sick.cause, f"{sick.detail} (remedy: {lab.signatures.get(sick.signature).remedy})")
        return
    metric = lab.study.objective.metric
    findings = findings_in(files, lab.study.source_of(metric))
    keep_findings(paths, findings, lab.redactor)
    observation = Observation(
        key=run.key,
        values={name: reading.value for name, reading in readings.items()},
        sources={name: reading.source for name, reading in readings.items()},
        read_at=lab.now(),
    )
    keep_curve(lab, job)
    with lab.ledger.transaction():
        lab.ledger.record_observation(observation)
        lab.ledger.update_run(run.key, state=RunState.MEASURED)
        lab.ledger.add_event("measured", f"seed {run.seed}: {metric} {readings[metric].value:.6g}", run.number)
        for finding in findings:
            lab.ledger.add_event("finding", f"seed {run.seed}: {finding}", run.number)


def _sickness(lab: Lab, files: RunFiles) -> Sickness | None:
    """Whether the run's own log says that its training came to nothing, whatever it reports at the end.

    Of a script nothing is known but that a line states a loss; where something is maximised that need not be what is
    trained for.
    """
    study = lab.study
    course = read_course(files, study.source_of(study.objective.metric))
    judged = not study.method.startswith(REWARDED) and (course.from_trainer or not study.maximize)
    return sickness(
        course,
        factor=study.watchdog.diverging_factor if judged else None,
        non_finite=study.watchdog.non_finite,
        is_language_model=study.method.startswith(LANGUAGE_MODELS),
    )


evaluation_agent = (
    StateGraph(EvaluationState, context_schema=Lab)
    .add_node("measure", _measure)
    .add_edge(START, "measure")
    .add_edge("measure", END)
    .compile()
)
