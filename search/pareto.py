"""The configurations that no other one beats in every metric that counts: the Pareto front, from the runs' means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean

from scipy.special import stdtrit

__all__ = ["Estimate", "FrontPoint", "pareto_front"]


@dataclass(frozen=True)
class Estimate:
    """The mean of a configuration's runs in one metric, in its unit; no interval without a repeated configuration."""

    mean: float
    low: float | None
    high: float | None
    runs: int


@dataclass(frozen=True)
class FrontPoint:
    """One configuration of the front."""

    number: int
    estimates: dict[str, Estimate]
    """By metric."""


def pareto_front(
    values: Mapping[int, Mapping[str, Sequence[float]]], maximize: Mapping[str, bool], confidence: float = 0.95
) -> list[FrontPoint]:
    """The configurations that are not dominated in the metrics of `maximize`, the best in the first of them first.

    `values`: number → metric → what its believed runs gave. One dominates another that is nowhere better and somewhere
    worse, by their means; what luck makes of single runs is seen in the intervals, whose noise is pooled over all
    configurations. A configuration without a value in one of the metrics takes no part.
    """
    whole = {
        number: {metric: list(found[metric]) for metric in maximize}
        for number, found in values.items()
        if all(found.get(metric) for metric in maximize)
    }
    costs = {
        number: tuple((-1.0 if up else 1.0) * fmean(found[metric]) for metric, up in maximize.items())
        for number, found in whole.items()
    }
    front = [number for number in costs if not any(_dominates(other, costs[number]) for other in costs.values())]
    noise = {metric: _pooled([found[metric] for found in whole.values()]) for metric in maximize}
    front.sort(key=lambda number: (costs[number], number))
    return [
        FrontPoint(
            number, {metric: _estimate(whole[number][metric], *noise[metric], confidence) for metric in maximize}
        )
        for number in front
    ]


def _dominates(one: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(one, other, strict=True))
    return all(mine <= theirs for mine, theirs in pairs) and any(mine < theirs for mine, theirs in pairs)


def _pooled(samples: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Deviation within configurations and its degrees of freedom."""
    degrees = sum(len(sample) - 1 for sample in samples)
    squares = sum((value - fmean(sample)) ** 2 for sample in samples for value in sample)
    return (sqrt(squares / degrees) if degrees else 0.0), degrees


def _estimate(sample: Sequence[float], deviation: float, degrees: int, confidence: float) -> Estimate:
    mean = fmean(sample)
    if not degrees:
        return Estimate(mean, None, None, len(sample))
    half = float(stdtrit(degrees, 0.5 + confidence / 2)) * deviation / sqrt(len(sample))
    return Estimate(mean, mean - half, mean + half, len(sample))
