"""The values of a range: how many of them, and which; when two values are the same."""

from __future__ import annotations

import math
from typing import Literal

__all__ = ["MOST_STEPS", "same_value", "spread", "steps_of"]

MOST_STEPS = 9
LINEAR_STEPS = 3
USUAL_RATIO = 2.0
"""A level is the next plausible value: neighbours on a log scale lie about this factor apart."""


def same_value(one: bool | float | str, other: bool | float | str) -> bool:
    """Whether two values mean the same: 1 and 1.0 do, within float tolerance; 1 and True do not."""
    if _is_number(one) and _is_number(other):
        return math.isclose(float(one), float(other), rel_tol=1e-9)
    return type(one) is type(other) and one == other


def _is_number(value: bool | float | str) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def steps_of(low: float, high: float, scale: Literal["linear", "log"]) -> int:
    """How many values of a range to try where nobody said: 3, on a log scale so many that each doubles the last."""
    if scale == "linear":
        return LINEAR_STEPS
    return min(MOST_STEPS, max(2, 1 + round(math.log(high / low) / math.log(USUAL_RATIO))))


def spread(low: float, high: float, steps: int, scale: Literal["linear", "log"], *, integer: bool) -> list[float]:
    """`steps` ascending values from `low` to `high`; whole numbers, each once, where `integer`."""
    shares = [step / (steps - 1) for step in range(steps)]
    if scale == "log":
        values = [low * (high / low) ** share for share in shares]
    else:
        values = [low + (high - low) * share for share in shares]
    # Three digits between the ends: 0.00316 reads better than 0.0031622776601683795 and trains the same.
    values = [low, *(_rounded(value, low, high) for value in values[1:-1]), high]
    return list(dict.fromkeys(round(value) for value in values)) if integer else values


def _rounded(value: float, low: float, high: float) -> float:
    short = float(f"{value:.3g}")
    return short if low < short < high else value
