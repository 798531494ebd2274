"""How sure a score is, given these examples: intervals by resampling examples.

They tell how far the value hangs on which examples happened to be in the file. They say nothing of what another seed
would have given, so no verdict rests on them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nightlab.tools.scoring.base import Indices

__all__ = ["Interval", "resampled"]

SEED = 0
MOST_DRAWS = 20_000_000
FEWEST_RESAMPLES = 100
DRAWS_AT_ONCE = 1_000_000


@dataclass(frozen=True)
class Interval:
    """A percentile interval over examples, in the score's unit."""

    low: float
    high: float
    confidence: float


def resampled(
    value: Callable[[Indices], float], at: Indices, *, resamples: int, confidence: float = 0.95
) -> Interval | None:
    """The percentile bootstrap interval of `value`; the same for the same data. Many examples are resampled less often.

    None for fewer than two examples, and where some resample has no value.
    """
    from scipy.stats import DegenerateDataWarning, bootstrap

    if len(at) < 2:
        return None
    with warnings.catch_warnings():
        # A resample without a value is told by what is returned.
        warnings.simplefilter("ignore", DegenerateDataWarning)
        found = bootstrap(
            (at,),
            value,
            vectorized=False,
            n_resamples=max(FEWEST_RESAMPLES, min(resamples, MOST_DRAWS // len(at))),
            batch=max(1, DRAWS_AT_ONCE // len(at)),
            confidence_level=confidence,
            method="percentile",
            random_state=np.random.default_rng(SEED),
        ).confidence_interval
    low, high = float(found.low), float(found.high)
    return Interval(low, high, confidence) if math.isfinite(low) and math.isfinite(high) else None
