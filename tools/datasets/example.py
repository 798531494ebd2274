"""One row of training data, whatever its format was."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["LONGEST_TEXT", "Example", "writable"]

LONGEST_TEXT = 20_000
"""Characters of a text that are looked at; its length is counted in full."""

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def writable(text: str) -> str:
    """The text with U+FFFD for what JSON can escape and no file can hold."""
    return _SURROGATE.sub("\ufffd", text)


@dataclass(frozen=True)
class Example:
    """What the model reads and what it is to write; texts are cut at `LONGEST_TEXT`, lengths are characters in full."""

    prompt: str
    """Everything before the answer: system text, history, instruction, input. Empty for plain text."""
    response: str
    """The answer, the chosen one of a pair, or the plain text."""
    rejected: str | None = None
    """The other answer of a preference pair."""
    label: str | None = None
    """The class of the row, where it has one."""
    prompt_length: int = 0
    response_length: int = 0
    rejected_length: int = 0

    @classmethod
    def of(cls, prompt: str, response: str, *, rejected: str | None = None, label: str | None = None) -> Example:
        return cls(
            writable(prompt[:LONGEST_TEXT]),
            writable(response[:LONGEST_TEXT]),
            None if rejected is None else writable(rejected[:LONGEST_TEXT]),
            None if label is None else writable(label),
            len(prompt),
            len(response),
            len(rejected or ""),
        )

    @property
    def size(self) -> int:
        """Characters held in memory."""
        return len(self.prompt) + len(self.response) + len(self.rejected or "")
