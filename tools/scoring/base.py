"""What every score is made of: something kept of each example, and a value of any selection of examples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nightlab.tools.scoring.examples import Example

__all__ = ["Column", "Indices", "Mean", "Scorer"]

Indices = NDArray[np.int64]
"""Positions of examples, in the order they were added; one may stand there several times."""


class Scorer(Protocol):
    """One score over one file."""

    resamples: int
    """How often it is computed anew for an interval, at most."""

    def add(self, example: Example) -> float | None:
        """Take in the next example; its own value, larger is better, or None where an example has none by itself.

        Raises MetricError with cause `metric-unreadable` that names the line.
        """
        ...

    def value(self, at: Indices) -> float:
        """The score of the examples at `at` (at least one); nan where it is not defined."""
        ...


class Column:
    """What is kept of each example: a number, or as many for each."""

    def __init__(self) -> None:
        self._items: list[float | list[int]] = []
        self._array: NDArray[Any] | None = None

    def add(self, item: float | list[int]) -> None:
        self._items.append(item)
        self._array = None

    def at(self, at: Indices) -> NDArray[Any]:
        """Of the examples at `at`: one number or one row each."""
        if self._array is None:
            self._array = np.array(self._items)
        return self._array[at]


class Mean:
    """A score that is the mean of what each example has by itself."""

    resamples = 1000

    def __init__(self, of: Callable[[Example], float]) -> None:
        self._of = of
        self._values = Column()

    def add(self, example: Example) -> float:
        value = self._of(example)
        self._values.add(value)
        return value

    def value(self, at: Indices) -> float:
        return float(self._values.at(at).mean())
