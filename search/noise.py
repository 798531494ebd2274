"""The noise of the metric, from runs of the same configuration with different seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from nightlab.configs.study import Study

__all__ = ["Noise", "pooled_noise"]

NOT_MUCH_WORSE_SD = 5.0


@dataclass(frozen=True)
class Noise:
    """Standard deviation between seeds, in the metric's unit, and the degrees of freedom behind it (0: not known)."""

    sd: float = 0.0
    degrees: int = 0


def _squares(values: Sequence[float]) -> float:
    mean = fmean(values)
    return sum((value - mean) ** 2 for value in values)


def _pool(samples: Sequence[Sequence[float]]) -> Noise:
    degrees = sum(len(sample) - 1 for sample in samples if len(sample) > 1)
    if not degrees:
        return Noise()
    squares = sum(_squares(sample) for sample in samples if len(sample) > 1)
    return Noise((squares / degrees) ** 0.5, degrees)


def pooled_noise(study: Study, baseline: Sequence[float], others: Sequence[Sequence[float]]) -> Noise:
    """Within-configuration noise of the baseline's replicates and of the replicated configurations near it.

    Bad configurations are noisier than good ones, so those whose mean is worse than the baseline's by more than five
    of its deviations (and twice `min_effect`) are left out.
    """
    own = _pool([baseline])
    if not own.degrees:
        return _pool(list(others))
    sign = 1.0 if study.maximize else -1.0
    worst = -max(NOT_MUCH_WORSE_SD * own.sd, 2 * study.objective.min_effect)
    middle = fmean(baseline)
    near = [sample for sample in others if len(sample) > 1 and sign * (fmean(sample) - middle) >= worst]
    return _pool([baseline, *near])
