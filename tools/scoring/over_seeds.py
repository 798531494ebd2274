"""Two configurations compared example by example, each trained with several seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nightlab.errors import MetricError
from nightlab.tools.scoring.base import Indices
from nightlab.tools.scoring.compare import counted
from nightlab.tools.scoring.intervals import Interval, resampled
from nightlab.tools.scoring.score import MOST_SLICES, Score

__all__ = ["SeedsCompared", "SliceCompared", "compare_over_seeds"]

SAME = 1e-9
"""Differences of one example up to which it counts as the same."""


@dataclass(frozen=True)
class SliceCompared:
    """One slice's means over seeds."""

    name: str
    examples: int
    before: float
    after: float
    interval: Interval | None
    """Of the difference, over the slice's examples."""


@dataclass(frozen=True)
class SeedsCompared:
    """Means over seeds on the examples that all files hold; above 0 the second configuration is better."""

    seeds: int
    examples: int
    left_out: int
    """Examples of the first file that another one lacks."""
    before: float
    after: float
    interval: Interval | None
    """Of the difference, over examples with these seeds; how much seeds differ it does not say."""
    better: int | None
    """Examples with a better mean over seeds; None where an example has no value by itself."""
    worse: int | None
    same: int | None
    slices: list[SliceCompared]
    """The largest."""


class _Pairs:
    """The scores of both configurations, seed by seed, with the common examples in one order."""

    def __init__(self, pairs: Sequence[tuple[Score, Score]]) -> None:
        self.first = pairs[0][0]
        names = counted(self.first.keys)
        places = [[{name: at for at, name in enumerate(counted(one.keys))} for one in pair] for pair in pairs]
        self.common = [name for name in names if all(name in held for pair in places for held in pair)]
        if not self.common:
            raise MetricError("the files have no example in common", cause="metric-unreadable")
        self.sides: list[list[tuple[Score, Indices]]] = [[], []]
        for pair, held in zip(pairs, places, strict=True):
            for side, score, at in zip(self.sides, pair, held, strict=True):
                side.append((score, np.array([at[name] for name in self.common])))

    def value(self, side: int, at: Indices) -> float:
        return statistics.fmean(score.scorer.value(positions[at]) for score, positions in self.sides[side])

    def difference(self, at: Indices) -> float:
        return self.value(1, at) - self.value(0, at)

    def interval(self, at: Indices) -> Interval | None:
        return resampled(self.difference, at, resamples=self.first.scorer.resamples)

    def signs(self) -> list[int] | None:
        """Of each example: 1 better, 0 the same, -1 worse."""
        means = [self._own(side) for side in (0, 1)]
        if any(None in own for own in means):
            return None
        changes = [
            after - before for before, after in zip(*means, strict=True) if before is not None and after is not None
        ]
        return [0 if abs(change) <= SAME else int(math.copysign(1, change)) for change in changes]

    def _own(self, side: int) -> list[float | None]:
        columns = [[score.own_values[at] for at in positions] for score, positions in self.sides[side]]
        return [_mean(values) for values in zip(*columns, strict=True)]

    def slices(self) -> list[SliceCompared]:
        first, positions = self.sides[0][0]
        places: dict[str, list[int]] = {}
        for place, position in enumerate(positions):
            if (name := first.slice_of[position]) is not None:
                places.setdefault(name, []).append(place)
        largest = sorted(places, key=lambda name: (-len(places[name]), name))[:MOST_SLICES]
        found = [self._slice(name, np.array(places[name])) for name in largest]
        return [one for one in found if math.isfinite(one.after - one.before)]

    def _slice(self, name: str, at: Indices) -> SliceCompared:
        return SliceCompared(name, len(at), self.value(0, at), self.value(1, at), self.interval(at))


def compare_over_seeds(pairs: Sequence[tuple[Score, Score]]) -> SeedsCompared:
    """The paired comparison of two configurations, a pair of scores for each seed; all are resampled together.

    Examples are paired as `compare` does. Raises MetricError when the files have no example in common.
    """
    held = _Pairs(pairs)
    everywhere, signs = np.arange(len(held.common)), held.signs()
    return SeedsCompared(
        seeds=len(pairs),
        examples=len(held.common),
        left_out=held.first.examples - len(held.common),
        before=held.value(0, everywhere),
        after=held.value(1, everywhere),
        interval=held.interval(everywhere),
        better=signs.count(1) if signs is not None else None,
        worse=signs.count(-1) if signs is not None else None,
        same=signs.count(0) if signs is not None else None,
        slices=held.slices(),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if len(known) == len(values) else None
