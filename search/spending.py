"""What a study has used and reserved of each budget, and how many runs it may still plan: it fails closed.

A run is reserved at the pace seen so far from the moment it is planned, and settled by what it used. So a budget is
never overspent by more than what the runs in flight take beyond that pace.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Literal

from nightlab.configs.study import Study
from nightlab.search.low_runs import whole_runs

__all__ = [
    "UNLIMITED",
    "BudgetLine",
    "Resource",
    "Usage",
    "budget_lines",
    "by_time",
    "call_refusal",
    "report_seconds",
    "run_amounts",
    "runs_left",
    "stress_refusal",
]

UNLIMITED = 1_000_000
REPORT_SECONDS = 5.0
"""Kept free at the end of a night with a deadline: reports and result cards are written in it."""
REPORT_SHARE = 0.1
"""The most of a short night that is kept free for them."""

Resource = Literal["runs", "experiments", "seconds", "gpu_hours", "llm_tokens", "cost_usd"]


@dataclass(frozen=True)
class Usage:
    """What the ledger says of a study's spending at one moment."""

    now: datetime
    runs: int = 0
    """Runs planned: ended or in flight; those taken back before their start are not among them."""
    low_runs: int = 0
    """Those at low fidelity among them, which count for a share of one each."""
    experiments: int = 0
    """Configurations tried, the baseline not counted."""
    gpu_hours: float = 0.0
    """Of the runs that have ended."""
    cost_usd: float = 0.0
    """Of the runs that have ended."""
    llm_tokens: int = 0
    """Of the calls of language models that have ended."""
    llm_cost_usd: float = 0.0
    """Of the calls that have ended."""
    reserved_llm_tokens: int = 0
    """What the calls under way may take at most."""
    reserved_llm_cost_usd: float = 0.0
    wall_seconds: tuple[float, ...] = ()
    """Of each whole run that ended well."""
    cycle_seconds: tuple[float, ...] = ()
    """From one submission to the next on the same slot, where the first ended well."""
    in_flight: tuple[float, ...] = ()
    """Seconds that each run planned or running has taken so far."""
    stress_to_come: int = 0
    """Repeats of stress checks that are not planned yet; they are no runs, but take as much time and money."""
    started_at: datetime | None = None
    deadline: datetime | None = None
    finished_at: datetime | None = None

    @cached_property
    def run_seconds(self) -> float | None:
        """The pace: how long a run takes; None before one has ended well."""
        return statistics.median(self.wall_seconds) if self.wall_seconds else None

    @cached_property
    def slot_seconds(self) -> float | None:
        """How long a slot takes for a run, with what the lab does in between."""
        if self.run_seconds is None:
            return None
        # The time of many runs goes with their mean, which a few slow ones pull up.
        cycle = statistics.median(self.cycle_seconds) if self.cycle_seconds else 0.0
        return max(self.run_seconds, statistics.fmean(self.wall_seconds), cycle, 1e-3)

    @property
    def paid_usd(self) -> float:
        """Money of everything that has ended."""
        return self.cost_usd + self.llm_cost_usd

    @property
    def elapsed_seconds(self) -> float:
        end = self.finished_at or self.now
        return max(0.0, (end - self.started_at).total_seconds()) if self.started_at else 0.0

    @property
    def allowed_seconds(self) -> float | None:
        """From the first start to the deadline; None without one."""
        return (self.deadline - self.started_at).total_seconds() if self.deadline and self.started_at else None


@dataclass(frozen=True)
class BudgetLine:
    """One resource: used by what has ended, reserved for what is in flight, allowed, and the most at the end."""

    resource: Resource
    used: float
    reserved: float
    limit: float | None
    forecast: float | None
    """What is used at the end if every run that may still be planned is; the search may need fewer. None: unknown."""

    @property
    def share(self) -> float | None:
        """Used and reserved of the limit."""
        return (self.used + self.reserved) / self.limit if self.limit else None


