"""What stress checks say of a confirmed win: it holds, it breaks a bound, or nobody can tell."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nightlab.configs.stress import StressCheck
from nightlab.knowledge.records import Verdict, VerdictKind
from nightlab.knowledge.stress import ENDED, Stress, StressState

__all__ = ["BROKEN", "UNMEASURED", "Finding", "after_stress", "findings", "middle"]

BROKEN = "guardrail (stress)"
"""Label of a win that breaks a bound of a stress check."""
UNMEASURED = "stress could not be measured"
"""Label of a win of which the checks tell nothing."""
LONGEST_WHY = 300


@dataclass(frozen=True)
class Finding:
    """Why a win is not kept."""

    check: str
    is_broken: bool
    """Whether it breaks a bound; else the check could not be measured."""
    text: str


def middle(stresses: Iterable[Stress], metric: str) -> float | None:
    """The median over the repeats that were measured; None where fewer than half of them were."""
    stresses = list(stresses)
    values = [one.values[metric] for one in stresses if metric in one.values]
    return statistics.median(values) if 2 * len(values) > len(stresses) else None


def after_stress(verdict: Verdict, found: Sequence[Finding]) -> Verdict:
    """The verdict with what the checks take from it; only a win has something to lose."""
    if verdict.kind is not VerdictKind.KEEP or not found:
        return verdict
    broken = [one.text for one in found if one.is_broken]
    texts = broken or [one.text for one in found]
    kind, label = (VerdictKind.REJECTED, BROKEN) if broken else (VerdictKind.INCONCLUSIVE, UNMEASURED)
    reason = f"{label}: {'; '.join(texts)}. On fresh seeds: {verdict.reason}"
    return verdict.model_copy(update={"kind": kind, "label": label, "reason": reason})


def findings(checks: Iterable[StressCheck], stresses: Iterable[Stress], number: int) -> list[Finding]:
    """Everything that the checks hold against an experiment; none where it stands.

    What is still to come counts as not measured: ask only once all repeats have ended.
    """
    by_check: dict[tuple[str, int], list[Stress]] = {}
    for one in stresses:
        by_check.setdefault((one.check, one.number), []).append(one)
    return [
        found
        for check in checks
        for found in _of_check(check, by_check.get((check.name, number), []), by_check.get((check.name, 0), []))
    ]


def _of_check(check: StressCheck, own: list[Stress], baseline: list[Stress]) -> Iterator[Finding]:
    if not _is_measured(own):
        yield _not_measured(check, own, baseline)
        return
    for metric, limit in check.limits.items():
        value, beside = middle(own, metric), _beside(own, baseline, metric)
        if value is not None and limit.max is not None and value > limit.max:
            yield Finding(check.name, True, f"{check.name}: {metric} {value:.6g} > {limit.max:g}{beside}")
        if value is not None and limit.min is not None and value < limit.min:
            yield Finding(check.name, True, f"{check.name}: {metric} {value:.6g} < {limit.min:g}{beside}")
    for metric, ratio in check.compare.items():
        value, base = middle(own, metric), middle(baseline, metric)
        if value is None or base is None or base <= 0:
            why = f"the baseline's {metric} is {base:g}" if base is not None else _why(baseline)
            yield Finding(check.name, False, f"{check.name}: {metric} has nothing to be compared with: {why}")
            continue
        beside = _beside(own, baseline, metric)
        if ratio.min_ratio is not None and value < ratio.min_ratio * base:
            bound = f"< {ratio.min_ratio:g} of the baseline's {base:.6g}"
            yield Finding(check.name, True, f"{check.name}: {metric} {value:.6g} {bound}{beside}")
        if ratio.max_ratio is not None and value > ratio.max_ratio * base:
            bound = f"> {ratio.max_ratio:g} times the baseline's {base:.6g}"
            yield Finding(check.name, True, f"{check.name}: {metric} {value:.6g} {bound}{beside}")


def _is_measured(stresses: Sequence[Stress]) -> bool:
    return 2 * sum(one.state is StressState.MEASURED for one in stresses) > len(stresses)


def _not_measured(check: StressCheck, own: list[Stress], baseline: list[Stress]) -> Finding:
    """A check that fails on the finalist alone is the finalist's fault; else nobody knows."""
    failed = [one for one in own if one.state is StressState.FAILED]
    if 2 * len(failed) >= len(own) > 0 and _is_measured(baseline):
        text = f"{check.name}: failed on {len(failed)} of {len(own)} repeats, not on the baseline: {_why(failed)}"
        return Finding(check.name, True, text)
    where = "" if _is_measured(baseline) or not failed else ", on the baseline too"
    return Finding(check.name, False, f"{check.name}: not measured{where}: {_why(own)}")


def _why(stresses: Iterable[Stress]) -> str:
    """The first reason why something was not measured."""
    said = (one.detail for one in stresses if one.state in ENDED and one.state is not StressState.MEASURED)
    return next((text[:LONGEST_WHY] for text in said if text), "it was never run")


def _beside(own: Sequence[Stress], baseline: Sequence[Stress], metric: str) -> str:
    """The evidence: every repeat, and the baseline's middle."""
    values = [f"{one.values[metric]:.6g}" for one in own if metric in one.values]
    base = middle(baseline, metric)
    told = f"repeats {', '.join(values)}" if len(values) > 1 else ""
    told = "; ".join(part for part in (told, f"baseline {base:.6g}" if base is not None else "") if part)
    return f" ({told})" if told else ""
