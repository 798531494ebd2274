"""Effects with intervals; an improvement is above 0 whatever the metric's direction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from scipy.special import fdtri, stdtrit

from nightlab.configs.study import Study
from nightlab.knowledge.records import Effect
from nightlab.search.noise import Noise

__all__ = ["contrast_effect", "contrast_error", "estimate_effect", "paired_effect", "standard_error"]

CLEARLY_NOISIER = 0.95


def _sign(study: Study) -> float:
    return 1.0 if study.maximize else -1.0


def _half_width(confidence: float, degrees: int, error: float) -> float:
    return float(stdtrit(degrees, 0.5 + confidence / 2)) * error


def standard_error(noise: Noise, runs: int, baseline_runs: int) -> float:
    """Standard error of the difference of two means, in the metric's unit."""
    return noise.sd * math.sqrt(1 / runs + 1 / baseline_runs)


def estimate_effect(study: Study, values: Sequence[float], baseline: Sequence[float], noise: Noise) -> Effect:
    """Improvement of `values` over `baseline` (both not empty), unpaired, with a Student interval on pooled noise.

    Without degrees of freedom in `noise` the interval is absent.
    """
    delta = _sign(study) * (fmean(values) - fmean(baseline))
    error = standard_error(noise, len(values), len(baseline))
    return _effect(study, delta, error, noise.degrees, len(values), len(baseline), study.search.confidence)


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
    study: Study, values: Mapping[int, float], baseline: Mapping[int, float], noise: Noise, *, comparisons: int = 1
) -> Effect | None:
    """Improvement on common seeds (`{seed: value}`), Bonferroni-corrected for `comparisons`; None without two pairs.

    A paired t interval whose variance is moderated by the noise known from other runs (Smyth 2004, "Linear models and
    empirical Bayes methods": prior and own sums of squares and degrees add up); unpaired noise bounds that of
    differences from above when seeds are shared. Differences clearly wilder than that noise stand alone.
    """
    seeds = sorted(values.keys() & baseline.keys())
    if len(seeds) < 2:
        return None
    differences = [_sign(study) * (values[seed] - baseline[seed]) for seed in seeds]
    delta, degrees = fmean(differences), len(seeds) - 1
    squares = sum((difference - delta) ** 2 for difference in differences)
    if not _wilder(squares / degrees, degrees, noise):
        squares += 2 * noise.sd**2 * noise.degrees
        degrees += noise.degrees
    error = (squares / degrees / len(seeds)) ** 0.5
    confidence = 1 - (1 - study.search.confidence) / comparisons
    return _effect(study, delta, error, degrees, len(seeds), len(seeds), confidence, paired=True)


def _wilder(variance: float, degrees: int, noise: Noise) -> bool:
    if not noise.degrees:
        return True
    return variance > 2 * noise.sd**2 * float(fdtri(degrees, noise.degrees, CLEARLY_NOISIER))


def _effect(
    study: Study,
    delta: float,
    error: float,
    degrees: int,
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
