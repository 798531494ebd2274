"""Budgets in simulated nights: never overspent by more than the runs in flight, and confirmation keeps its time."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from nightlab.configs.budget import Budget
from nightlab.configs.prices import Prices
from nightlab.configs.study import BackendSettings, Scalar, Study
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.belief import judge_all
from nightlab.search.history import History
from nightlab.search.spending import (
    UNLIMITED,
    Usage,
    budget_lines,
    by_time,
    call_refusal,
    report_seconds,
    run_amounts,
    runs_left,
)
from tests.search.simulate import Night, make_study
from tests.search.test_engine import PARAMETERS, SPACE, flat, night, one_gain, wins

START = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)
PRICES = Prices(gpu_hour_usd=2.0, slot_hour_usd=0.5, run_usd=0.1)


def study_with(*, slots: int = 2, timeout: float | None = None, **budget: Any) -> Study:
    study = make_study(PARAMETERS, SPACE, min_effect=0.5)
    backend = BackendSettings(slots=slots, gpus=list(range(2 * slots)), timeout=timeout)
    return study.model_copy(update={"backend": backend, "budget": Budget(**budget), "prices": PRICES})


def usage(**changes: Any) -> Usage:
    return Usage(**{"now": START, "started_at": START} | changes)


@dataclass
class Spender:
    """A lab that plans whatever the gate lets it, on runs of random length."""

    study: Study
    random: np.random.Generator
    clock: float = 0.0
    ends: list[tuple[float, float]] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    gpu_hours: float = 0.0
    cost_usd: float = 0.0
    beyond_pace: float = 0.0
    """Money that the runs in flight, at each moment a run was planned, took beyond what was reserved for them."""

    def usage(self) -> Usage:
        now = START + timedelta(seconds=self.clock)
        flying = tuple(self.clock - (end - wall) for end, wall in self.ends)
        return Usage(
            now,
            runs=len(self.ends) + len(self.walls),
            gpu_hours=self.gpu_hours,
            cost_usd=self.cost_usd,
            wall_seconds=tuple(self.walls),
            in_flight=flying,
            started_at=START,
        )

    def run(self) -> None:
        while True:
            while len(self.ends) < self.study.backend.slots and runs_left(self.study, self.usage()) > 0:
                wall = 3600 * float(np.exp(self.random.normal(0, 0.5)))
                heapq.heappush(self.ends, (self.clock + wall, wall))
                pace = self.usage().run_seconds or 0.0
                over = [run_amounts(self.study, max(0.0, w - pace))[1] for _, w in self.ends]
                self.beyond_pace = max(over) * self.study.backend.slots
            if not self.ends:
                return
            self.clock, wall = heapq.heappop(self.ends)
            gpu_hours, cost_usd = run_amounts(self.study, wall)
            self.walls.append(wall)
            self.gpu_hours += gpu_hours
            self.cost_usd += cost_usd


@pytest.mark.parametrize("budget", [{"cost_usd": 100.0}, {"gpu_hours": 40.0}])
@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_budget_is_overspent_by_no_more_than_the_runs_in_flight_take_beyond_the_pace(
    slots: int, budget: dict[str, float]
) -> None:
    study = study_with(slots=slots, **budget)
    (limit,) = budget.values()
    for seed in range(30):
        lab = Spender(study, np.random.default_rng(seed))
        lab.run()
        used = lab.cost_usd if "cost_usd" in budget else lab.gpu_hours
        over = lab.beyond_pace if "cost_usd" in budget else lab.beyond_pace / PRICES.gpu_hour_usd
        assert used <= limit + over
        longest = max(run_amounts(study, wall)["cost_usd" in budget] for wall in lab.walls)
        assert used >= limit - longest * (slots + 1), "nor left lying"


def test_before_the_pace_is_known_only_what_fits_the_slots_is_planned() -> None:
    free = study_with(slots=4, cost_usd=100.0)
    assert runs_left(free, usage()) == 4
    assert runs_left(free, usage(in_flight=(5.0, 0.0))) == 2
    assert runs_left(free, usage(cost_usd=100.0)) == 0, "spent by failures"
    # An hour at most: 2 GPUs and a slot, 4.60 dollars a run.
    timed = study_with(slots=4, timeout=3600.0, cost_usd=10.0)
    assert runs_left(timed, usage()) == 2
    assert runs_left(timed, usage(in_flight=(0.0,))) == 1
    assert runs_left(timed, usage(in_flight=(0.0, 0.0))) == 0
    tight = study_with(slots=4, timeout=3600.0, cost_usd=3.0)
    assert runs_left(tight, usage()) == 1, "the first run shows the pace"
    assert runs_left(tight, usage(in_flight=(0.0,))) == 0


def test_the_tightest_budget_decides_and_what_takes_longer_is_reserved_longer() -> None:
    study = study_with(cost_usd=46.0, gpu_hours=12.0, runs=30)
    hour = usage(runs=4, wall_seconds=(3600.0,) * 2, gpu_hours=4.0, cost_usd=9.2, in_flight=(0.0, 1800.0))
    # 12 GPU-hours, 4 used, 2 × 2 reserved, 2 a run.
    assert runs_left(study, hour) == 2
    assert runs_left(study, replace(hour, in_flight=(0.0, 7200.0))) == 1
    lines = {line.resource: line for line in budget_lines(study, hour)}
    gpu = lines["gpu_hours"]
    assert (gpu.used, gpu.reserved, gpu.limit, gpu.forecast) == (4.0, 4.0, 12.0, 12.0)
    assert gpu.share == pytest.approx(8 / 12)
    cost = lines["cost_usd"]
    assert (cost.used, cost.reserved, cost.limit) == pytest.approx((9.2, 9.2, 46.0))
    assert cost.forecast == pytest.approx(27.6)
    runs = lines["runs"]
    assert (runs.used, runs.reserved, runs.limit, runs.forecast) == (2, 2, 30, 6)
    over = {line.resource: line for line in budget_lines(study, replace(hour, in_flight=(), finished_at=START))}
    assert over["gpu_hours"].forecast == over["gpu_hours"].used


def test_a_short_night_keeps_a_share_for_its_report_and_a_long_one_seconds() -> None:
    assert report_seconds(usage(deadline=START + timedelta(seconds=3))) == pytest.approx(0.3)
    assert report_seconds(usage(deadline=START + timedelta(hours=9))) == 5.0
    short = usage(deadline=START + timedelta(seconds=3), wall_seconds=(0.1,))
    assert by_time(study_with(duration_seconds=3.0), short) == 2 * 27
    slow_lab = replace(short, cycle_seconds=(0.9, 0.9, 30.0))
    assert by_time(study_with(duration_seconds=3.0), slow_lab) == 2 * 3, "the lab's own time counts"
    assert by_time(study_with(runs=3), usage()) == UNLIMITED


@dataclass
class TimedNight(Night):
    """A night that ends by the clock: what is still running then says nothing."""

    allowed: float = 20.0
    """In the unit of the durations."""

    @property
    def history(self) -> History:
        self.study = self.study.model_copy(update={"backend": BackendSettings(slots=self.slots)})
        now = Usage(
            START + timedelta(hours=self.clock),
            wall_seconds=tuple(3600 * wall for wall in self.walls),
            in_flight=(0.0,) * len(self._ends),
            started_at=START,
            deadline=START + timedelta(hours=self.allowed),
        )
        left = runs_left(self.study, now)
        return replace(super().history, runs_left=left, margin=self.slots)

    @property
    def walls(self) -> list[float]:
        # The durations are exp(N(0, 0.5)) by seed; those of runs that have ended are known.
        flying = {index for _, index in self._ends}
        ended = (trial for index, trial in enumerate(self.trials) if index not in flying)
        return [float(np.exp(self._random(trial, 1).normal(0, 0.5))) for trial in ended]

    def step(self) -> bool:
        more = super().step()
        if self.clock <= self.allowed:
            return more
        self.trials = [trial for trial in self.trials if trial.state != "pending"]
        self._ends.clear()
        return False


def any_gain(parameters: Mapping[str, Scalar]) -> float:
    """Whatever is tried first gains twenty deviations."""
    return 3.0 - 20.0 * (dict(parameters) != PARAMETERS)


@pytest.mark.parametrize(("slots", "allowed"), [(2, 14.0), (4, 12.0)])
def test_a_night_by_the_clock_ends_with_its_finalist_confirmed_on_all_seeds(slots: int, allowed: float) -> None:
    full, nights = 0, 20
    for seed in range(nights):
        study = make_study(PARAMETERS, SPACE, min_effect=0.5)
        one = TimedNight(study, any_gain, UNLIMITED, seed=seed, slots=slots, allowed=allowed)
        history = one.run()
        assert one.clock <= allowed + 8.0
        verdicts = judge_all(one.study, replace(history, runs_left=0))
        kept = [verdict for verdict in verdicts.values() if verdict.kind == VerdictKind.KEEP]
        assert all(verdict.effect and verdict.effect.runs >= 3 for verdict in kept)
        full += bool(kept)
    assert full >= 0.9 * nights


@pytest.mark.parametrize("runs", [10, 12, 14])
def test_the_smallest_nights_confirm_on_every_fresh_seed(runs: int) -> None:
    """Ten runs suffice for a gain of twenty deviations, and no win rests on fewer seeds than the study asks for."""
    for seed in range(10):
        one = night(any_gain, runs=runs, seed=seed, min_effect=3.0)
        history = one.run()
        kept = [v for v in judge_all(one.study, history).values() if v.kind == VerdictKind.KEEP]
        assert kept and all(verdict.effect and verdict.effect.runs == 3 for verdict in kept)
        fresh = {trial.seed for trial in history.trials if trial.phase == Phase.CONFIRM}
        assert len(fresh) == 3


@pytest.mark.parametrize("runs", [10, 14])
def test_false_wins_are_rare_in_the_smallest_nights(runs: int) -> None:
    nights = [night(flat, seed=seed, runs=runs) for seed in range(100)]
    assert sum(bool(wins(one.run(), one)) for one in nights) <= 5


def test_where_nothing_can_be_confirmed_in_time_something_is_tried_all_the_same() -> None:
    """A first run that took long leaves no time for a confirmation by its pace: no reason to stop at the baseline."""
    one = night(one_gain(20.0), runs=6, min_effect=3.0)
    history = one.run()
    assert {trial.phase for trial in history.trials} >= {Phase.BASELINE, Phase.SCREEN}
    assert not wins(history, one)


LLM_PRICES = Prices.model_validate({"models": {"big": {"input_million_usd": 10.0, "output_million_usd": 50.0}}})


def test_a_models_price_counts_what_came_from_its_cache_apart() -> None:
    price = LLM_PRICES.models["big"]
    assert price.cost_usd(1_000_000, 100_000) == price.cost_usd(1_000_000, 100_000, 1_000_000) == 15.0
    cheaper = price.model_copy(update={"cached_million_usd": 1.0})
    assert cheaper.cost_usd(1_000_000, 100_000, 400_000) == pytest.approx(6.0 + 0.4 + 5.0)


def test_a_call_is_made_only_where_its_worst_case_fits() -> None:
    study = study_with(runs=10, llm_tokens=1000, cost_usd=5.0).model_copy(update={"prices": LLM_PRICES})
    now = usage(llm_tokens=300, reserved_llm_tokens=200, llm_cost_usd=1.0, reserved_llm_cost_usd=1.5)
    assert call_refusal(study, now, "big", 500, 2.5) is None
    assert "501 tokens, 500 of 1,000" in (call_refusal(study, now, "big", 501, 0.1) or "")
    assert "$2.6, $2.5 of $5 are left" in (call_refusal(study, now, "big", 1, 2.6) or "")
    assert "no price" in (call_refusal(study, now, "small", 1, 0.0) or "")
    overspent = replace(now, llm_tokens=2000)
    assert ", 0 of 1,000" in (call_refusal(study, overspent, "big", 1, 0.0) or "")
    free = study_with(runs=10)
    assert call_refusal(free, now, "small", 10**9, 10**9) is None, "nothing is limited"


def test_money_of_calls_and_runs_is_one_budget() -> None:
    study = study_with(cost_usd=46.0).model_copy(update={"prices": PRICES})
    hour = usage(runs=4, wall_seconds=(3600.0,) * 2, cost_usd=9.2, in_flight=(0.0, 0.0))
    assert runs_left(study, hour) == 6
    with_calls = replace(hour, llm_cost_usd=4.6, reserved_llm_cost_usd=4.6, llm_tokens=900, reserved_llm_tokens=100)
    assert runs_left(study, with_calls) == 4
    lines = {line.resource: line for line in budget_lines(study, with_calls)}
    assert lines["cost_usd"].used == pytest.approx(13.8) and lines["cost_usd"].reserved == pytest.approx(13.8)
    assert lines["cost_usd"].forecast == pytest.approx(46.0), "what does not fit is not called"
    # Two runs have ended, four more may be planned: as many tokens a run.
    tokens = lines["llm_tokens"]
    assert (tokens.used, tokens.reserved, tokens.limit, tokens.forecast) == (900, 100, None, 2800)
    assert "llm_tokens" not in {line.resource for line in budget_lines(study, hour)}
