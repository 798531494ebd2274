"""What the winner does to every other metric, beside the baseline on the same fresh seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightlab.configs.study import Study
from nightlab.knowledge.records import Observation, Phase, Run, RunState
from nightlab.report.numbers import decimals_for, interval, short, signed

__all__ = ["OtherMetric", "other_metrics"]

ROUNDING = 1e-9
"""Spread of differences, as a share of them, that is the arithmetic's."""


@dataclass(frozen=True)
class OtherMetric:
    """One metric, written out: means of the baseline and the winner, and their difference seed by seed."""

    name: str
    baseline: str
    winner: str
    difference: str
    interval: str
    """Of the mean difference, at the study's confidence and not corrected for the number of metrics; a dash with one
    seed."""
    seeds: int


def other_metrics(
    study: Study, winner: int | None, runs: Sequence[Run], observations: Mapping[str, Observation]
) -> tuple[OtherMetric, ...]:
    """Every metric but the objective that baseline and winner have on common seeds of confirmation."""
    if winner is None:
        return ()
    seen = {
        (run.number, run.seed): observations[run.key].values
        for run in runs
        if run.phase == Phase.CONFIRM and run.state is RunState.REVIEWED and run.key in observations
    }
    found = []
    for metric in study.metric_names[1:]:
        pairs = [
            (seen[0, seed][metric], values[metric])
            for (number, seed), values in sorted(seen.items())
            if number == winner and metric in values and metric in seen.get((0, seed), {})
        ]
        if pairs:
            found.append(_row(metric, pairs, study.search.confidence))
    return tuple(found)


def _row(metric: str, pairs: Sequence[tuple[float, float]], confidence: float) -> OtherMetric:
    before, after = zip(*pairs, strict=True)
    differences = [new - old for old, new in pairs]
    mean = statistics.fmean(differences)
    low, high = _interval(differences, mean, confidence)
    half = (high - low) / 2 if low is not None and high is not None else None
    decimals = decimals_for(half, value=mean) if half else min(decimals_for(value=mean), decimals_for(value=before[0]))
    return OtherMetric(
        name=metric,
        baseline=short(statistics.fmean(before)),
        winner=short(statistics.fmean(after)),
        difference=signed(mean, decimals),
        interval=interval(low, high, decimals),
        seeds=len(pairs),
    )


def _interval(differences: Sequence[float], mean: float, confidence: float) -> tuple[float | None, float | None]:
    """Student's interval of the mean; None for one difference alone."""
    if len(differences) < 2:
        return None, None
    spread = statistics.stdev(differences) / len(differences) ** 0.5
    if spread <= ROUNDING * max(map(abs, differences)):
        return mean, mean
    from scipy import stats

    low, high = stats.t.interval(confidence, len(differences) - 1, loc=mean, scale=spread)
    return float(low), float(high)
