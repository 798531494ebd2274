"""The quick form of `bench.false_wins`: nights on flat tasks under every shape of noise, and a gain that is found."""

from __future__ import annotations

import pytest

from bench.false_wins import Share, greedy_false_wins, page
from bench.noisy_nights import NOISES, flat_task, gain_task, reported_wins

NIGHTS = 50


@pytest.mark.parametrize("noise", NOISES)
def test_false_wins_are_rare_under_any_noise(noise: str) -> None:
    """One to four in a hundred measured; the bound is what 5 % would exceed in one of a hundred such tests."""
    wins = sum(bool(reported_wins(flat_task(), NOISES[noise], 14, seed)) for seed in range(NIGHTS))
    assert wins <= 7


def test_a_gain_of_two_deviations_is_found_at_forty_runs() -> None:
    """The goal of the bench is 80 %; the bound here is what that falls short of in one of a hundred such tests."""
    tasks = [gain_task(2.0, seed) for seed in range(NIGHTS)]
    found = [
        any(task.is_in(changed) for changed in reported_wins(task, NOISES["normal"], 40, seed))
        for seed, task in enumerate(tasks)
    ]
    assert sum(found) >= 33


def test_keep_discard_claims_something_in_nearly_every_night() -> None:
    assert greedy_false_wins("normal", 20, 50).share > 0.8


def test_a_share_has_its_exact_interval() -> None:
    share = Share(3, 100)
    assert (share.low, share.high) == pytest.approx((0.00623, 0.08518), abs=1e-5)
    assert (Share(0, 20).low, Share(20, 20).high) == (0.0, 1.0)
    assert str(share) == "3.0 % [0.6, 8.5]"


def test_the_page_has_a_row_for_each_noise() -> None:
    table = {name: {10: Share(1, 100)} for name in NOISES}
    text = page(table, table, table, 100)
    assert all(text.count(f"| {name} | 1.0 % [0.0, 5.4] |") == 3 for name in NOISES)
