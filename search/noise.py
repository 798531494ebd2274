"""The noise of the metric, from runs of the same configuration with different seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.special import fdtrc

from nightlab.configs.study import Study

__all__ = ["Noise", "clearly_noisier", "noise_at", "own_noise", "pooled_noise"]

NOT_MUCH_WORSE_SD = 5.0
ODD_ONE_OUT = 0.01
"""Chance that an even set of samples loses one as clearly noisier than the others."""
OWN_NOISE = 0.05
"""The same for the noise of one configuration against the pooled one."""


@dataclass(frozen=True)
class Noise:
    """Standard deviation between seeds, in the metric's unit, and the degrees of freedom behind it (0: not known)."""

    sd: float = 0.0
    degrees: int = 0


def own_noise(values: Sequence[float]) -> Noise:
    """The noise of one sample alone."""
    return _pool([values])


def pooled_noise(study: Study, baseline: Sequence[float], others: Sequence[Sequence[float]]) -> Noise:
    """Within-configuration noise of the baseline's replicates and of the replicated configurations near it.

    Bad configurations are noisier than good ones: those whose mean is worse than the baseline's by more than five
    deviations (and twice `min_effect`) are left out, and so is, where at least three samples are left, one that is
    clearly noisier than the rest together, whether by its nature or by one wild run.
    """
    sign = 1.0 if study.maximize else -1.0
    replicated = sorted((sample for sample in others if len(sample) > 1), key=lambda one: -sign * fmean(one))
    near: list[Sequence[float]] = [baseline] if len(baseline) > 1 else []
    middle = fmean(baseline) if baseline else None
    pool = _pool(near)
    for sample in replicated:
        loss = 0.0 if middle is None else sign * (middle - fmean(sample))
        # The best come first, so that a few lucky replicates of the baseline do not decide alone what is near.
        if not near or loss <= max(NOT_MUCH_WORSE_SD * pool.sd, 2 * study.objective.min_effect):
            near.append(sample)
            pool = _joined(pool, own_noise(sample))
    return _pool(_even(near))


def clearly_noisier(one: Noise, other: Noise, chance: float) -> bool:
    """Whether `one` has the larger variance, by an F test that errs with probability `chance`."""
    if not one.degrees or not other.degrees or other.sd == 0:
        return False
    return float(fdtrc(one.degrees, other.degrees, (one.sd / other.sd) ** 2)) < chance


def noise_at(values: Sequence[float], pooled: Noise) -> Noise:
    """The noise of one configuration: the pooled one, its own where that is clearly larger."""
    own = own_noise(values)
    return own if clearly_noisier(own, pooled, OWN_NOISE) else pooled


def _even(samples: list[Sequence[float]]) -> list[Sequence[float]]:
    """The samples without those that are clearly noisier than the rest together, the noisiest first."""
    rest = sorted(samples, key=lambda sample: own_noise(sample).sd)
    while len(rest) > 2 and clearly_noisier(own_noise(rest[-1]), _pool(rest[:-1]), ODD_ONE_OUT / len(rest)):
        rest.pop()
    return rest


def _joined(one: Noise, other: Noise) -> Noise:
    degrees = one.degrees + other.degrees
    return Noise(((one.sd**2 * one.degrees + other.sd**2 * other.degrees) / degrees) ** 0.5, degrees)


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _pool(samples: Sequence[Sequence[float]]) -> Noise:
    degrees = sum(len(sample) - 1 for sample in samples if len(sample) > 1)
    if not degrees:
        return Noise()
    squares = sum(_squares(sample) for sample in samples if len(sample) > 1)
    return Noise((squares / degrees) ** 0.5, degrees)
