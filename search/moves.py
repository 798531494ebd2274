"""The configurations worth considering next: moves of one variable, of two, and jumps, around the incumbent."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np

from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Axis, Lattice, Point

__all__ = ["cliffs", "is_near", "joint_moves", "jumps", "single_moves"]

FARTHEST = 3
"""Levels by which a move of one ordered factor may go at most: far jumps in a learning rate diverge."""
FARTHEST_IN_PAIR = 2
"""Levels by which each ordered factor of a joint move may go at most."""
MOST_PAIRS = 1500
JUMPS = 300


def single_moves(lattice: Lattice, centre: Point) -> Iterator[Point]:
    """Every configuration that differs from `centre` in one active factor, in ranked order."""
    for index, axis in enumerate(lattice.axes):
        if lattice.active(centre, index):
            for position in (*axis.preferred, axis.baseline):
                far = axis.factor.ordered and abs(position - centre[index]) > FARTHEST
                if position != centre[index] and not far:
                    yield lattice.moved(centre, (index, position))


def joint_moves(lattice: Lattice, centre: Point) -> Iterator[Point]:
    """Every configuration that differs from `centre` in two factors, ordered ones by few levels."""
    near = [_near(lattice, centre, index) for index in range(len(lattice.axes))]
    for one, other in combinations(range(len(lattice.axes)), 2):
        for mine in near[one]:
            for theirs in near[other]:
                yield lattice.moved(centre, (one, mine), (other, theirs))


def _near(lattice: Lattice, centre: Point, index: int) -> list[int]:
    axis = lattice.axes[index]
    others = (position for position in range(len(axis.settings)) if position != centre[index])
    return [at for at in others if not axis.factor.ordered or abs(at - centre[index]) <= FARTHEST_IN_PAIR]


def jumps(lattice: Lattice, centre: Point, random: np.random.Generator) -> Iterator[Point]:
    """Configurations that differ from `centre` in two to four factors, and in any number; ordered ones within reach.

    The far corners of a space are the least known and seldom worth a run.
    """
    spans = [_span(axis, at) for axis, at in zip(lattice.axes, centre, strict=True)]
    for _ in range(JUMPS):
        count = min(len(spans), int(random.integers(2, 5)))
        chosen = random.choice(len(spans), size=count, replace=False)
        yield lattice.moved(centre, *((int(axis), int(random.integers(*spans[axis]))) for axis in chosen))
    for _ in range(JUMPS):
        yield lattice.canonical(tuple(int(random.integers(*span)) for span in spans))


def _span(axis: Axis, at: int) -> tuple[int, int]:
    """Positions within reach of `at`, the first and the one behind the last."""
    size = len(axis.settings)
    return (max(0, at - FARTHEST), min(size, at + FARTHEST + 1)) if axis.factor.ordered else (0, size)


def is_near(lattice: Lattice, point: Point, centre: Point) -> bool:
    """Whether `point` differs from `centre` in one or two factors, ordered ones by one level."""
    moved = [index for index in range(len(point)) if point[index] != centre[index]]
    ordered = [index for index in moved if lattice.axes[index].factor.ordered]
    return 0 < len(moved) <= 2 and all(abs(point[index] - centre[index]) == 1 for index in ordered)


def cliffs(landscape: Landscape) -> list[tuple[int, int, int]]:
    """Where runs fail: `(axis, position, direction)`; direction 0 on a categorical axis.

    A failed configuration that differs from a sound one in a single factor shows which factor it is, and the side;
    where another one ran well out there, it was the company that failed.
    """
    sound = [seen.point for seen in landscape.measured if seen.sound]
    found: list[tuple[int, int, int]] = []
    for point in (seen.point for seen in landscape.failed):
        for other in sound:
            apart = [axis for axis in range(len(point)) if point[axis] != other[axis]]
            if len(apart) == 1:
                axis = apart[0]
                ordered = landscape.lattice.axes[axis].factor.ordered
                found.append((axis, point[axis], int(np.sign(point[axis] - other[axis])) if ordered else 0))
    # Where something sound lies beyond, the factor alone does not make it fail.
    return [wall for wall in dict.fromkeys(found) if not any(beyond(point, wall) for point in sound)]


def beyond(point: Point, cliff: tuple[int, int, int]) -> bool:
    """Whether a configuration is at the cliff or farther out."""
    axis, position, direction = cliff
    return point[axis] == position or direction * (point[axis] - position) > 0
