"""The worst examples, for people and for the analysis: few, and short."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from nightlab.tools.scoring.examples import Example, as_text

__all__ = ["BadCase", "Worst"]

SHOWN_CHARACTERS = 500


@dataclass(frozen=True)
class BadCase:
    """One example the model did badly on; texts are cut to 500 characters."""

    line: int
    value: float
    prompt: str
    label: str
    prediction: str
    slice: str | None = None


class Worst:
    """Keeps the examples with the lowest values, the earlier ones among equals."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._heap: list[tuple[float, int, BadCase]] = []

    def add(self, value: float, example: Example) -> None:
        if not self._most:
            return
        rank = (-value, -example.line)
        if len(self._heap) < self._most:
            heapq.heappush(self._heap, (*rank, _case(value, example)))
        elif rank > self._heap[0][:2]:
            heapq.heapreplace(self._heap, (*rank, _case(value, example)))

    @property
    def cases(self) -> list[BadCase]:
        """Worst first."""
        return [case for *_, case in sorted(self._heap, reverse=True)]


def _case(value: float, example: Example) -> BadCase:
    label = "" if example.label is None else _short(as_text(example.label))
    prompt = _short(example.name or "")
    return BadCase(example.line, value, prompt, label, _short(as_text(example.prediction)), example.slice)


def _short(text: str) -> str:
    """The start and the end: a prompt's question stands at its end."""
    text = text.strip()
    half = SHOWN_CHARACTERS // 2
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:half]}…{text[-half + 1 :]}"
