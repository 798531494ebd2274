"""What one level of load came to: counts while it runs, percentiles when it has ended."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

__all__ = ["LevelTally"]

PERCENTILES = (50, 90, 99)
MOST_KINDS = 20
OTHER = "others"


def _milliseconds() -> array[float]:
    return array("d")


@dataclass
class LevelTally:
    """The requests of one level; two numbers are kept of each, its answer is not."""

    concurrency: int
    latency_ms: array[float] = field(default_factory=_milliseconds)
    """Of every request that was answered, from sending to the last byte."""
    first_token_ms: array[float] = field(default_factory=_milliseconds)
    """Of every streamed answer, from sending to the first piece of text."""
    errors: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    """Written by the model."""
    counted: int = 0
    """Answers whose tokens the server did not tell: the pieces or words of their text are counted."""
    warm_up: int = 0
    """Requests sent before the clock, in none of the figures."""
    seconds: float = 0.0
    """From the first request to the last answer."""

    def answered(self, latency_ms: float, tokens: int, *, told: bool, first_token_ms: float | None) -> None:
        """Count one good answer."""
        self.latency_ms.append(latency_ms)
        self.tokens += tokens
        self.counted += not told
        if first_token_ms is not None:
            self.first_token_ms.append(first_token_ms)

    def failed(self, kind: str) -> None:
        """Count one request that was not answered as it should be."""
        known = kind in self.errors or len(self.errors) < MOST_KINDS
        self.errors[kind if known else OTHER] += 1

    @property
    def figures(self) -> dict[str, Any]:
        """For JSON; what nothing was measured of is None."""
        answered, failed = len(self.latency_ms), self.errors.total()
        return {
            "concurrency": self.concurrency,
            "requests": answered + failed,
            "answered": answered,
            "errors": failed,
            "error_share": failed / (answered + failed) if answered + failed else None,
            "error_kinds": dict(self.errors),
            "warm_up": self.warm_up,
            "seconds": self.seconds,
            "requests_per_second": answered / self.seconds if self.seconds else None,
            "latency_ms": spread(self.latency_ms),
            "first_token_ms": spread(self.first_token_ms),
            "tokens": self.tokens,
            "tokens_per_second": self.tokens / self.seconds if self.seconds else None,
            "tokens_from": self._tokens_from(answered),
        }

    def _tokens_from(self, answered: int) -> str | None:
        if not answered:
            return None
        return "usage" if not self.counted else "counted" if self.counted == answered else "both"


def spread(values: array[float]) -> dict[str, float | int] | None:
    """Percentiles, mean and extremes of some values, with how many there are; None without any."""
    if not values:
        return None
    held = np.frombuffer(values, dtype=np.float64).copy()
    at = np.percentile(held, PERCENTILES)
    named = {f"p{share}": float(value) for share, value in zip(PERCENTILES, at, strict=True)}
    return named | {"mean": float(held.mean()), "max": float(held.max()), "count": len(held)}
