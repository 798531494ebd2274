"""Which signatures may match a line, and whether the line raises an exception: fast on long, repetitive logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from nightlab.knowledge.signatures import Signature, Signatures
from nightlab.tools.failures.words import any_of, required_words

__all__ = ["LineMatcher", "LineShape"]

# Logs repeat themselves but for their digits, so a line's shape is worked out once; both bound the memory.
_MAX_SHAPES = 10_000
_LONGEST_SHAPE = 400
_DIGITS = str.maketrans("123456789", "0" * 9)

# What launchers put before a line: [rank3]:, (Worker pid=7), 12:, [1,3]<stderr>:
_PREFIX = re.compile(r"(?:\[[^\[\]]{1,60}\]:? ?|\([^()]{1,80}\) ?|\d{1,6}: ?|<std(?:err|out)>: ?)*")
_RAISED = re.compile(r"(?:[A-Za-z_]\w*\.){0,12}\w*(?:[Ee]rror|Exception|Exit|Interrupt|OutOfResources)(?::|\s*$)")
_FRAME = re.compile(r'\s*File "[^"]+", line \d+')


@dataclass(frozen=True)
class LineShape:
    """What holds of a line whatever its digits."""

    candidates: tuple[tuple[int, Signature], ...]
    """Signatures that may match it, with their place in the order."""
    raised: bool
    """Whether it is the message of an exception."""
    frame: bool
    """Whether it names a source line in a traceback."""
    indented: bool

    def matches(self, text: str) -> Iterator[tuple[int, Signature, re.Match[str]]]:
        for order, signature in self.candidates:
            if match := signature.pattern.search(text):
                yield order, signature, match


class LineMatcher:
    def __init__(self, signatures: Signatures) -> None:
        self._signatures = tuple(enumerate(signatures.entries))
        self._always: set[int] = set()
        self._by_word: dict[str, set[int]] = {}
        for order, signature in self._signatures:
            words = required_words(signature.regex)
            if words is None:
                self._always.add(order)
            for word in words or ():
                self._by_word.setdefault(word.translate(_DIGITS), set()).add(order)
        self._any_word = any_of(self._by_word)
        self._shapes: dict[str, LineShape] = {}

    def shape(self, text: str) -> LineShape:
        masked = text.translate(_DIGITS)
        known = self._shapes.get(masked)
        if known is not None:
            return known
        shape = self._shape(masked)
        if len(masked) <= _LONGEST_SHAPE:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            self._shapes[masked] = shape
        return shape

    def _shape(self, masked: str) -> LineShape:
        orders = set(self._always)
        if self._any_word.search(masked):
            orders.update(*(found for word, found in self._by_word.items() if word in masked))
        prefix = _PREFIX.match(masked)
        rest = masked[prefix.end() :] if prefix else masked
        return LineShape(
            candidates=tuple(self._signatures[order] for order in sorted(orders)),
            raised=bool(_RAISED.match(rest)),
            frame=bool(_FRAME.match(rest)),
            indented=rest.startswith("    "),
        )
