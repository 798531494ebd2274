from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.arrays import confounded_pairs, has_strength_two, mixed_array, two_level_array
from nightlab.search.confirmation import exploration_left, lendable, lent_size
from nightlab.search.engine import propose
from nightlab.search.history import History, Trial
from nightlab.search.orthogonal import array_plan, main_effects
from tests.search.simulate import Night, make_study

WIDTHS = [(4, k) for k in (2, 3)] + [(8, k) for k in range(3, 8)] + [(12, k) for k in range(8, 12)]
WIDTHS += [(16, k) for k in range(12, 16)]


@pytest.mark.parametrize(("size", "factors"), WIDTHS)
def test_every_array_used_has_strength_two_and_starts_at_the_baseline(size: int, factors: int) -> None:
    rows = two_level_array(size, factors)
    design = np.array(rows)
    assert design.shape == (size, factors)
    assert has_strength_two(design)
    assert not design[0].any()
    signs = 2 * design - 1
    assert (signs.T @ signs == size * np.eye(factors)).all()


def test_strength_two_is_refused_where_it_is_missing() -> None:
    design = np.array(two_level_array(8, 5))
    design[3, 2] = 1 - design[3, 2]
    assert not has_strength_two(design)
    assert not has_strength_two(np.array([[0, 0], [1, 1], [0, 0], [1, 1]]))


@pytest.mark.parametrize("factors", [3, 4])
def test_few_columns_of_l8_confound_no_main_effect(factors: int) -> None:
    rows = two_level_array(8, factors)
    assert all(confounded_pairs(rows, column) == [] for column in range(factors))


def test_confounding_of_the_full_arrays_is_named() -> None:
    assert confounded_pairs(two_level_array(4, 3), 0) == [(1, 2)]
    assert all(len(confounded_pairs(two_level_array(8, 7), column)) == 3 for column in range(7))
    every_pair = len(list(combinations(range(10), 2)))
    assert len(confounded_pairs(two_level_array(12, 11), 0)) == every_pair


def additive(gains: dict[str, float], together: dict[tuple[str, str], float] | None = None) -> Night:
    """A night over switches that each change the loss by −gain; no noise."""
    names = list(gains)
    parameters: dict[str, Scalar] = dict.fromkeys(names, False)
    study = make_study(parameters, {name: Factor(levels=[True]) for name in names}, min_effect=0.05)

    def response(parameters: object) -> float:
        assert isinstance(parameters, dict)
        loss = 10.0 - sum(gain for name, gain in gains.items() if parameters[name])
        return loss - sum(extra for (a, b), extra in (together or {}).items() if parameters[a] and parameters[b])

    return Night(study, response, runs=60, noise=1e-3)


def of_factors(factors: int, slots: int) -> Night:
    night = additive({f"f{index}": 0.5 + index / 10 for index in range(factors)})
    search = night.study.search.model_copy(update={"combine_factors": 15})
    night.study, night.runs, night.slots = night.study.model_copy(update={"search": search}), 120, slots
    return night


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize(("factors", "names"), [(5, {"L8"}), (9, {"L8", "L12"})])
def test_winners_are_combined_without_running_a_known_row_again(factors: int, names: set[str], slots: int) -> None:
    """With any number of slots, though the others refine while the last runs of screening end."""
    night = of_factors(factors, slots)
    history = night.run()
    effects = main_effects(night.study, history)
    assert {effect.array for effect in effects} <= names
    assert len(effects) >= 4
    for effect in effects:
        assert effect.effect.delta == pytest.approx(0.5 + int(effect.factor[1:]) / 10, abs=0.01)
    assert set(Counter((trial.number, trial.seed) for trial in history.trials).values()) == {1}
    best = [trial for trial in history.trials if len(trial.changed) == factors]
    assert Phase.CONFIRM in {trial.phase for trial in best}, "the best of all is found and confirmed"


def test_where_single_moves_showed_every_combination_none_is_run_again() -> None:
    history = of_factors(3, 2).run()
    assert all(trial.phase != Phase.COMBINE for trial in history.trials)
    assert len({trial.number for trial in history.trials}) == 8


