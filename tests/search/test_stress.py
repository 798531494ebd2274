"""What stress checks take from a win."""

from __future__ import annotations

from typing import Any

import pytest

from nightlab.configs.stress import StressCheck
from nightlab.knowledge.records import Effect, Phase, Verdict, VerdictKind
from nightlab.knowledge.stress import Stress, StressState
from nightlab.search.stress import BROKEN, UNMEASURED, after_stress, findings, middle

KEEP = Verdict(
    number=1,
    kind=VerdictKind.KEEP,
    effect=Effect(delta=0.2, low=0.1, high=0.3, runs=3, baseline_runs=3, paired=True),
    basis=Phase.CONFIRM,
    label="confirmed",
    reason="+0.2 on 3 fresh seeds",
)


def check(**changes: Any) -> StressCheck:
    return StressCheck.model_validate(
        {"name": "serving", "command": "load", "metrics": {"p99_ms": {}, "f1": {}}, **changes}
    )


def measured(number: int, *values: dict[str, float] | str | None) -> list[Stress]:
    """A repeat for each: its values, why it failed, or None for one that was cancelled."""
    found = []
    for repeat, value in enumerate(values):
        state = StressState.MEASURED if isinstance(value, dict) else StressState.FAILED
        state = StressState.CANCELLED if value is None else state
        detail = value if isinstance(value, str) else "the time is over" if value is None else ""
        key = f"night/{number:02d}/stress/serving/{repeat}"
        given = value if isinstance(value, dict) else {}
        made = Stress(key=key, number=number, check="serving", repeat=repeat, run="r", state=state, values=given)
        found.append(made.model_copy(update={"detail": detail}))
    return found


def p99(*values: float) -> list[dict[str, float]]:
    return [{"p99_ms": value, "f1": 0.9} for value in values]


def test_the_middle_of_the_repeats_is_what_counts() -> None:
    limits = check(limits={"p99_ms": {"max": 800}})
    base = measured(0, *p99(640, 640, 640))
    assert findings([limits], [*measured(1, *p99(700, 5000, 790)), *base], 1) == []
    (found,) = findings([limits], [*measured(1, *p99(912, 100, 5000)), *base], 1)
    assert found.is_broken
    assert found.text == "serving: p99_ms 912 > 800 (repeats 912, 100, 5000; baseline 640)"
    verdict = after_stress(KEEP, [found])
    assert (verdict.kind, verdict.label, verdict.effect) == (VerdictKind.REJECTED, BROKEN, KEEP.effect)
    assert verdict.reason.startswith("guardrail (stress): serving: p99_ms 912 > 800")


@pytest.mark.parametrize(
    ("bounds", "own", "told"),
    [
        ({"limits": {"f1": {"min": 0.8}}}, {"f1": 0.7}, "f1 0.7 < 0.8"),
        ({"compare": {"f1": {"min_ratio": 0.95}}}, {"f1": 0.8}, "f1 0.8 < 0.95 of the baseline's 0.9"),
        ({"compare": {"p99_ms": {"max_ratio": 1.5}}}, {"p99_ms": 1000.0}, "p99_ms 1000 > 1.5 times the baseline's 640"),
    ],
)
def test_each_kind_of_bound(bounds: dict[str, Any], own: dict[str, float], told: str) -> None:
    base = measured(0, *p99(640, 640, 640))
    good = {"p99_ms": 640.0, "f1": 0.9}
    (found,) = findings([check(**bounds)], [*measured(1, *[good | own] * 3), *base], 1)
    assert found.is_broken and told in found.text
    assert findings([check(**bounds)], [*measured(1, *[good] * 3), *base], 1) == []


@pytest.mark.parametrize(
    ("own", "baseline", "kind", "told"),
    [
        (
            ["boom", "boom", None],
            p99(1, 1, 1),
            VerdictKind.REJECTED,
            "failed on 2 of 3 repeats, not on the baseline: boom",
        ),
        (["boom"] * 3, ["bang"] * 3, VerdictKind.INCONCLUSIVE, "not measured, on the baseline too: boom"),
        ([None] * 3, p99(1, 1, 1), VerdictKind.INCONCLUSIVE, "not measured: the time is over"),
        ([], [], VerdictKind.INCONCLUSIVE, "not measured: it was never run"),
        (p99(1, 1, 1), ["bang"] * 3, VerdictKind.INCONCLUSIVE, "f1 has nothing to be compared with: bang"),
        (["boom", *p99(1, 1)], p99(1, 1, 1), VerdictKind.KEEP, ""),
    ],
)
def test_what_was_not_measured_never_passes(own: list[Any], baseline: list[Any], kind: VerdictKind, told: str) -> None:
    checks = [check(compare={"f1": {"min_ratio": 0.9}})]
    verdict = after_stress(KEEP, findings(checks, [*measured(1, *own), *measured(0, *baseline)], 1))
    assert verdict.kind is kind and told in verdict.reason
    assert kind is not VerdictKind.INCONCLUSIVE or verdict.label == UNMEASURED


def test_a_baseline_of_zero_is_nothing_to_compare_with() -> None:
    stresses = [*measured(1, *[{"f1": 0.5, "p99_ms": 1.0}] * 3), *measured(0, *[{"f1": 0.0, "p99_ms": 1.0}] * 3)]
    (found,) = findings([check(compare={"f1": {"min_ratio": 0.9}})], stresses, 1)
    assert not found.is_broken and "the baseline's f1 is 0" in found.text


def test_only_a_win_has_something_to_lose() -> None:
    (found,) = findings([check(limits={"p99_ms": {"max": 1}})], measured(1, *p99(2, 2, 2)), 1)
    lost = KEEP.model_copy(update={"kind": VerdictKind.DISCARD, "label": "worse"})
    assert after_stress(lost, [found]) == lost
    assert middle(measured(1, "boom", "boom", *p99(1)), "p99_ms") is None
