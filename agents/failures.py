"""What becomes of a failed run: its cause, whether it is tried again, and with what changed.

The decision is taken once, when the failure is recorded, and stands in the ledger: planning again after a crash finds
the same one.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from nightlab.agents.context import Lab
from nightlab.agents.history import LOST, MOST_LOSSES, TO_BE_RETRIED
from nightlab.agents.repairable import fails_by_the_code, idea_to_mend
from nightlab.configs.code import is_idea
from nightlab.configs.paths import JobPaths
from nightlab.errors import ConfigError
from nightlab.knowledge.records import Run, RunState
from nightlab.tools.failures import BatchNames, ChangedRetry, FailureCause, NextStep, changed_retry, diagnose_failure
from nightlab.tools.failures.decision import next_step

__all__ = ["fail", "has_remedy", "last_line", "retries_due", "retry", "tell_cause", "waiting", "waiting_runs"]

TAIL_BYTES = 4096
OWN_CODE = (
    "if the cause is your code: no model mends that within a study, for results before and after could not be "
    "compared; mend it, and begin a new study"
)


def tell_cause(lab: Lab, paths: JobPaths, exit_code: int | None) -> tuple[str, str]:
    """Cause (a signature's id where one fits) and detail of a job that ended badly."""
    found = diagnose_failure([paths.stderr, paths.stdout], exit_code, lab.signatures)
    said = last_line(paths.stderr) or last_line(paths.stdout)
    if found is None:
        cause = "signal" if exit_code is not None and exit_code < 0 else "exit-status"
        return cause, f"exit status {exit_code}: {said}"
    excerpt = found.excerpt or said
    return found.signature, f"{found.cause}: {excerpt} (exit status {exit_code}; remedy: {found.remedy})"


def fail(lab: Lab, run: Run, cause: str, detail: str) -> None:
    """Record a failure with what follows from it. On a full disk any configuration fails: such a run is lost."""
    if not lab.has_room:
        cause, detail = LOST, f"{detail} (while the disk was full)"
    step, change = _decide(lab, run, cause)
    if change is not None:
        detail = f"{detail} → next attempt with {change.change}"
    elif step is NextStep.GIVE_UP and _is_of_the_users_code(lab, run, cause):
        detail = f"{detail} ({OWN_CODE})"
    with lab.ledger.transaction():
        lab.ledger.update_run(
            run.key, state=RunState.FAILED, cause=cause, detail=detail, next_step=step, ended_at=lab.now()
        )
        lab.ledger.add_event("failed", f"seed {run.seed}: {cause}. {detail}", run.number)


def _is_of_the_users_code(lab: Lab, run: Run, cause: str) -> bool:
    """Whether a model could be asked to mend it, were it not the code that everything is compared with."""
    if lab.models is None or not lab.study.code.mutable or not fails_by_the_code(lab, cause):
        return False
    return not any(is_idea(name) for name in lab.ledger.experiment(run.number).changed)


def _decide(lab: Lab, run: Run, cause: str) -> tuple[NextStep, ChangedRetry | None]:
    """What to do after this failure; a changed retry for which there is no change is none."""
    if cause == LOST:
        losses = sum(r.cause == LOST for r in lab.ledger.runs(run.number) if r.seed == run.seed and r.key != run.key)
        return (NextStep.RETRY if losses + 1 < MOST_LOSSES else NextStep.GIVE_UP), None
    known = _as_cause(lab, cause)
    step = next_step(known, run.attempt, run.remedies, retries=lab.study.failures.retries)
    change = _change(lab, run, cause) if step is NextStep.RETRY_CHANGED else None
    if change is not None:
        return step, change
    if step in (NextStep.RETRY_CHANGED, NextStep.GIVE_UP):
        return (NextStep.REPAIR if idea_to_mend(lab, run, cause) else NextStep.GIVE_UP), None
    return step, None


def _as_cause(lab: Lab, cause: str) -> FailureCause | None:
    """The signature's view of a recorded cause; None for causes that are no signature (timeout, metric-absent …)."""
    try:
        signature = lab.signatures.get(cause)
    except ConfigError:
        return None
    return FailureCause(signature.id, signature.category, signature.cause, signature.remedy, signature.action)


def _change(lab: Lab, run: Run, cause: str) -> ChangedRetry | None:
    names = lab.study.failures.remedies
    declared = (
        BatchNames(names.per_device_batch, names.accumulation, names.total_batch) if names.per_device_batch else None
    )
    parameters = {**lab.ledger.experiment(run.number).parameters, **run.overrides}
    key = f"{run.key}/next"
    return changed_retry(lab.study, parameters, cause, key=key, names=declared)


def has_remedy(lab: Lab, run: Run) -> bool:
    """Whether there is a changed configuration to try again with."""
    return _change(lab, run, run.cause or "") is not None


def waiting_runs(lab: Lab, steps: Container[str | None] = (NextStep.ASK,)) -> list[Run]:
    """Failed runs with one of these next steps, each the last attempt at its seed."""
    failed = lab.ledger.runs(states=(RunState.FAILED,))
    asking = [run for run in failed if run.next_step in steps]
    return [run for run in asking if _last_attempt(lab, run) == run.attempt]


def _last_attempt(lab: Lab, run: Run) -> int:
    return max(other.attempt for other in lab.ledger.runs(run.number) if other.seed == run.seed)


def waiting(lab: Lab) -> frozenset[int]:
    """Experiments with such a run, or one that is being repaired; once the study's time is over nothing waits."""
    if lab.is_overdue:
        return frozenset()
    return frozenset(run.number for run in waiting_runs(lab, (NextStep.ASK, NextStep.REPAIR)))


def retries_due(lab: Lab) -> list[Run]:
    """Failed runs that are to be tried again and have no later attempt."""
    return waiting_runs(lab, TO_BE_RETRIED)


def retry(lab: Lab, run: Run) -> Run:
    """The next attempt, changed where the failure's remedy says so; the change is recorded with the run."""
    change = _change(lab, run, run.cause or "") if run.next_step == NextStep.RETRY_CHANGED else None
    if change is None:
        return lab.ledger.retry(run.key)
    experiment = lab.ledger.experiment(run.number)
    turned = {name: value for name, value in change.parameters.items() if experiment.parameters[name] != value}
    with lab.ledger.transaction():
        again = lab.ledger.retry(run.key, overrides=turned, extra_env=change.env, remedy=run.cause)
        lab.ledger.add_event("remedy", f"seed {run.seed}, attempt {again.attempt}: {change.change}", run.number)
    return again


def last_line(path: Path) -> str:
    """The last non-empty line of a log, shortened; '' when there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - TAIL_BYTES))
        text = log.read().decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
