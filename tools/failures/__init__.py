"""What is made of a failed run: its cause, what a retry changes, what comes next, and when to stop trying."""

from __future__ import annotations

from nightlab.tools.failures.breaker import Outcome, Trip, tripped
from nightlab.tools.failures.decision import MAX_RETRIES, NextStep, next_step
from nightlab.tools.failures.diagnosis import FailureCause, diagnose_failure
from nightlab.tools.failures.remedies import BatchNames, ChangedRetry, batch_names, changed_retry

__all__ = [
    "MAX_RETRIES",
    "BatchNames",
    "ChangedRetry",
    "FailureCause",
    "NextStep",
    "Outcome",
    "Trip",
    "batch_names",
    "changed_retry",
    "diagnose_failure",
    "next_step",
    "tripped",
]
