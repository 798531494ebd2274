"""The Pareto front: who is on it, in which order, and with which intervals."""

from __future__ import annotations

import numpy as np
import pytest

from nightlab.search.pareto import pareto_front

DIRECTIONS = {"accuracy": True, "latency_ms": False}


def test_whoever_is_beaten_in_everything_is_left_out() -> None:
    values = {
        0: {"accuracy": [0.80], "latency_ms": [10.0]},
        1: {"accuracy": [0.90], "latency_ms": [20.0]},
        2: {"accuracy": [0.85], "latency_ms": [25.0]},
        3: {"accuracy": [0.90], "latency_ms": [22.0]},
        4: {"accuracy": [0.95], "latency_ms": [40.0]},
    }
    assert [point.number for point in pareto_front(values, DIRECTIONS)] == [4, 1, 0]


def test_equals_both_stay_and_what_lacks_a_metric_takes_no_part() -> None:
    values = {
        1: {"accuracy": [0.9], "latency_ms": [20.0]},
        2: {"accuracy": [0.9], "latency_ms": [20.0]},
        3: {"accuracy": [0.99]},
        4: {"accuracy": [0.99], "latency_ms": []},
    }
    front = pareto_front(values, DIRECTIONS)
    assert [point.number for point in front] == [1, 2]
    assert front[0].estimates["accuracy"].low is None, "nothing was repeated"


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    """The noise is pooled: a configuration with one run has an interval, too."""
    random, inside, nights = np.random.default_rng(0), 0, 1000
    for _ in range(nights):
        values = {0: {"a": random.normal(5.0, 1.0, 3).tolist()}, 1: {"a": random.normal(1.0, 1.0, 1).tolist()}}
        (best,) = pareto_front(values, {"a": False}, confidence=0.9)
        found = best.estimates["a"]
        assert found.low is not None and found.high is not None
        inside += best.number == 1 and found.low <= 1.0 <= found.high
    assert inside / nights == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_nobody_on_the_front_is_beaten_and_everybody_else_is(seed: int) -> None:
    points = np.random.default_rng(seed).integers(0, 6, size=(40, 3)).astype(float)
    values = {number: dict(zip("abc", ([one] for one in point), strict=True)) for number, point in enumerate(points)}
    front = {point.number for point in pareto_front(values, dict.fromkeys("abc", False))}
    for number, point in enumerate(points):
        beaten = ((points <= point).all(axis=1) & (points < point).any(axis=1)).any()
        assert (number in front) != beaten
