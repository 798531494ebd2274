"""The failure-rate breaker: runs that all die the same way are not repeated all night."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Outcome", "Trip", "tripped"]


@dataclass(frozen=True)
class Outcome:
    """How one run ended for good, all its retries behind it."""

    number: int
    """The experiment's."""
    cause: str | None
    """Signature id, or another short identifier of why it failed; None for a success."""
    factors: frozenset[str] = frozenset()
    """What the experiment changed; empty for the baseline."""


@dataclass(frozen=True)
class Trip:
    """What is not to be tried any more, and why."""

    cause: str
    factor: str | None
    """The factor that is blocked; None: the whole study."""
    numbers: tuple[int, ...]
    """The experiments behind it, in the order they failed."""
    failures: int
    """Runs that failed this way since the last success."""

    def __str__(self) -> str:
        what = "the study" if self.factor is None else self.factor
        numbers = ", ".join(f"{number:02d}" for number in self.numbers)
        return f"{what}: {self.failures} runs failed with {self.cause} and none succeeded since (experiments {numbers})"


def tripped(history: Sequence[Outcome], limit: int = 3) -> tuple[Trip, ...]:
    """What the breaker blocks after `history` (oldest first), the study before the factors.

    `limit` equal causes with no success since block the factor that all the failed runs changed; where they have none
    in common (different factors, or the baseline among them) they block the study. To let the lab go on after a
    person's answer, give only the history since then.
    """
    return (*_of_study(history, limit), *_of_factors(history, limit))


def _of_study(history: Sequence[Outcome], limit: int) -> Iterator[Trip]:
    for cause, failed in _failures(history).items():
        if len(failed) >= limit and not frozenset.intersection(*(outcome.factors for outcome in failed)):
            yield _trip(cause, None, failed)


def _of_factors(history: Sequence[Outcome], limit: int) -> Iterator[Trip]:
    for factor in dict.fromkeys(name for outcome in history for name in sorted(outcome.factors)):
        for cause, failed in _failures([outcome for outcome in history if factor in outcome.factors]).items():
            if len(failed) >= limit:
                yield _trip(cause, factor, failed)


def _failures(history: Sequence[Outcome]) -> dict[str, list[Outcome]]:
    """Cause → the failures since the last success."""
    found: dict[str, list[Outcome]] = {}
    for outcome in history:
        if outcome.cause is None:
            found.clear()
        else:
            found.setdefault(outcome.cause, []).append(outcome)
    return found


def _trip(cause: str, factor: str | None, failed: list[Outcome]) -> Trip:
    return Trip(cause, factor, tuple(dict.fromkeys(outcome.number for outcome in failed)), len(failed))
