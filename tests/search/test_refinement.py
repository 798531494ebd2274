"""What is chosen next: priors and how they wash out, runs in flight, repeats and the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nightlab.configs.study import Scalar
from nightlab.search.history import RankedFactor
from nightlab.search.lattice import Point
from nightlab.search.moves import is_near
from nightlab.search.refinement import Choice, Chooser, recipe, repeat_due, trust, worth_trying
from tests.search.landscapes import RANKED, Told, choose, landscape_of

BASELINE: list[Told] = [({}, 1.0), ({}, 1.1), ({}, 0.9)]


def with_chances(**chances: tuple[float, ...]) -> tuple[RankedFactor, ...]:
    return tuple(
        replace(factor, chances=chances[factor.name]) if factor.name in chances else factor for factor in RANKED
    )


def first(told: list[Told], factors: tuple[RankedFactor, ...], count: int = 1) -> list[dict[str, Scalar]]:
    landscape = landscape_of(told, factors=factors)
    return [landscape.lattice.changed(choice.point) for choice in choose(landscape, [], count, 0, alone=True)]


def test_priors_rule_the_first_choice() -> None:
    assert first(BASELINE, with_chances(ema=(0.9,))) == [{"ema": True}]
    assert first(BASELINE, with_chances(act=(0.9, 0.2))) == [{"act": "relu"}]
    assert first(BASELINE, with_chances(lr=(0.2, 0.2, 0.2, 0.2), act=(0.2, 0.2), ema=(0.2,))) in (
        [{"decay": 1.0}],
        [{"decay": 0.01}],
    )


def test_without_priors_the_nearest_value_of_an_ordered_factor_comes_first() -> None:
    landscape = landscape_of(BASELINE)
    axis = [one.factor.name for one in landscape.lattice.axes].index("lr")
    others = [place for place in range(5) if place != landscape.lattice.axes[axis].baseline]
    chosen = Chooser(landscape, [], 0, alone=True).holding([(axis, place) for place in others])
    assert chosen
    assert landscape.lattice.changed(chosen.point) == {"lr": 2.0}


def test_priors_wash_out() -> None:
    """What is advised is worse wherever it was run, with whatever: it is not chosen again."""
    advised = with_chances(act=(0.9, 0.9))
    told: list[Told] = [*BASELINE, ({"ema": True}, 0.5), ({"lr": 2.0}, 0.2), ({"lr": 2.0, "ema": True}, -0.4)]
    told += [({"act": "relu"}, 2.9), ({"act": "gelu"}, 3.0), ({"act": "relu", "lr": 2.0}, 2.1)]
    chosen = first(told, advised, 3)
    assert all("act" not in changed for changed in chosen)


def test_trust_falls_where_good_advice_turns_out_worse_and_rises_where_it_is_right() -> None:
    advised = with_chances(ema=(0.6,), act=(0.6, 0.5))
    untested = trust(landscape_of(BASELINE, factors=advised))
    assert untested == 1.0
    wrong = trust(landscape_of([*BASELINE, ({"ema": True}, 3.0)], factors=advised))
    worse = trust(landscape_of([*BASELINE, ({"ema": True}, 3.0), ({"act": "relu"}, 3.0)], factors=advised))
    mended = trust(landscape_of([*BASELINE, ({"ema": True}, 3.0), ({"act": "relu"}, -1.0)], factors=advised))
    right = trust(landscape_of([*BASELINE, ({"ema": True}, -1.0)], factors=advised))
    assert 0.0 <= worse < wrong < mended < right <= 1.0


def test_trust_needs_a_baseline() -> None:
    assert trust(landscape_of([({"ema": True}, 3.0)], factors=with_chances(ema=(0.8,)))) == 1.0


def test_the_recipe_is_what_is_recommended_together() -> None:
    lattice = landscape_of(BASELINE, factors=with_chances(ema=(0.8,), act=(0.5, 0.7), decay=(0.55, 0.4))).lattice
    point = recipe(lattice)
    assert point is not None
    assert lattice.changed(point) == {"ema": True, "act": "gelu"}


def test_one_recommendation_is_no_recipe_and_a_forbidden_one_is_left_out() -> None:
    assert recipe(landscape_of(BASELINE, factors=with_chances(ema=(0.8,))).lattice) is None
    advised = with_chances(ema=(0.8,), act=(0.7, 0.5))
    landscape = landscape_of(BASELINE, factors=advised, forbidden=({"ema": True, "act": "relu"},))
    assert recipe(landscape.lattice) is None


@pytest.mark.parametrize("alone", [True, False])
def test_choosing_several_at_once_gives_different_ones_none_of_them_in_flight(alone: bool) -> None:
    told: list[Told] = [*BASELINE, ({"lr": 2.0}, 0.3), ({"ema": True}, 0.8)]
    landscape = landscape_of(told, out=[{"lr": 2.0, "ema": True}])
    flying = [seen.point for seen in landscape.seen if seen.pending]
    assert len(flying) == 1
    points = [choice.point for choice in choose(landscape, flying, 6, 0, alone=alone)]
    assert len(set(points)) == 6
    assert not set(points) & {*landscape.known, *flying}


def test_what_is_in_flight_turns_the_choice_elsewhere() -> None:
    told: list[Told] = [*BASELINE, ({"ema": True}, 0.8), ({"act": "gelu"}, 1.4), ({"lr": 2.0}, 0.1)]
    landscape = landscape_of(told)
    ahead = choose(landscape, [], 2, 0, alone=False)
    rest = choose(landscape, [ahead[0].point], 1, 0, alone=False)
    assert [choice.point for choice in rest] == [ahead[1].point], "as when both are chosen at once"
    assert ahead[1].expected_improvement <= ahead[0].expected_improvement * 1.05, "the order counts a little, too"


def test_moves_of_given_axes_only() -> None:
    landscape = landscape_of(BASELINE)
    axis = [one.factor.name for one in landscape.lattice.axes].index("decay")
    places = range(len(landscape.lattice.axes[axis].settings))
    only = [(axis, place) for place in places if place != landscape.lattice.axes[axis].baseline]
    chooser, chosen = Chooser(landscape, [], 0, alone=True), []
    while choice := chooser.holding(only):
        chooser.take(choice)
        chosen.append(choice)
    assert [choice.moved for choice in chosen] == [(axis,)] * 2
    assert chooser.holding([]) is None and chooser.best(), "the others are left"


def test_where_many_are_in_flight_a_promising_one_is_still_found() -> None:
    told: list[Told] = [*BASELINE, ({"lr": 2.0}, 0.3), ({"ema": True}, 0.8)]
    landscape = landscape_of(told)
    flying = [choice.point for choice in choose(landscape, [], 40, 0, alone=False)]
    few = Chooser(landscape, flying, 0, alone=False).best()
    many = Chooser(landscape, flying, 0, alone=False, most=100).best()
    assert few and many and few.point == many.point


def test_of_the_neighbours_the_best_until_none_is_left() -> None:
    landscape = landscape_of(BASELINE)
    chooser, lattice = Chooser(landscape, [], 0, alone=False), landscape.lattice
    found = []
    while choice := chooser.nearest():
        chooser.take(choice)
        found.append(choice.point)
    assert len(found) == len(set(found)) > 10
    assert all(is_near(lattice, point, lattice.baseline) for point in found)
    assert not any(choice in found for choice in left_to(chooser))


def left_to(chooser: Chooser) -> list[Point]:
    """What is left."""
    left = []
    while choice := chooser.best():
        chooser.take(choice)
        left.append(choice.point)
    return left


def test_what_is_forbidden_is_never_chosen() -> None:
    landscape = landscape_of(BASELINE, forbidden=({"ema": True, "lr": 2.0}, {"act": "gelu"}))
    changed = [landscape.lattice.changed(choice.point) for choice in choose(landscape, [], 5000, 0, alone=False)]
    assert changed and all(one.get("act") != "gelu" for one in changed)
    assert all(not (one.get("ema") and one.get("lr") == 2.0) for one in changed)


def test_a_repeat_is_due_while_the_incumbent_is_less_certain_than_any_gain() -> None:
    once = landscape_of([*BASELINE, ({"lr": 2.0}, 0.2)])
    assert repeat_due(once, 0.0)
    assert not repeat_due(once, 10 * once.run_noise)
    often = landscape_of([({}, 1.0 + 0.01 * place) for place in range(8)])
    assert not repeat_due(often, 0.0)


def test_nothing_is_worth_trying_below_the_noise_and_the_least_worthwhile_gain() -> None:
    landscape = landscape_of([*BASELINE, ({"lr": 2.0}, 0.2)])
    point = landscape.lattice.baseline
    assert worth_trying(landscape, Choice(point, landscape.run_noise, ()), 0.0)
    assert not worth_trying(landscape, Choice(point, 1e-6 * landscape.run_noise, ()), 0.0)
    assert not worth_trying(landscape, Choice(point, 0.1 * landscape.run_noise, ()), 1000.0)
