"""The budget gate: how many runs may still be planned. It fails closed: what is planned is spent."""

from __future__ import annotations

import statistics
from dataclasses import replace
from datetime import datetime, timedelta

from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.configs.study import Budget
from nightlab.configs.units import next_clock_time
from nightlab.knowledge.records import RunState
from nightlab.search.history import History

__all__ = ["deadline_of", "experiments_left", "history_now", "runs_left"]

UNLIMITED = 1_000_000
# Kept free at the end of a night with a deadline: reports and result cards are written in it.
REPORT_SECONDS = 5.0


def deadline_of(budget: Budget, started_at: datetime, now: datetime) -> datetime | None:
    """When the study must be over: the earlier of `duration` after its first start and the next `until` after `now`.

    None without both.
    """
    moments = []
    if budget.duration_seconds is not None:
        moments.append(started_at + timedelta(seconds=budget.duration_seconds))
    if budget.until is not None:
        moments.append(next_clock_time(budget.until, now.astimezone()))
    return min(moments, default=None)


def history_now(lab: Lab) -> History:
    """What the ledger holds, with what the budget still allows."""
    history = history_of(lab.ledger, runs_left=runs_left(lab), known=lab.configurations)
    return replace(history, experiments_left=experiments_left(lab, history))


def experiments_left(lab: Lab, history: History) -> int | None:
    """New configurations the budget still allows; None without a limit. The baseline is not counted."""
    limit = lab.study.budget.experiments
    if limit is None:
        return None
    return max(0, limit - len({trial.number for trial in history.trials if trial.number > 0}))


def runs_left(lab: Lab) -> int:
    """Runs that may still be planned, by count and by the time that is left at the pace seen so far."""
    limit = lab.study.budget.runs
    by_count = UNLIMITED if limit is None else limit - lab.ledger.spend_totals().runs
    return max(0, min(by_count, _affordable_in_time(lab)))


def _affordable_in_time(lab: Lab) -> int:
    if lab.deadline is None:
        return UNLIMITED
    seconds = (lab.deadline - lab.now()).total_seconds() - REPORT_SECONDS
    if seconds <= 0:
        return 0
    walls = lab.ledger.wall_seconds()
    if not walls:
        return UNLIMITED
    in_flight = len(lab.ledger.runs(states=(RunState.PLANNED, RunState.SUBMITTED)))
    # A slot that cannot finish one more run before the deadline gets none.
    return max(0, lab.backend.slots * int(seconds / max(statistics.median(walls), 1e-3)) - in_flight)
