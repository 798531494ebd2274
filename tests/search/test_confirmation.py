"""Confirmation: how much is held back for it, who goes on after the first look, and what every look may claim."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

from nightlab.configs.study import Factor, Study
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.belief import judge
from nightlab.search.confirmation import (
    confirmation_size,
    due_confirmations,
    finalists,
    needs_no_first_look,
    reserved_size,
)
from nightlab.search.evidence import Evidence
from nightlab.search.history import History, Trial
from nightlab.search.looks import early_look, last_look, standing
from tests.search.simulate import gaussian, make_study

STUDY = make_study({"x": 1}, {"x": Factor(levels=[2, 3, 4])}, min_effect=0.0)
SEEDS = list(range(1000, 1008))


def run(x: int, seed: int, value: float | None, phase: Phase = Phase.SCREEN, *, pending: bool = False) -> Trial:
    changed = {} if x == 1 else {"x": x}
    state: Literal["pending", "measured", "failed"] = "measured" if value is not None else "failed"
    state = "pending" if pending else state
    return Trial(x - 1, {"x": x}, dict(changed), seed, phase, state, value)


BASE = [run(1, seed, value, Phase.BASELINE) for seed, value in enumerate((3.0, 3.5, 2.5))]
FOUND = [run(2, 0, 1.0), run(3, 0, 1.5), run(4, 0, 2.0)]


def fresh(x: int, *values: float) -> list[Trial]:
    return [run(x, seed, value, Phase.CONFIRM) for seed, value in zip(SEEDS, values, strict=False)]


def evidence(*trials: Trial, study: Study = STUDY) -> Evidence:
    return Evidence.of(study, trials)


def due(seen: Evidence, number: int = 1, runs: int = 100, *, at_once: bool = False) -> list[tuple[int, int]]:
    chosen = finalists(seen, number)
    return [(cell.number, seed) for cell, seed in due_confirmations(seen, chosen, SEEDS, runs, at_once=at_once)]


@pytest.mark.parametrize(
    ("total", "size"),
    [(9, (0, 0, 0)), (10, (1, 3, 6)), (20, (1, 3, 6)), (30, (1, 5, 10)), (40, (1, 7, 14)), (51, (2, 8, 19))],
)
def test_what_is_held_back_grows_with_the_budget(total: int, size: tuple[int, int, int]) -> None:
    reserved = reserved_size(STUDY, total)
    assert (reserved.finalists, reserved.seeds, reserved.runs) == size


def test_a_budget_of_confirmation_goes_into_seeds_before_it_goes_into_finalists() -> None:
    sizes = [confirmation_size(STUDY, runs) for runs in (1, 6, 16, 18, 19, 500)]
    assert [(size.finalists, size.seeds) for size in sizes] == [(1, 3), (1, 3), (1, 8), (1, 8), (2, 8), (2, 8)]
    fixed = make_study({"x": 1}, {"x": Factor(levels=[2])}, confirm_seeds=4, confirm_seeds_most=2)
    assert confirmation_size(fixed, 500).seeds == 4, "never fewer than confirm_seeds"


def test_the_first_pairs_take_turns_and_come_before_any_further_seed() -> None:
    assert due(evidence(*BASE, *FOUND)) == [(0, 1000), (1, 1000), (1, 1001), (0, 1001), (0, 1002), (1, 1002)]
    assert due(evidence(*BASE, *FOUND), runs=5) == [(0, 1000), (1, 1000), (1, 1001), (0, 1001)], "whole pairs only"
    three = [*fresh(1, 3.0, 3.1, 2.9), *fresh(2, 2.9, 2.0)]
    waiting = run(2, 1002, None, Phase.CONFIRM, pending=True)
    assert due(evidence(*BASE, *FOUND, *three, waiting)) == [], "the first look is still to come"


def test_where_waiting_is_dear_all_pairs_start_at_once_but_the_first_look_still_decides() -> None:
    both = due(evidence(*BASE, *FOUND), number=2, at_once=True)
    assert both[:9] == due(evidence(*BASE, *FOUND), number=2), "everyone's first pairs come first"
    assert sorted(both) == [(number, seed) for number in (0, 1, 2) for seed in SEEDS]
    base, waiting = [*BASE, *FOUND, *fresh(1, 3.0, 3.4)], run(2, 1002, None, Phase.CONFIRM, pending=True)
    begun = evidence(*base, *fresh(2, 2.8, 2.4), waiting)
    assert due(begun) == [(0, 1002)]
    assert due(begun, at_once=True)[1:3] == [(1, 1003), (0, 1003)] and len(due(begun, at_once=True)) == 11
    assert due(begun, at_once=True, runs=4) == [(0, 1002), (1, 1003), (0, 1003)], "whole pairs only"
    out = evidence(*base, run(1, 1002, 2.6, Phase.CONFIRM), *fresh(2, 3.3, 3.6, 3.0))
    assert all(number != 1 for number, _ in due(out, at_once=True))


def test_waiting_for_the_first_look_is_dear_where_confirmation_is_small_and_slots_are_many() -> None:
    def is_dear(slots: int, total: int) -> bool:
        backend = STUDY.backend.model_copy(update={"slots": slots})
        return needs_no_first_look(STUDY.model_copy(update={"backend": backend}), total)

    # Two finalists: nineteen runs, nine of them before the first look.
    assert [is_dear(9, 228), is_dear(9, 227), is_dear(8, 228)] == [True, False, False]


def test_an_undecided_finalist_goes_on_a_clear_one_does_not() -> None:
    base = [*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6)]
    undecided = evidence(*base, *fresh(2, 2.8, 2.4, 2.2))
    assert standing(undecided, undecided.changes[0]) == "open"
    assert due(undecided)[:2] == [(1, 1003), (0, 1003)] and len(due(undecided)) == 10
    flying = run(2, 1003, None, Phase.CONFIRM, pending=True)
    assert due(evidence(*base, *fresh(2, 2.8, 2.4, 2.2), flying)) == due(undecided)[1:], "no waiting between pairs"
    clear = evidence(*base, *fresh(2, -8.0, -7.6, -8.4))
    assert standing(clear, clear.changes[0]) == "won"
    assert due(clear) == [(2, 1000), (2, 1001), (2, 1002)], "what it left over tries another one"


def test_who_is_out_makes_room_for_the_next_who_needs_only_his_own_runs() -> None:
    seen = evidence(*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6), *fresh(2, 3.3, 3.6, 3.0))
    assert standing(seen, seen.changes[0]) == "out"
    assert [cell.number for cell in finalists(seen, 1)] == [1, 2]
    assert due(seen) == [(2, 1000), (2, 1001), (2, 1002)]
    both = evidence(*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6), *fresh(2, 3.3, 3.6, 3.0), *fresh(3, 3.3, 3.6, 3.0))
    assert due(both) == [], "a third one could hardly claim anything"


def test_of_two_the_better_one_goes_on_first() -> None:
    base = [*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6)]
    seen = evidence(*base, *fresh(2, 2.9, 3.2, 2.4), *fresh(3, 2.6, 2.4, 2.2))
    assert due(seen, number=2, runs=2) == [(2, 1003), (0, 1003)]


def test_a_finalist_that_fails_on_a_fresh_seed_is_out() -> None:
    failed = run(2, 1002, None, Phase.CONFIRM)
    seen = evidence(*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6), *fresh(2, 1.0, 1.0), failed)
    assert standing(seen, seen.changes[0]) == "out"


def test_where_the_baseline_fails_on_a_seed_the_finalist_gets_another() -> None:
    failed = run(1, 1002, None, Phase.CONFIRM)
    seen = evidence(*BASE, *FOUND, *fresh(1, 3.0, 3.4), failed, *fresh(2, 2.6, 2.4, 2.2))
    assert due(seen)[:2] == [(1, 1003), (0, 1003)]


def test_between_the_two_looks_there_is_no_verdict_of_confirmation() -> None:
    pairs = [*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6, 3.0, 3.1), *fresh(2, 2.6, 2.4, 2.2, 2.0, 2.1)]
    between = judge(STUDY, History(trials=tuple(pairs), runs_left=2), 1)
    final = judge(STUDY, History(trials=tuple(pairs), runs_left=1), 1)
    assert between and final
    assert (between.kind, between.basis) == (VerdictKind.INCONCLUSIVE, Phase.SCREEN)
    assert (final.basis, final.effect and final.effect.runs) == (Phase.CONFIRM, 5)


def test_an_early_win_stands_on_its_pairs_whatever_comes_after() -> None:
    pairs = [*BASE, *FOUND, *fresh(1, 3.0, 3.4, 2.6), *fresh(2, -8.0, -7.6, -8.4)]
    more = [run(1, 1003, 3.0, Phase.CONFIRM), run(2, 1003, 9.0, Phase.CONFIRM)]
    for trials in (pairs, [*pairs, *more]):
        kept = judge(STUDY, History(trials=tuple(trials), runs_left=50), 1)
        assert kept and kept.kind is VerdictKind.KEEP and kept.effect and kept.effect.runs == 3


def skewed(random: np.random.Generator) -> float:
    return float(random.exponential()) - 1.0


def student(random: np.random.Generator) -> float:
    return float(random.standard_t(3)) / 3**0.5


@pytest.mark.parametrize(
    ("draw", "spread", "shared"),
    [(gaussian, 1.0, 0.0), (student, 1.0, 0.0), (skewed, 1.0, 0.0), (gaussian, 3.0, 0.0), (gaussian, 1.0, 0.7)],
)
def test_two_looks_together_keep_the_promise(
    draw: Callable[[np.random.Generator], float], spread: float, shared: float
) -> None:
    """A finalist that is no better: normal, heavy-tailed, skewed, three times as noisy, with common seeds."""
    nights, wins = 1500, 0
    for night in range(nights):
        random = np.random.default_rng(night)
        pairs = [(draw(random), spread * draw(random), draw(random)) for _ in SEEDS]
        common, own = shared**0.5, (1 - shared) ** 0.5
        base = [run(1, seed, draw(random), Phase.BASELINE) for seed in range(3)]
        ours = fresh(1, *(own * one + common * both for one, _, both in pairs))
        theirs = fresh(2, *(own * other + common * both for _, other, both in pairs))
        seen = evidence(*base, run(2, 0, -1.0), *ours, *theirs)
        looks = early_look(seen, seen.changes[0]), last_look(seen, seen.changes[0])
        wins += any(look is not None and look.low is not None and look.low > 0 for look in looks)
    assert wins / nights < 0.04


def test_a_gain_of_two_deviations_is_confirmed_in_nine_of_ten_nights_on_eight_seeds() -> None:
    nights, wins = 400, 0
    for night in range(nights):
        random = np.random.default_rng(night)
        base = [run(1, seed, random.normal(), Phase.BASELINE) for seed in range(3)]
        trials = [*base, *fresh(1, *random.normal(0, 1, 8)), run(2, 0, -2.0), *fresh(2, *random.normal(-2, 1, 8))]
        found = judge(STUDY, History(trials=tuple(trials)), 1)
        wins += found is not None and found.kind is VerdictKind.KEEP
    assert wins / nights > 0.9
