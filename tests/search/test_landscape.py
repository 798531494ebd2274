"""What the runs say of the whole lattice: who leads, who is as good with less, and who is known best."""

from __future__ import annotations

import pytest

from nightlab.configs.study import Scalar
from tests.search.landscapes import Told, landscape_of

BASELINE: list[Told] = [({}, 1.00), ({}, 1.01), ({}, 0.99)]


def repeated(changed: dict[str, Scalar], value: float, runs: int) -> list[Told]:
    return [(changed, value + 0.01 * (-1) ** run) for run in range(runs)]


@pytest.mark.parametrize(
    ("without", "least_gain", "simplest"),
    [
        (0.5005, 0.0, {"lr": 2.0}),
        (0.60, 0.0, {"lr": 2.0, "act": "gelu"}),
        (0.60, 0.2, {"lr": 2.0}),
        (0.60, 0.6, {"lr": 2.0}),
    ],
)
def test_a_change_that_gains_nothing_is_left_out(
    without: float, least_gain: float, simplest: dict[str, Scalar]
) -> None:
    both: dict[str, Scalar] = {"lr": 2.0, "act": "gelu"}
    told = [*BASELINE, *repeated(both, 0.5, 4), *repeated({"lr": 2.0}, without, 4), *repeated({"ema": True}, 0.51, 4)]
    landscape = landscape_of(told)
    assert landscape.lattice.changed(landscape.incumbent) == both
    # The baseline itself is no winner, and what holds another change is no part of this one.
    assert landscape.lattice.changed(landscape.simplest(least_gain)) == simplest


def test_where_nothing_is_better_than_the_baseline_it_stays() -> None:
    landscape = landscape_of([*BASELINE, ({"lr": 2.0}, 1.5), ({"ema": True}, 1.4)])
    assert landscape.incumbent == landscape.simplest(0.1) == landscape.lattice.baseline


def test_what_was_lucky_once_is_worth_less_than_what_held_up() -> None:
    noisy: list[Told] = [({}, 1.0), ({}, 1.2), ({}, 0.8)]
    held = [({"ema": True}, value) for value in (0.5, 0.7, 0.4, 0.6, 0.45, 0.65)]
    landscape = landscape_of([*noisy, *held, ({"lr": 2.0}, 0.5), ({"act": "gelu"}, 1.1)])

    def least(caution: float) -> dict[str, Scalar]:
        bounds = zip(landscape.bounds(caution), landscape.measured, strict=True)
        return landscape.lattice.changed(min(bounds, key=lambda entry: entry[0])[1].point)

    assert least(2.0) == {"ema": True}
    alone = {seen.point: bound for bound, seen in zip(landscape.bounds(1.0), landscape.measured, strict=True)}
    means = {seen.point: bound for bound, seen in zip(landscape.bounds(0.0), landscape.measured, strict=True)}
    doubt = {tuple(landscape.lattice.changed(point)): alone[point] - means[point] for point in means}
    assert doubt["ema",] < doubt["lr",], "fewer runs, more doubt"
