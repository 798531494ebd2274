"""The budget gate: how many runs may still be planned. It fails closed: what is planned is spent."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from nightlab.agents.context import Lab
from nightlab.agents.failures import waiting
from nightlab.agents.history import history_of
from nightlab.agents.spending import usage_of
from nightlab.configs.budget import Budget
from nightlab.configs.units import next_clock_time
from nightlab.knowledge.records import Run
from nightlab.search import spending
from nightlab.search.history import History
from nightlab.search.spending import Usage
from nightlab.worktrees.names import slug

__all__ = [
    "answered_spend",
    "deadline_of",
    "experiments_left",
    "history_now",
    "passed_limits",
    "reserve",
    "run_seconds",
    "runs_left",
    "spend_id",
    "spending_refusal",
]


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
    usage = _usage(lab)
    left = spending.runs_left(lab.study, usage)
    history = history_of(lab.ledger, runs_left=left, known=lab.configurations, waiting=waiting(lab))
    # Where the clock is what limits, one more round is left to confirmation: a pace is not a promise.
    is_timed = left and left == spending.by_time(lab.study, usage)
    return replace(
        history,
        experiments_left=experiments_left(lab, history),
        margin=lab.study.backend.slots if is_timed else 0,
    )


def experiments_left(lab: Lab, history: History) -> int | None:
    """New configurations the budget still allows; None without a limit. The baseline is not counted."""
    limit = lab.study.budget.experiments
    if limit is None:
        return None
    return max(0, limit - len({trial.number for trial in history.trials if trial.number > 0}))


def runs_left(lab: Lab) -> int:
    """Runs that may still be planned: what the tightest of the budgets allows at the pace seen so far."""
    return spending.runs_left(lab.study, _usage(lab))


def run_seconds(lab: Lab) -> float | None:
    """How long a run takes, by those that have ended well; None before one has."""
    return _usage(lab).run_seconds


def reserve(lab: Lab, run: Run) -> None:
    """Write into the ledger what a run that was just planned will take of GPU-hours and money."""
    pace = run_seconds(lab)
    seconds = pace if pace is not None else lab.study.backend.timeout_seconds or 0.0
    gpu_hours, cost_usd = spending.run_amounts(lab.study, seconds)
    lab.ledger.reserve(run.key, gpu_hours=gpu_hours, cost_usd=cost_usd)


def spend_id(what: str, limit: float) -> str:
    """Id of the question whether more than `limit` of `what` may be spent; a higher limit is a new question."""
    return f"spend-{slug(what)}-{limit:g}"


def answered_spend(lab: Lab, what: str, limit: float) -> bool | None:
    """Whether going beyond `limit` was allowed; None before there is an answer."""
    asked = lab.ledger.question(spend_id(what, limit))
    return None if asked is None or asked.answer is None else asked.answer == "yes"


def passed_limits(lab: Lab) -> list[tuple[str, float, float]]:
    """The soft limits of the budget that are passed: what, how much of it was used, the limit."""
    usage, budget = usage_of(lab.ledger, lab.now()), lab.study.budget
    soft = (
        ("gpu-hours", usage.gpu_hours, budget.ask_above_gpu_hours),
        ("usd", usage.paid_usd, budget.ask_above_cost_usd),
    )
    return [(what, used, limit) for what, used, limit in soft if limit is not None and used >= limit]


def spending_refusal(lab: Lab) -> str | None:
    """Why nothing more may be spent, where a soft limit is passed and the answer was no."""
    for what, used, limit in passed_limits(lab):
        if answered_spend(lab, what, limit) is False:
            return f"{used:.4g} of {limit:g} {what} are used, and more was not allowed"
    return None


def _usage(lab: Lab) -> Usage:
    # The lab's own deadline: a test or a caller may have given it another than the ledger's.
    return replace(usage_of(lab.ledger, lab.now()), deadline=lab.deadline)
