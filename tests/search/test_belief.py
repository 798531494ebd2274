"""Verdicts, one made-up history each: what is a win, and what never is."""

from __future__ import annotations

from typing import Literal

import pytest

from nightlab.configs.study import Factor
from nightlab.knowledge.records import Phase, Verdict, VerdictKind
from nightlab.search.attribution import factor_effects
from nightlab.search.belief import judge, judge_all
from nightlab.search.history import History, RankedFactor, Trial
from tests.search.simulate import make_study

STUDY = make_study({"x": 1}, {"x": Factor(levels=[2, 3])}, min_effect=0.1, confirm_seeds=3)
FACTOR = RankedFactor("x", (2, 3), ordered=True)
FRESH = (1000, 1001, 1002)


def trial(
    x: int,
    seed: int,
    value: float | None,
    phase: Phase = Phase.SCREEN,
    state: Literal["pending", "measured", "failed"] = "measured",
    *,
    valid: bool = True,
) -> Trial:
    changed = {} if x == 1 else {"x": x}
    return Trial(x - 1, {"x": x}, dict(changed), seed, phase, state, value, valid)


def baseline(*values: float) -> list[Trial]:
    return [trial(1, seed, value, Phase.BASELINE) for seed, value in enumerate(values)]


def confirmation(x: int, values: tuple[float, ...]) -> list[Trial]:
    return [trial(x, seed, value, Phase.CONFIRM) for seed, value in zip(FRESH, values, strict=False)]


BASE = baseline(3.00, 3.02, 2.98)
FRESH_BASE = confirmation(1, (3.01, 2.99, 3.00))


def verdict(*trials: Trial, number: int = 1, runs_left: int = 0) -> Verdict:
    found = judge(STUDY, History((FACTOR,), trials=trials, runs_left=runs_left), number)
    assert found is not None
    return found


def test_the_baseline_and_what_has_not_run_have_no_verdict() -> None:
    history = History((FACTOR,), trials=(*BASE, trial(2, 0, None, state="pending")))
    assert judge(STUDY, history, 0) is None
    assert judge(STUDY, history, 1) is None
    assert judge_all(STUDY, history) == {}


def test_a_confirmed_gain_is_kept_with_its_numbers() -> None:
    kept = verdict(*BASE, trial(2, 0, 2.0), *FRESH_BASE, *confirmation(2, (2.40, 2.42, 2.38)))
    assert (kept.kind, kept.label, kept.basis) == (VerdictKind.KEEP, "confirmed", Phase.CONFIRM)
    assert kept.effect and kept.effect.delta == pytest.approx(0.6), "the run that found it does not count"
    assert "+0.6 nats" in kept.reason and "3 fresh seeds" in kept.reason


def test_a_gain_that_is_not_confirmed_on_fresh_seeds_is_never_kept() -> None:
    runs = [trial(2, seed, 2.0) for seed in range(10)]
    found = verdict(*BASE, *runs)
    assert (found.kind, found.label) == (VerdictKind.INCONCLUSIVE, "promising")
    half = verdict(*BASE, *runs, *confirmation(2, (2.0, 2.0, 2.0)))
    assert half.kind == VerdictKind.INCONCLUSIVE, "the baseline did not run on the fresh seeds"


@pytest.mark.parametrize("pending_side", [1, 2])
def test_no_win_before_all_pairs_are_in(pending_side: int) -> None:
    both = [*confirmation(1, (3.0, 3.0)), *confirmation(2, (2.0, 2.0))]
    waiting = [trial(x, 1002, None, Phase.CONFIRM, "pending") for x in (1, 2) if x == pending_side]
    assert verdict(*BASE, trial(2, 0, 2.0), *both, *waiting).label == "promising"
    assert verdict(*BASE, trial(2, 0, 2.0), *both, runs_left=2).label == "promising", "a third pair is affordable"
    short = verdict(*BASE, trial(2, 0, 2.0), *both)
    assert (short.kind, short.label) == (VerdictKind.INCONCLUSIVE, "not confirmed"), "nothing more can come"
    assert short.reason.endswith("but the study asks for 3 fresh seeds")