@pytest.mark.parametrize("wobble", [0, 3])
def test_the_array_stays_the_same_while_its_rows_come_in(wobble: int) -> None:
    """Also where a budget in hours makes the number of runs left a moving estimate."""
    night = additive({f"f{index}": 0.4 + index / 10 for index in range(6)})
    night.noise, night.slots = 0.1, 3
    random, seen = np.random.default_rng(0), []
    while night.step():
        left = night.history.runs_left - int(random.integers(0, wobble + 1))
        plan = array_plan(night.study, replace(night.history, runs_left=max(0, left)))
        if any(trial.phase == Phase.COMBINE for trial in night.trials):
            seen.append(plan)
    assert len(seen) > 5 and seen[0] is not None
    assert all(plan == seen[0] for plan in seen)


def test_an_interaction_is_seen_and_the_better_subset_confirmed() -> None:
    night = additive({"a": 1.0, "b": 0.9, "c": 0.2}, {("a", "b"): -1.8})
    history = night.run()
    confirmed = [frozenset(trial.changed) for trial in history.trials if trial.phase == Phase.CONFIRM and trial.changed]
    assert confirmed[0] == {"a", "c"}


def test_a_single_winner_leaves_nothing_to_combine() -> None:
    night = additive({"a": 1.0, "b": 0.0, "c": -1.0})
    history = night.run()
    assert all(trial.phase != Phase.COMBINE for trial in history.trials)
    assert main_effects(night.study, history) == []


def test_combination_can_be_switched_off_and_fits_a_small_budget() -> None:
    gains = {f"f{index}": 1.0 for index in range(6)}
    off = additive(gains)
    off.study = off.study.model_copy(update={"search": off.study.search.model_copy(update={"combine": False})})
    assert all(trial.phase != Phase.COMBINE for trial in off.run().trials)
    small = additive(gains)
    small.runs = 24
    history = small.run()
    assert len(history.trials) <= 24
    assert all(trial.phase != Phase.COMBINE for trial in history.trials), "joint moves find more in so few runs"


def test_rows_have_a_stable_name() -> None:
    night = of_factors(5, 2)
    names: dict[str, set[str]] = {}
    while True:
        for proposal in propose(night.study, night.history, 0):
            if proposal.phase == Phase.COMBINE:
                names.setdefault(str(sorted(proposal.changed.items())), set()).add(proposal.variable)
        if not night.step():
            break
    assert all(len(variables) == 1 for variables in names.values())
    assert len(set.union(*names.values())) == len(names) > 3
    assert all(re.fullmatch(r"combine-(best|[1-7])", name) for variables in names.values() for name in variables)


@pytest.mark.parametrize(
    ("twos", "threes", "size"),
    [(0, 2, 9), (0, 4, 9), (2, 2, 9), (1, 7, 18), (4, 4, 18), (0, 6, 18), (0, 8, 27), (0, 13, 27), (11, 4, 36)],
)
def test_mixed_arrays_start_at_the_baseline_and_mix_no_main_effects(twos: int, threes: int, size: int) -> None:
    rows = mixed_array(twos, threes)
    assert rows is not None
    design = np.array(rows)
    assert design.shape == (size, twos + threes)
    assert (design.max(axis=0) == [1] * twos + [2] * threes).all()
    assert not design[0].any()
    held = [(column[:, None] == np.arange(1, column.max() + 1)).astype(float) for column in design.T]
    centred = [one - one.mean(axis=0) for one in held]
    assert all(np.abs(one.T @ other).max() < 1e-9 for one, other in combinations(centred, 2))
    assert has_strength_two(design[:, twos:])


def test_there_is_no_mixed_array_for_too_many_factors() -> None:
    assert mixed_array(12, 12) is None
    assert mixed_array(0, 14) is None


def test_confounding_of_three_level_arrays_is_named() -> None:
    """Two columns of L9 show every combination; of three, each is mixed up with the interaction of the others."""
    two, three = mixed_array(0, 2), mixed_array(0, 3)
    assert two and three
    assert [confounded_pairs(two, column) for column in range(2)] == [[], []]
    assert [confounded_pairs(three, column) for column in range(3)] == [[(1, 2)], [(0, 2)], [(0, 1)]]


