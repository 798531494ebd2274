"""Two files of predictions for the same examples, compared example by example."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from nightlab.errors import MetricError
from nightlab.tools.scoring.base import Indices
from nightlab.tools.scoring.intervals import Interval, resampled
from nightlab.tools.scoring.score import Score

__all__ = ["Comparison", "compare", "counted"]


@dataclass(frozen=True)
class Comparison:
    """How `second` differs from `first` on the examples that are in both; above 0, the second is better."""

    examples: int
    only_first: int
    only_second: int
    first: float
    second: float
    interval: Interval | None
    """Of the difference, over examples, not over seeds."""
    better: int | None
    """Examples that the second does better on; None where an example has no value by itself."""
    worse: int | None
    same: int | None

    @property
    def delta(self) -> float:
        return self.second - self.first


def compare(first: Score, second: Score) -> Comparison:
    """The paired comparison of two scores of one kind; both sides are resampled with the same examples.

    Examples are paired by their prompt (by their group), repeated ones by the order in which they come, and by their
    position where rows have no such field. Raises MetricError when the files have no example in common.
    """
    pairs = _pairs(first.keys, second.keys)
    if not pairs:
        raise MetricError("the two files have no example in common", cause="metric-unreadable")
    one, two = (np.array(places) for places in zip(*pairs, strict=True))

    def difference(at: Indices) -> float:
        return second.scorer.value(two[at]) - first.scorer.value(one[at])

    everywhere = np.arange(len(pairs))
    signs = _signs(first, second, pairs)
    return Comparison(
        examples=len(pairs),
        only_first=first.examples - len(pairs),
        only_second=second.examples - len(pairs),
        first=first.scorer.value(one),
        second=second.scorer.value(two),
        interval=resampled(difference, everywhere, resamples=first.scorer.resamples),
        better=signs[1] if signs is not None else None,
        worse=signs[-1] if signs is not None else None,
        same=signs[0] if signs is not None else None,
    )


def _pairs(first: list[int | None], second: list[int | None]) -> list[tuple[int, int]]:
    places = {name: position for position, name in enumerate(counted(second))}
    return [(position, places[name]) for position, name in enumerate(counted(first)) if name in places]


def counted(keys: list[int | None]) -> list[tuple[int | None, int]]:
    """Each key with how often it came before; for rows without one that is the position."""
    seen: Counter[int | None] = Counter()
    counted = []
    for key in keys:
        counted.append((key, seen[key]))
        seen[key] += 1
    return counted


def _signs(first: Score, second: Score, pairs: list[tuple[int, int]]) -> Counter[int] | None:
    """How many of the pairs the second is better (1), the same (0) or worse (−1) on."""
    signs: Counter[int] = Counter()
    for one, two in pairs:
        before, after = first.own_values[one], second.own_values[two]
        if before is None or after is None:
            return None
        signs[(after > before) - (after < before)] += 1
    return signs
