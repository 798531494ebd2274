"""Effects with intervals; an improvement is above 0 whatever the metric's direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from scipy.special import fdtri, stdtrit

from nightlab.configs.study import Study
from nightlab.knowledge.records import Effect
from nightlab.search.noise import Noise, noise_at

__all__ = ["contrast_effect", "contrast_error", "estimate_effect", "paired_effect", "shrunk", "standard_error"]

ENOUGH_DEGREES = 5
"""From here on the differences' own deviation is good enough: six pairs."""
LIKELY_NOISIER = 0.75
"""Below that, differences wilder than three in four would be are not believed to have the noise known before."""


def _sign(study: Study) -> float:
    return 1.0 if study.maximize else -1.0


def _half_width(confidence: float, degrees: float, error: float) -> float:
    return float(stdtrit(degrees, 0.5 + confidence / 2)) * error


def standard_error(noise: Noise, runs: int, baseline_runs: int) -> float:
    """Standard error of the difference of two means, in the metric's unit."""
    return noise.sd * math.sqrt(1 / runs + 1 / baseline_runs)


def estimate_effect(study: Study, values: Sequence[float], baseline: Sequence[float], noise: Noise) -> Effect:
    """Improvement of `values` over `baseline` (both not empty), unpaired, with a Student interval on pooled noise.

    A side that is clearly noisier stands on its own noise (Welch's interval). Without degrees of freedom in `noise`
    the interval is absent.
    """
    delta = _sign(study) * (fmean(values) - fmean(baseline))
    error, degrees = _error(values, baseline, noise)
    return _effect(study, delta, error, degrees, len(values), len(baseline), study.search.confidence)


def _error(values: Sequence[float], baseline: Sequence[float], noise: Noise) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom."""
    ours, theirs = noise_at(values, noise), noise_at(baseline, noise)
    if ours == theirs == noise:
        return standard_error(noise, len(values), len(baseline)), noise.degrees
    parts = [(side.sd**2 / runs, side.degrees) for side, runs in ((ours, len(values)), (theirs, len(baseline)))]
    variance = sum(part for part, _ in parts)
    return math.sqrt(variance), variance**2 / sum(part**2 / degrees for part, degrees in parts)


def contrast_effect(study: Study, weighted: Sequence[tuple[float, Sequence[float]]], noise: Noise) -> Effect:
    """A linear combination of configurations' means, `(weight, values)` each, e.g. a main effect of an array.

    `runs` counts the runs weighted above 0, `baseline_runs` those weighted below.
    """
    delta = _sign(study) * sum(weight * fmean(values) for weight, values in weighted)
    error = contrast_error(weighted, noise)
    above = sum(len(values) for weight, values in weighted if weight > 1e-9)
    below = sum(len(values) for weight, values in weighted if weight < -1e-9)
    return _effect(study, delta, error, noise.degrees, above, below, study.search.confidence)


def contrast_error(weighted: Sequence[tuple[float, Sequence[float]]], noise: Noise) -> float:
    """Standard error of a linear combination of means, in the metric's unit."""
    return noise.sd * float(sum(weight**2 / len(values) for weight, values in weighted) ** 0.5)


def paired_effect(
    study: Study, values: Mapping[int, float], baseline: Mapping[int, float], noise: Noise, confidence: float
) -> Effect | None:
    """Improvement on common seeds (`{seed: value}`) with a two-sided interval of `confidence`; None without two pairs.

    A paired t interval. It is right whatever the noise on either side and however much of it comes with the seed.
    Below six pairs, where it would be very wide, its variance is moderated by the noise known from other runs (Smyth
    2004, "Linear models and empirical Bayes methods": prior and own sums of squares and degrees add up), unless the
    differences are wilder than that noise would make them.
    """
    seeds = sorted(values.keys() & baseline.keys())
    if len(seeds) < 2:
        return None
    differences = [_sign(study) * (values[seed] - baseline[seed]) for seed in seeds]
    delta, degrees = fmean(differences), len(seeds) - 1
    squares = sum((difference - delta) ** 2 for difference in differences)
    if degrees < ENOUGH_DEGREES and not _wilder(squares / degrees, degrees, noise):
        squares += 2 * noise.sd**2 * noise.degrees
        degrees += noise.degrees
    error = (squares / degrees / len(seeds)) ** 0.5
    return _effect(study, delta, error, degrees, len(seeds), len(seeds), confidence, paired=True)


def _wilder(variance: float, degrees: int, noise: Noise) -> bool:
    if not noise.degrees:
        return True
    return variance > 2 * noise.sd**2 * float(fdtri(degrees, noise.degrees, LIKELY_NOISIER))


def shrunk(delta: float, error: float, others: Sequence[tuple[float, float]]) -> float:
    """What is likely left of an effect that was picked because it looked good, in the metric's unit.

    Empirical Bayes: all tried changes' `(delta, standard error)`, this one among them, come from one normal
    distribution whose mean and variance are those that fit (DerSimonian and Laird 1986); the estimate is its
    posterior mean. The fewer and noisier the runs, the nearer it comes to what the others did.
    """
    if error == 0 or len(others) < 3:
        return delta
    weights = [1 / max(e, error / 10) ** 2 for _, e in others]
    total = sum(weights)
    mean = sum(weight * d for weight, (d, _) in zip(weights, others, strict=True)) / total
    spread = sum(weight * (d - mean) ** 2 for weight, (d, _) in zip(weights, others, strict=True))
    between = max(0.0, (spread - len(others) + 1) / (total - sum(weight**2 for weight in weights) / total))
    return mean + (delta - mean) * between / (between + error**2)


def _effect(
    study: Study,
    delta: float,
    error: float,
    degrees: float,
    runs: int,
    baseline_runs: int,
    confidence: float,
    *,
    paired: bool = False,
) -> Effect:
    half = _half_width(confidence, degrees, error) if degrees else None
    return Effect(
        delta=delta,
        low=None if half is None else delta - half,
        high=None if half is None else delta + half,
        confidence=confidence,
        unit=study.objective.unit,
        runs=runs,
        baseline_runs=baseline_runs,
        paired=paired,
    )