GAINS = {0: 0.0, 1: 1.0, 2: 1.1}


def three_levels(runs: int) -> Night:
    """Four factors, each with two values that are better than the baseline's and about as good as each other."""
    names = [f"f{index}" for index in range(4)]
    study = make_study(dict.fromkeys(names, "v0"), {n: Factor(levels=["v1", "v2"]) for n in names}, min_effect=0.05)

    def response(parameters: object) -> float:
        assert isinstance(parameters, dict)
        return 10.0 - sum((1 + 0.1 * index) * GAINS[int(parameters[name][1])] for index, name in enumerate(names))

    return Night(study, response, runs=runs, noise=0.05)


def test_winners_with_a_second_good_level_are_combined_on_three() -> None:
    night = three_levels(160)
    history = night.run()
    effects = main_effects(night.study, history)
    assert {one.array for one in effects} == {"L9"}
    assert len(effects) > len({one.factor for one in effects}) >= 3
    for one in effects:
        assert one.level in ("v1", "v2")
        gain = (1 + 0.1 * int(one.factor[1:])) * GAINS[int(str(one.level)[1:])]
        # By the noise that there is, not by what was estimated of it: 4 deviations of an effect of nine runs.
        assert one.effect.delta == pytest.approx(gain, abs=4 * night.noise * (2 / 3) ** 0.5)
    assert set(Counter((trial.number, trial.seed) for trial in history.trials).values()) == {1}
    assert Phase.CONFIRM in {trial.phase for trial in history.trials if len(trial.changed) == 4}


def test_a_small_budget_is_combined_on_two_levels_or_not_at_all() -> None:
    night = three_levels(50)
    assert {one.array for one in main_effects(night.study, night.run())} <= {"L4", "L8"}


def after(*ran: str, runs_left: int, combined: tuple[str, ...] = (), later: int = 0) -> tuple[Night, History]:
    """Four factors of which these were run together; then the `combined`, and so many repeats of the first."""
    night = additive({f"f{index}": 0.5 + index / 10 for index in range(4)})
    planned = [("", Phase.BASELINE)] * 3 + [(one, Phase.SCREEN) for one in ran]
    planned += [(one, Phase.COMBINE) for one in combined] + [(ran[0], Phase.REFINE)] * later
    numbers, seeds = {"": 0}, Counter[str]()
    for one, phase in planned:
        changed: dict[str, Scalar] = {f"f{index}": True for index in one}
        number, seed = numbers.setdefault(one, len(numbers)), seeds[one]
        value = 10.0 - sum(0.5 + int(index) / 10 for index in one) + 1e-3 * seed
        parameters = {**night.study.parameters, **changed}
        night.trials.append(Trial(number, parameters, changed, seed, phase, "measured", value))
        seeds[one] += 1
    return night, replace(night.history, runs_left=runs_left)


def test_runs_kept_for_slots_that_wait_make_no_array_smaller() -> None:
    """They explore, too: what one run less crosses is the third of the runs that an array may take."""
    night, history = after("0123", "0", "1", "2", "3", *["0123"] * 11, runs_left=37)
    assert lent_size(night.study, 56) == 1
    assert lendable(night.study, history) // 3 == 6 > exploration_left(night.study, history) // 3
    plan = array_plan(night.study, history)
    assert plan is not None and plan.name == "L8" and len(plan.columns) == 4


def test_what_the_rest_of_the_night_runs_makes_no_array_larger() -> None:
    """Every row of the small array is one of the large one, too: only the budget tells which was begun."""
    ran = ["0123"] * 16
    night, before = after(*ran, runs_left=36)
    plan = array_plan(night.study, before)
    assert plan is not None and (plan.name, len(plan.columns)) == ("L4", 3)
    rows = tuple("".join(name[1:] for name in plan.changed(row)) for row in (1, 2, 3))
    _, ended = after(*ran, runs_left=0, combined=rows, later=33)
    assert array_plan(night.study, ended) == plan
    assert {one.array for one in main_effects(night.study, ended)} == {"L4"}