def test_a_gain_below_min_effect_is_not_a_win() -> None:
    small = verdict(*BASE, trial(2, 0, 2.9), *FRESH_BASE, *confirmation(2, (2.92, 2.90, 2.91)))
    assert (small.kind, small.label) == (VerdictKind.INCONCLUSIVE, "not confirmed")


def test_a_finalist_that_came_later_needs_more() -> None:
    one = [*BASE, trial(2, 0, 2.5), *FRESH_BASE, *confirmation(2, (2.5, 2.6, 2.4))]
    other = [trial(3, 0, 2.5), *confirmation(3, (2.5, 2.6, 2.4))]
    alone, first, second = verdict(*one).effect, verdict(*one, *other).effect, verdict(*one, *other, number=2).effect
    assert alone and first and second and first.low and second.low
    assert alone == first, "who comes after it changes nothing about the first"
    assert second.low < first.low
    assert second.delta == first.delta


@pytest.mark.parametrize(
    ("values", "label"),
    [
        ((3.5,), "worse"),
        ((2.99, 3.01), "without effect"),
        ((3.03,), "no worthwhile gain"),
    ],
)
def test_discards(values: tuple[float, ...], label: str) -> None:
    found = verdict(*BASE, *(trial(2, seed, value) for seed, value in enumerate(values)))
    assert (found.kind, found.label) == (VerdictKind.DISCARD, label)
    assert "nats [" in found.reason


def test_noise_on_both_sides_of_the_line_is_too_close_to_call() -> None:
    found = verdict(*BASE, trial(2, 0, 2.93))
    assert (found.kind, found.label) == (VerdictKind.INCONCLUSIVE, "too close to call")


def test_failed_rejected_and_unstable() -> None:
    failed = verdict(*BASE, trial(2, 0, None, state="failed"))
    assert (failed.kind, failed.label) == (VerdictKind.FAILED, "failed")
    assert verdict(*BASE, trial(2, 0, float("nan"))).kind == VerdictKind.FAILED
    good = [*FRESH_BASE, *confirmation(2, (2.0, 2.0, 2.0))]
    rejected = verdict(*BASE, trial(2, 0, 2.0, valid=False), *good)
    assert rejected.kind == VerdictKind.REJECTED
    shaky = [*confirmation(2, (2.0, 2.0)), trial(2, 1002, None, Phase.CONFIRM, "failed")]
    unstable = verdict(*BASE, trial(2, 0, 2.0), *FRESH_BASE, *shaky)
    assert (unstable.kind, unstable.label) == (VerdictKind.INCONCLUSIVE, "unstable")


def test_without_a_baseline_nothing_is_claimed() -> None:
    found = verdict(trial(1, 0, None, Phase.BASELINE, "failed"), trial(2, 0, 1.0))
    assert (found.kind, found.effect) == (VerdictKind.INCONCLUSIVE, None)


def test_a_factor_is_without_effect_only_when_every_level_is() -> None:
    flat = [trial(2, seed, 3.0) for seed in range(2)]

    def overall(*trials: Trial) -> str:
        effects = factor_effects(STUDY, History((FACTOR,), trials=(*BASE, *trials)))
        return next(effect.label for effect in effects if effect.level is None)

    assert overall(*flat) == "unknown"
    assert overall(*flat, *(trial(3, seed, 3.01) for seed in range(2))) == "without effect"
    assert overall(*flat, trial(3, 0, 9.0)) == "no worthwhile gain"
    assert overall(*flat, trial(3, 0, 2.0)) == "promising"
    assert overall(trial(2, 0, None, state="failed"), trial(3, 0, None, state="failed")) == "failed"
    assert overall() == "not tried"
