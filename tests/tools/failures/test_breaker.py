"""Runs that all die the same way block a factor or the study, and a success forgives."""

from __future__ import annotations

from nightlab.tools.failures import Outcome, Trip, tripped


def outcome(number: int, cause: str | None, *factors: str) -> Outcome:
    return Outcome(number, cause, frozenset(factors))


def test_nothing_trips_below_the_limit() -> None:
    assert tripped([]) == ()
    assert tripped([outcome(1, "cuda_oom", "lr"), outcome(2, "cuda_oom", "width")]) == ()
    assert tripped([outcome(1, "a", "lr"), outcome(2, "b", "lr"), outcome(3, "c", "lr")]) == ()


def test_a_baseline_that_always_fails_blocks_the_study() -> None:
    trips = tripped([outcome(0, "cuda_driver")] * 3)
    assert trips == (Trip("cuda_driver", None, (0,), 3),)
    assert str(trips[0]) == ("the study: 3 runs failed with cuda_driver and none succeeded since (experiments 00)")


def test_the_same_cause_over_different_factors_blocks_the_study() -> None:
    history = [outcome(4, "disk_full", "lr"), outcome(5, "disk_full", "width"), outcome(6, "disk_full", "depth")]
    assert tripped(history) == (Trip("disk_full", None, (4, 5, 6), 3),)


def test_one_factor_blocks_only_itself() -> None:
    history = [outcome(0, None), *(outcome(number, "cuda_oom", "width") for number in (1, 2, 3))]
    assert tripped(history) == (Trip("cuda_oom", "width", (1, 2, 3), 3),)


def test_successes_of_others_do_not_forgive_a_factor() -> None:
    history = []
    for number in (1, 3, 5):
        history += [outcome(number, "cuda_oom", "width"), outcome(number + 1, None, "lr")]
    assert tripped(history) == (Trip("cuda_oom", "width", (1, 3, 5), 3),)


def test_a_success_since_forgives() -> None:
    failures = [outcome(1, "x", "lr"), outcome(2, "x", "lr")]
    assert tripped([*failures, outcome(3, None, "lr"), outcome(4, "x", "lr")]) == ()
    assert tripped([outcome(0, "x")] * 2 + [outcome(0, None)] + [outcome(0, "x")] * 2) == ()
    assert tripped([*failures, outcome(3, "x", "width"), outcome(4, None, "depth")]) == ()


def test_a_factor_behind_combinations_is_found() -> None:
    history = [outcome(1, "x", "lr", "width"), outcome(2, "x", "lr", "depth"), outcome(3, "x", "lr", "warmup")]
    assert tripped(history) == (Trip("x", "lr", (1, 2, 3), 3),)


def test_a_blocked_factor_and_then_another_block_the_study() -> None:
    history = [*(outcome(number, "x", "lr") for number in (1, 2, 3)), outcome(4, "x", "width")]
    assert tripped(history) == (Trip("x", None, (1, 2, 3, 4), 4), Trip("x", "lr", (1, 2, 3), 3))


def test_the_limit_is_a_choice() -> None:
    history = [outcome(0, "x")] * 2
    assert tripped(history, limit=3) == ()
    assert tripped(history, limit=2) == (Trip("x", None, (0,), 2),)
