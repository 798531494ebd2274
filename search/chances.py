"""The chance that a level is better than the baseline's value, from catalog, scaling law and lessons.

It orders what is tried first. Bounded, and started from a weak prior, so that a wrong one washes out as data come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from nightlab.configs.levels import same_value
from nightlab.configs.study import Scalar
from nightlab.knowledge.level_priors import LevelPrior
from nightlab.search.space import is_number

__all__ = ["EVEN", "catalog_chance", "nearest_to", "posterior_chance"]

EVEN = 0.5
"""Nothing is known."""
LOWEST, HIGHEST = 0.05, 0.95
PRIOR_WEIGHT = 2.0
"""Runs that the chance before any lesson is worth."""
INTO_TYPICAL = 0.25
"""Chance above even of a value in the usual range where the baseline's is not, for a technique of usefulness 1."""
TOWARDS_TYPICAL = 0.15
BY_LAW = 0.85


def posterior_chance(prior: float, told: LevelPrior) -> float:
    """Mean of the Beta posterior over lessons, within its bounds."""
    seen = told.wins + told.losses
    return min(HIGHEST, max(LOWEST, (PRIOR_WEIGHT * prior + told.wins) / (PRIOR_WEIGHT + seen)))


def catalog_chance(
    level: Scalar, baseline: Scalar, typical: Sequence[Scalar], usefulness: float, *, log: bool = False
) -> float:
    """The chance by the catalog's usual values alone; `usefulness` is the technique's, 0 to 1.

    Even between two usual values, above even into the usual range or towards it, below even out of it.
    """
    weight = min(max(usefulness, 0.0), 1.0)
    away, before = (_distance(value, typical, log=log) for value in (level, baseline))
    if away == 0.0 and before != 0.0:
        return EVEN + INTO_TYPICAL * weight
    if away == before or (away * before < 0):
        return EVEN
    return EVEN + TOWARDS_TYPICAL * weight if abs(away) < abs(before) else EVEN - INTO_TYPICAL * weight


def _distance(value: Scalar, typical: Sequence[Scalar], *, log: bool) -> float:
    """How far a value lies outside what is usual: 0 within, below it negative; 1 for an unusual category."""
    numbers = [float(one) for one in typical if is_number(one)]
    if not is_number(value) or len(numbers) < len(typical) or not numbers:
        return 0.0 if any(same_value(value, one) for one in typical) else 1.0
    low, high = min(numbers), max(numbers)
    if low <= float(value) <= high:
        return 0.0
    edge = low if float(value) < low else high
    return math.log(float(value) / edge) if log and min(float(value), edge) > 0 else float(value) - edge


def nearest_to(target: float, levels: Sequence[Scalar], baseline: Scalar) -> Scalar | None:
    """The level nearest to a predicted value by ratio; None where the baseline's own value is as near."""

    def ratio(value: Scalar) -> float:
        return abs(math.log(float(value) / target)) if is_number(value) and float(value) > 0 else math.inf

    best = min(levels, key=ratio, default=None)
    return best if best is not None and ratio(best) < ratio(baseline) else None
