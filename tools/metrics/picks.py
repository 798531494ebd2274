"""Which of several printed values counts, in constant memory.

`last` takes the last value; when that one is not finite or not readable the metric has failed, whatever stood before.
`best` and `mean` need every value to be a finite number: a nan anywhere is a failure, never left out.

Repeated lines are counted as they come. Ranks of a distributed run print each line equally often, so the mean is the
same with and without the repeats; dropping equal neighbours instead would drop genuine values that happen to be equal.
"""

from __future__ import annotations

from typing import Literal

from nightlab.errors import MetricError

__all__ = ["Outcome", "Tally"]

Outcome = float | MetricError
"""One value as printed: a finite number, or why it is none."""


class Tally:
    """Takes outcomes in the order they were printed and gives the one value that counts."""

    def __init__(self, pick: Literal["last", "best", "mean"], *, maximize: bool) -> None:
        self._pick = pick
        self._maximize = maximize
        self._count = 0
        self._value = 0.0
        self._error: MetricError | None = None

    def add(self, outcome: Outcome) -> None:
        if isinstance(outcome, MetricError):
            self._error = self._error or outcome if self._pick != "last" else outcome
        else:
            self._count += 1
            self._value = self._merged(outcome)
            if self._pick == "last":
                self._error = None

    def _merged(self, value: float) -> float:
        if self._pick == "last" or self._count == 1:
            return value
        if self._pick == "best":
            return max(self._value, value) if self._maximize else min(self._value, value)
        # Divided before the difference is taken, so that two huge values of opposite sign do not overflow.
        return self._value + (value / self._count - self._value / self._count)

    def result(self) -> float | None:
        """The value that counts; None when nothing was added. Raises the MetricError of a value that counts."""
        if self._error is not None:
            raise self._error
        return self._value if self._count else None
