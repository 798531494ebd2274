"""Of equal results the simpler one: winners in the order in which a person should take them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Standing", "simplest_first"]


class Standing(NamedTuple):
    """A confirmed configuration."""

    number: int
    gain: float
    """Above 0 is better, in the metric's unit."""
    lines: int = 0
    """By how many lines its code grows; below 0 where it shrinks."""


def simplest_first(standings: Iterable[Standing], min_effect: float) -> list[Standing]:
    """The largest gain first; of those that it beats by less than `min_effect` the one with the least code.

    A difference that small is worth nothing, and every line has to be kept alive.
    """
    ranked = sorted(standings, key=lambda one: (-one.gain, one.number))
    equal = [one for one in ranked if ranked[0].gain - one.gain < min_effect or one is ranked[0]]
    return [*sorted(equal, key=lambda one: one.lines), *(one for one in ranked if one not in equal)]