def run_amounts(study: Study, wall_seconds: float) -> tuple[float, float]:
    """GPU-hours and US dollars of a run that takes so long."""
    gpus = study.backend.gpus_per_job
    return gpus * wall_seconds / 3600, study.prices.cost_usd(wall_seconds, gpus)


def report_seconds(usage: Usage) -> float:
    """What of the night is kept free for its last words."""
    allowed = usage.allowed_seconds
    return REPORT_SECONDS if allowed is None else min(REPORT_SECONDS, REPORT_SHARE * allowed)


def runs_left(study: Study, usage: Usage) -> int:
    """Runs that may still be planned: what the tightest of the budgets allows; UNLIMITED without one."""
    return max(0, min(_by_count(study, usage), by_time(study, usage), *_by_amounts(study, usage)))


def counted_runs(study: Study, usage: Usage) -> int:
    """The runs planned as the budget counts them: those at low fidelity by their share, rounded up together."""
    return usage.runs - usage.low_runs + whole_runs(study, usage.low_runs)


def _by_count(study: Study, usage: Usage) -> int:
    limit = study.budget.runs
    return UNLIMITED if limit is None else limit - counted_runs(study, usage)


def by_time(study: Study, usage: Usage) -> int:
    """Runs that the slots can still finish before the deadline.

    A slot that cannot finish one more gets none. Before the pace is known only the slots bound what is planned; what
    the deadline overtakes is ended.
    """
    if usage.deadline is None:
        return UNLIMITED
    seconds = (usage.deadline - usage.now).total_seconds() - report_seconds(usage)
    if seconds <= 0:
        return 0
    if usage.slot_seconds is None:
        return UNLIMITED
    fitting = study.backend.slots * int(seconds / usage.slot_seconds + 1e-9)
    return fitting - len(usage.in_flight) - usage.stress_to_come


def _by_amounts(study: Study, usage: Usage) -> tuple[int, int]:
    budget, paid_usd = study.budget, usage.paid_usd + usage.reserved_llm_cost_usd
    return (
        _by_amount(study, usage, budget.gpu_hours, usage.gpu_hours, lambda seconds: run_amounts(study, seconds)[0]),
        _by_amount(study, usage, budget.cost_usd, paid_usd, lambda seconds: run_amounts(study, seconds)[1]),
    )


def _by_amount(
    study: Study, usage: Usage, limit: float | None, used: float, amount_of: Callable[[float], float]
) -> int:
    """Runs that the rest of `limit` pays for, those in flight at the pace or at what they took already."""
    if limit is None:
        return UNLIMITED
    # Before the pace is known a run is reckoned with what it may take at most.
    seconds = usage.run_seconds if usage.run_seconds is not None else study.backend.timeout_seconds
    free_slots = study.backend.slots - len(usage.in_flight)
    if seconds is None:
        return free_slots if used < limit else 0
    left = limit - used - sum(amount_of(max(seconds, so_far)) for so_far in usage.in_flight)
    each = amount_of(seconds)
    fitting = int(left / each + 1e-9) - usage.stress_to_come if each else UNLIMITED
    if usage.run_seconds is not None:
        return fitting
    # The first run is what shows the pace: it may start although its timeout allows it more than there is.
    first = 1 if not usage.in_flight and used < limit else 0
    return max(first, min(fitting, free_slots))


