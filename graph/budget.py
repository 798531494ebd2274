"""The budget gate: how many runs may still be planned. It fails closed: what is planned is spent."""

from __future__ import annotations

import statistics
from datetime import datetime, timedelta

from nightlab.agents.context import Lab
from nightlab.configs.study import Budget
from nightlab.configs.units import next_clock_time
from nightlab.knowledge.records import JobState

__all__ = ["deadline_of", "experiments_left", "past_deadline", "runs_left"]

UNLIMITED = 1_000_000
# Kept free at the end of a night with a deadline: reports and result cards are written in it.
REPORT_SECONDS = 5.0


def deadline_of(budget: Budget, started_at: datetime) -> datetime | None:
    """When the study must be over: the earlier of `duration` after its first start and `until`; None without both."""
    moments = []
    if budget.duration_seconds is not None:
        moments.append(started_at + timedelta(seconds=budget.duration_seconds))
    if budget.until is not None:
        moments.append(next_clock_time(budget.until, started_at.astimezone()))
    return min(moments, default=None)


def past_deadline(lab: Lab) -> bool:
    deadline = lab.ledger.study_row().deadline
    return deadline is not None and lab.now() >= deadline


def experiments_left(lab: Lab) -> int | None:
    """New configurations the budget still allows; None without a limit. The baseline is not counted."""
    limit = lab.study.budget.experiments
    if limit is None:
        return None
    return max(0, limit - sum(1 for e in lab.ledger.experiments() if e.number > 0))


def runs_left(lab: Lab) -> int:
    """Runs that may still be planned, by count and by the time that is left at the pace seen so far."""
    planned = len(lab.ledger.runs())
    limit = UNLIMITED if lab.study.budget.runs is None else lab.study.budget.runs - planned
    return max(0, min(limit, _affordable_in_time(lab)))


def _affordable_in_time(lab: Lab) -> int:
    deadline = lab.ledger.study_row().deadline
    if deadline is None:
        return UNLIMITED
    seconds = (deadline - lab.now()).total_seconds() - REPORT_SECONDS
    if seconds <= 0:
        return 0
    walls = [job.wall_seconds for job in lab.ledger.jobs(states=(JobState.ENDED,)) if job.wall_seconds]
    if not walls:
        return UNLIMITED
    in_flight = len(lab.ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING)))
    # A slot that cannot finish one more run before the deadline gets none; jobs in flight are half done on average.
    return max(0, lab.backend.slots * int(seconds / statistics.median(walls)) - in_flight)
