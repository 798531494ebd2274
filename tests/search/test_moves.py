"""The candidates: what differs from the centre by how much, and what lies behind a cliff."""

from __future__ import annotations

import numpy as np

from nightlab.configs.study import Scalar
from nightlab.search.lattice import Point
from nightlab.search.moves import FARTHEST, FARTHEST_IN_PAIR, beyond, cliffs, is_near, joint_moves, jumps, single_moves
from tests.search.landscapes import Told, choose, landscape_of

LATTICE = landscape_of([({}, 1.0)]).lattice
SIZES = [len(axis.settings) for axis in LATTICE.axes]


def apart(one: Point, other: Point) -> list[int]:
    return [axis for axis in range(len(one)) if one[axis] != other[axis]]


def axis_of(name: str) -> int:
    return [axis.factor.name for axis in LATTICE.axes].index(name)


def test_single_moves_are_every_change_of_one_factor_once() -> None:
    moves = list(single_moves(LATTICE, LATTICE.baseline))
    assert {len(apart(move, LATTICE.baseline)) for move in moves} == {1}
    assert len(moves) == len(set(moves)) == sum(SIZES) - len(SIZES)
    places = [apart(move, LATTICE.baseline)[0] for move in moves]
    assert places == sorted(places), "in ranked order"


def test_an_ordered_factor_moves_by_no_more_than_a_few_levels_at_once() -> None:
    lr = axis_of("lr")
    corner = LATTICE.moved(LATTICE.baseline, (lr, 0), (axis_of("ema"), 1))
    reached = {move[lr] for move in single_moves(LATTICE, corner)}
    assert reached == set(range(FARTHEST + 1))


def test_joint_moves_change_two_factors_and_ordered_ones_by_little() -> None:
    moves = list(joint_moves(LATTICE, LATTICE.baseline))
    assert {len(apart(move, LATTICE.baseline)) for move in moves} == {2}
    assert len(moves) == len(set(moves))
    corner = LATTICE.moved(LATTICE.baseline, (axis_of("lr"), 0))
    far = {abs(move[axis_of("lr")] - 0) for move in joint_moves(LATTICE, corner)}
    assert max(far) == FARTHEST_IN_PAIR


def test_jumps_stay_on_the_lattice_and_are_the_same_for_the_same_draws() -> None:
    drawn = [list(jumps(LATTICE, LATTICE.baseline, np.random.default_rng(3))) for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert all(0 <= at < size for point in drawn[0] for at, size in zip(point, SIZES, strict=True))
    assert max(len(apart(point, LATTICE.baseline)) for point in drawn[0]) > 2


def test_no_jump_leads_into_a_far_corner() -> None:
    lr = axis_of("lr")
    corner = LATTICE.moved(LATTICE.baseline, (lr, 0))
    reached = {point[lr] for point in jumps(LATTICE, corner, np.random.default_rng(3))}
    assert reached == set(range(FARTHEST + 1)) and SIZES[lr] > FARTHEST + 1


def test_near_is_one_level_of_one_or_two_factors() -> None:
    base, lr, act, ema = LATTICE.baseline, axis_of("lr"), axis_of("act"), axis_of("ema")
    up, far = (lr, base[lr] + 1), (lr, base[lr] + 2)
    other, on = (act, (base[act] + 2) % 3), (ema, 1 - base[ema])
    near = [LATTICE.moved(base, *moves) for moves in ([up], [other], [up, on], [other, on])]
    away = [base, *(LATTICE.moved(base, *moves) for moves in ([far], [far, on], [up, other, on]))]
    assert all(is_near(LATTICE, point, base) for point in near)
    assert not any(is_near(LATTICE, point, base) for point in away)


def proposed(told: list[Told]) -> list[dict[str, Scalar]]:
    """Everything that may yet be tried."""
    landscape = landscape_of(told)
    return [landscape.lattice.changed(choice.point) for choice in choose(landscape, [], 5000, 0, alone=False)]


def test_beyond_a_failing_ordered_level_nothing_is_proposed() -> None:
    told: list[Told] = [({}, 1.0), ({"lr": 2.0}, None)]
    assert cliffs(landscape_of(told)) == [(axis_of("lr"), 3, 1)]
    rest = proposed(told)
    assert rest and {changed.get("lr") for changed in rest} == {None, 0.5, 0.25}


def test_a_failing_category_says_nothing_of_the_others() -> None:
    rest = proposed([({}, 1.0), ({"act": "relu"}, None)])
    assert {changed.get("act") for changed in rest} == {None, "gelu"}


def test_a_failure_of_two_changes_leaves_both_open() -> None:
    told: list[Told] = [({}, 1.0), ({"lr": 2.0, "ema": True}, None)]
    assert cliffs(landscape_of(told)) == []
    assert {"lr": 2.0} in proposed(told) and {"lr": 2.0, "ema": True} not in proposed(told)


def test_the_sound_one_beside_it_shows_which_of_two_changes_failed() -> None:
    told: list[Told] = [({}, 1.0), ({"ema": True}, 0.9), ({"lr": 4.0, "ema": True}, None)]
    assert cliffs(landscape_of(told)) == [(axis_of("lr"), 4, 1)]


def test_a_level_that_ran_well_elsewhere_is_no_cliff() -> None:
    """Out of memory with the average, not without: it is the two together."""
    told: list[Told] = [({}, 1.0), ({"lr": 2.0}, 0.5), ({"ema": True}, 0.9), ({"lr": 2.0, "ema": True}, None)]
    assert cliffs(landscape_of(told)) == []
    assert {"lr": 4.0} in proposed(told)


def test_beyond_goes_by_the_side_of_the_cliff() -> None:
    assert beyond((3, 0), (0, 2, 1)) and beyond((2, 0), (0, 2, 1)) and not beyond((1, 5), (0, 2, 1))
    assert beyond((1, 0), (0, 2, -1)) and not beyond((3, 0), (0, 2, -1))
    assert beyond((2, 0), (0, 2, 0)) and not beyond((3, 0), (0, 2, 0)) and not beyond((1, 0), (0, 2, 0))
