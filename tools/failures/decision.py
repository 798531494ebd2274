"""What follows from a failed run: a pure function of its cause and of what was tried before."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from nightlab.tools.failures.diagnosis import FailureCause
from nightlab.tools.failures.remedies import SMALLER_BATCH

__all__ = ["MAX_RETRIES", "NextStep", "next_step"]

MAX_RETRIES = 2
"""Retries of one run, changed or not, where the study says nothing else."""

# The signature asks for a change that the lab can only make by running again: another moment, another node.
_TRANSIENT = frozenset({"nccl_timeout", "ecc_xid", "illegal_access", "ray_worker_died"})

# The same change can be made again: half of a half, yet another port.
_REPEATABLE = SMALLER_BATCH | {"port_in_use"}


class NextStep(StrEnum):
    RETRY = "retry"
    """The same again, as a new attempt."""
    RETRY_CHANGED = "retry_changed"
    """Again with what `changed_retry` gives; where it gives nothing, give up."""
    REPAIR = "repair"
    """A model is asked for a fix of the code idea that failed; then again, or given up."""
    GIVE_UP = "give_up"
    """The run has failed for good."""
    ASK = "ask"
    """The run has failed, and a person must mend something before such runs can succeed."""
    STOP = "stop"
    """The study must not go on."""


def next_step(
    cause: FailureCause | None, attempt: int, changed_before: Sequence[str] = (), *, retries: int = MAX_RETRIES
) -> NextStep:
    """What to do after attempt `attempt` (from 1) of a run failed.

    `changed_before` are the signatures for which earlier attempts of this run were changed. A failure without a known
    cause is not repeated: nothing says that it would end differently.
    """
    if cause is None:
        return NextStep.GIVE_UP
    match cause.action:
        case "stop":
            return NextStep.STOP
        case "ask_user" | "fix_env":
            return NextStep.ASK
        case "retry" | "retry_changed" if attempt <= retries:
            return _retry(cause, changed_before)
        case _:
            return NextStep.GIVE_UP


def _retry(cause: FailureCause, changed_before: Sequence[str]) -> NextStep:
    if cause.action == "retry" or cause.signature in _TRANSIENT:
        return NextStep.RETRY
    if cause.signature in changed_before and cause.signature not in _REPEATABLE:
        return NextStep.GIVE_UP
    return NextStep.RETRY_CHANGED