def budget_lines(study: Study, usage: Usage) -> tuple[BudgetLine, ...]:
    """One line a resource that is limited or used: runs and time always, GPU-hours and money where there are any."""
    budget, seconds = study.budget, usage.run_seconds or 0.0
    more = _more_runs(study, usage)
    flying, counted = len(usage.in_flight), counted_runs(study, usage)
    lines = [
        BudgetLine(
            "runs",
            max(0, counted - flying),
            min(flying, counted),
            budget.runs,
            None if more is None else counted + more,
        ),
        BudgetLine("experiments", usage.experiments, 0, budget.experiments, None),
        BudgetLine("seconds", usage.elapsed_seconds, 0.0, usage.allowed_seconds, _last_second(study, usage, more)),
    ]
    reserved = [run_amounts(study, max(seconds, so_far)) for so_far in usage.in_flight]
    each = run_amounts(study, seconds)
    gpu_hours, run_usd = (sum(amounts[index] for amounts in reserved) for index in (0, 1))
    calls_usd = usage.reserved_llm_cost_usd
    spent: list[tuple[Resource, float, float, float | None, float, float]] = [
        ("gpu_hours", usage.gpu_hours, gpu_hours, budget.gpu_hours, each[0], 0.0),
        ("llm_tokens", usage.llm_tokens, usage.reserved_llm_tokens, budget.llm_tokens, 0.0, usage.llm_tokens),
        ("cost_usd", usage.paid_usd, run_usd + calls_usd, budget.cost_usd, each[1], usage.llm_cost_usd),
    ]
    for resource, used, held, limit, each_run, calls in spent:
        if limit is not None or used or held:
            forecast = None
            if more is not None:
                # Calls come with runs; what does not fit is not called.
                runs_only, with_calls = used + held + more * each_run, more * calls / max(1, usage.runs - flying)
                total = runs_only + with_calls
                forecast = total if limit is None else max(runs_only, min(total, limit))
            lines.append(BudgetLine(resource, used, held, limit, forecast))
    return tuple(lines)


def call_refusal(study: Study, usage: Usage, model: str, tokens: int, cost_usd: float) -> str | None:
    """Why a call that takes so much at most does not fit the budget, with the mend; None where it does.

    `usage` counts the calls under way at what they may take at most. It fails closed: a model without a price is not
    called where money is limited.
    """
    budget = study.budget
    left = None if budget.llm_tokens is None else budget.llm_tokens - usage.llm_tokens - usage.reserved_llm_tokens
    if left is not None and tokens > left:
        return (
            f"a call of {model} may take {tokens:,} tokens, {max(0, left):,} of {budget.llm_tokens:,} are left "
            "(raise budget.llm_tokens)"
        )
    if budget.cost_usd is None:
        return None
    if model not in study.prices.models:
        return f"a call of {model} has no price, and money is limited (add it under prices.models)"
    left_usd = budget.cost_usd - usage.paid_usd - usage.reserved_llm_cost_usd - _flying_usd(study, usage)
    if cost_usd > left_usd + 1e-9:
        return (
            f"a call of {model} may cost ${cost_usd:.4g}, ${max(0.0, left_usd):.4g} of ${budget.cost_usd:.4g} are left "
            "(raise budget.cost_usd)"
        )
    return None


def stress_refusal(study: Study, usage: Usage) -> str | None:
    """Why the stress checks that were just planned, and are counted in `usage`, do not fit; None where they do."""
    for limit, used, name in (
        (study.budget.gpu_hours, usage.gpu_hours, "gpu_hours"),
        (study.budget.cost_usd, usage.paid_usd + usage.reserved_llm_cost_usd, "cost_usd"),
    ):
        if limit is not None and used > limit + 1e-9:
            return f"budget.{name} has no room for it: {used:.4g} of {limit:.4g} with it (raise it, or lower timeout)"
    return None


def _flying_usd(study: Study, usage: Usage) -> float:
    """What the runs in flight are reckoned with: the pace, before it is known their longest."""
    seconds = usage.run_seconds if usage.run_seconds is not None else study.backend.timeout_seconds or 0.0
    return sum(run_amounts(study, max(seconds, so_far))[1] for so_far in usage.in_flight)


def _more_runs(study: Study, usage: Usage) -> int | None:
    """Runs that are still to be planned at most; None while nobody can say."""
    if usage.finished_at is not None:
        return 0
    left = runs_left(study, usage)
    return None if left >= UNLIMITED // 2 or usage.run_seconds is None else left


def _last_second(study: Study, usage: Usage, more: int | None) -> float | None:
    if more is None or usage.slot_seconds is None:
        return None
    pace = usage.slot_seconds / study.backend.slots
    still = more * pace + sum(max(0.0, usage.slot_seconds - so_far) for so_far in usage.in_flight) / study.backend.slots
    return usage.elapsed_seconds + (0.0 if usage.finished_at else still)
