"""What a night will cost, judged by the dry run: against the budget before anything is spent."""

from __future__ import annotations

import math
from datetime import timedelta

import humanize

from nightlab.agents.preflight import Site, fault_at, fewest_runs
from nightlab.configs.study import Study
from nightlab.configs.units import next_clock_time
from nightlab.errors import Fault
from nightlab.knowledge.records import utc_now
from nightlab.search.spending import UNLIMITED, Usage, run_amounts, runs_left

__all__ = ["pace_faults", "plan_line", "time_note"]


def _seconds(study: Study) -> float:
    """What the budget's wall clock leaves from now on."""
    now = utc_now()
    limits = [] if study.budget.duration_seconds is None else [study.budget.duration_seconds]
    if study.budget.until is not None:
        limits.append((next_clock_time(study.budget.until, now.astimezone()) - now).total_seconds())
    return min(limits, default=math.inf)


def pace_faults(site: Site, run_seconds: float) -> list[Fault]:
    """Budgets that cannot cover the smallest plan, if a run takes as long as the dry run did."""
    return [*_time_faults(site, run_seconds), *_amount_faults(site, run_seconds)]


def _time_faults(site: Site, run_seconds: float) -> list[Fault]:
    """A wall clock that would not even let the baseline end."""
    study, slots = site.study, site.study.backend.slots
    rounds = math.ceil(study.search.baseline_replicates / slots)
    if rounds * run_seconds <= _seconds(study):
        return []
    key = "budget.until" if study.budget.duration_seconds is None else "budget.duration"
    runs = f"{study.search.baseline_replicates} runs of the baseline on {slots} slot{'s' * (slots > 1)}"
    message = f"leaves no time for {runs}: the dry run alone took {run_seconds:.1f} s"
    return [fault_at(site, key, message, "allow more time, or make the runs shorter")]


def _amount_faults(site: Site, run_seconds: float) -> list[Fault]:
    budget, need = site.study.budget, fewest_runs(site.study)
    gpu_hours, cost_usd = (need * amount for amount in run_amounts(site.study, run_seconds))
    faults = []
    for key, limit, least, unit in (
        ("budget.gpu_hours", budget.gpu_hours, gpu_hours, "GPU-hours"),
        ("budget.cost_usd", budget.cost_usd, cost_usd, "US dollars"),
    ):
        if limit is not None and least > limit:
            taken = f"{least:.3g} {unit}, {run_seconds:.1f} s each"
            message = f"cannot cover a plan: the {need} runs of the smallest take {taken}"
            faults.append(fault_at(site, key, message, "raise it, or make the runs shorter", limit))
    return faults


def time_note(site: Site, run_seconds: float) -> str:
    """A word where the time is short for a whole night; empty where it is not."""
    runs = _seconds(site.study) / max(run_seconds, 1e-3) * site.study.backend.slots
    need = fewest_runs(site.study)
    if runs >= need:
        return ""
    return (
        f"the budget's time covers about {int(runs)} runs as long as the dry run; a confirmed win takes {need} or more"
    )


def plan_line(site: Site, run_seconds: float) -> str:
    """What the plan will cost at the dry run's pace, from the smallest plan to the most the budget allows."""
    study, least = site.study, fewest_runs(site.study)
    most = max(least, _most_runs(study, run_seconds))
    slots, budget = study.backend.slots, study.budget
    shortest, longest = (_span(math.ceil(runs / slots) * run_seconds) for runs in (least, most))
    parts = [_range(f"{least:,}", f"{most:,}", " runs", f"{budget.runs:,}" if budget.runs else None)]
    allowed = _seconds(study)
    parts.append(_range(shortest, longest, "", _span(allowed) if math.isfinite(allowed) else None))
    gpu_hours, usd = run_amounts(study, run_seconds)
    if gpu_hours:
        limit = None if budget.gpu_hours is None else f"{budget.gpu_hours:g}"
        parts.append(_range(f"{least * gpu_hours:.3g}", f"{most * gpu_hours:.3g}", " GPU-hours", limit))
    if usd:
        limit = None if budget.cost_usd is None else f"{budget.cost_usd:,.2f}"
        parts.append(_range(f"{least * usd:,.2f}", f"{most * usd:,.2f}", " US dollars", limit))
    pace = f"if every run takes the dry run's {run_seconds:.1f} s"
    if study.launcher.dry_run:
        pace += ", which launcher.dry_run made short: expect more"
    return f"{', '.join(parts)}; {pace}"


def _most_runs(study: Study, run_seconds: float) -> int:
    now, allowed = utc_now(), _seconds(study)
    deadline = now + timedelta(seconds=allowed) if math.isfinite(allowed) else None
    most = runs_left(study, Usage(now, wall_seconds=(run_seconds,), started_at=now, deadline=deadline))
    search, experiments = study.search, study.budget.experiments
    if experiments is not None:
        confirmation = max(search.confirm_seeds, search.confirm_seeds_most) * (search.confirm_candidates + 1)
        most = min(most, search.baseline_replicates + experiments * (1 + search.replicate_ties) + confirmation)
    return min(most, UNLIMITED)


def _range(low: str, high: str, unit: str, limit: str | None) -> str:
    text = f"{low}{unit}" if low == high else f"{low} to {high}{unit}"
    return f"{text} (budget {limit})" if limit else text


def _span(seconds: float) -> str:
    return humanize.precisedelta(timedelta(seconds=max(1, round(seconds))), minimum_unit="seconds", format="%d")
