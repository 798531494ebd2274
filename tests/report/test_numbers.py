"""Digits, signs and units."""

from __future__ import annotations

import pytest

from nightlab.knowledge.records import Effect
from nightlab.report.model import Metric, Noise
from nightlab.report.numbers import count, decimals_for, duration, fixed, interval, level, listing, memory, signed
from nightlab.report.wording import Wording


@pytest.mark.parametrize(
    ("uncertainty", "decimals"), [(0.03, 2), (0.1 + 0.2 - 0.27, 2), (0.018, 3), (0.0054, 3), (12.0, 0), (250.0, 0)]
)
def test_digits_follow_the_uncertainty(uncertainty: float, decimals: int) -> None:
    assert decimals_for(uncertainty) == decimals


def test_without_uncertainty_four_digits_of_the_value() -> None:
    assert decimals_for(None, value=2.8718) == 3
    assert decimals_for(0.0, value=0.00123456) == 6
    assert decimals_for(None, value=None) == 3


def test_signs_are_real_and_zero_has_none() -> None:
    assert signed(-0.321, 2) == "−0.32"
    assert signed(0.321, 2) == "+0.32"
    assert signed(-0.0001, 2) == "0.00"
    assert signed(0.0001, 2) == "0.00"
    assert interval(-0.35, 0.29, 2) == "−0.35 … +0.29"
    assert interval(None, 0.29, 2) == "–"


def test_large_and_missing_values() -> None:
    assert fixed(12345.678, 1, unit="tokens/s") == "12,345.7 tokens/s"
    assert fixed(None, 2) == "–"
    assert fixed(float("inf"), 2) == "inf"
    assert fixed(3.2e12, 0) == "3.200e+12"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3.21, "3.2 s"), (9.99, "10 s"), (59.6, "1 min"), (252, "4 min 12 s"), (3599.9, "1 h"), (27060, "7 h 31 min")],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_words() -> None:
    assert memory(812 * 2**20) == "812 MiB"
    assert memory(1.4 * 2**30) == "1.4 GiB"
    assert count(1, "run") == "1 run"
    assert count(1200, "run") == "1,200 runs"
    assert [level(v) for v in (True, 0.003, 1e-05, "adam", 4)] == ["true", "0.003", "1e-05", "adam", "4"]
    assert listing([]) == ""
    assert listing(["a"]) == "a"
    assert listing("abcdefgh", limit=3) == "a, b and 6 more"


@pytest.mark.parametrize(
    ("maximize", "change", "bounds"), [(False, "−0.32", "−0.35 … −0.29"), (True, "+0.32", "+0.29 … +0.35")]
)
def test_people_read_the_metrics_own_change(maximize: bool, change: str, bounds: str) -> None:
    effect = Effect(delta=0.32, low=0.29, high=0.35, runs=3, baseline_runs=3)
    words = Wording(Metric("m", "", maximize, 0.02), Noise(2.87, 0.006, 3, (0, 1, 2)))
    assert words.change(effect) == change
    assert words.interval(effect) == bounds


def test_a_change_of_a_percentage_is_in_points() -> None:
    words = Wording(Metric("accuracy", "%", True, 0.5), Noise(71.0, 0.4, 3, (0, 1, 2)))
    effect = Effect(delta=2.5, low=1.4, high=3.6, runs=3, baseline_runs=3)
    assert words.both(effect) == "+2.5 points, 95 % interval +1.4 … +3.6"
    assert words.relative(effect) == ""


def test_an_effect_of_one_run_has_no_interval() -> None:
    words = Wording(Metric("m", "", False, 0.02), None)
    effect = Effect(delta=0.5, runs=1, baseline_runs=1)
    assert words.sure(effect) == "no interval: too few runs"
