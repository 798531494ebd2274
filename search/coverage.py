"""Which levels some configuration has held already."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nightlab.search.lattice import Lattice, Point

__all__ = ["Coverage"]


class Coverage:
    """The positions of each axis at which something was run, or is about to be."""

    def __init__(self, lattice: Lattice, points: Iterable[Point]) -> None:
        self._axes = lattice.axes
        self._held: list[set[int]] = [set() for _ in lattice.axes]
        self._counted = 0
        self._add(points)

    def _add(self, points: Iterable[Point]) -> None:
        for point in points:
            for held, at in zip(self._held, point, strict=True):
                held.add(at)

    def untried(self, since: Sequence[Point], among: Sequence[int]) -> list[tuple[int, int]]:
        """Levels of the axes `among` that no configuration has held yet, `(axis, position)`.

        Only those of the axes never moved, where there are any. `since`: what was proposed since; a list that only
        grows, so that each point is counted once.
        """
        self._add(since[self._counted :])
        self._counted = len(since)
        never_moved = [axis for axis in among if len(self._held[axis]) == 1]
        return [
            (axis, at)
            for axis in never_moved or among
            for at in range(len(self._axes[axis].settings))
            if at not in self._held[axis]
        ]
