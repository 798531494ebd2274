"""One thing to take out of a text or, in flat memory, of a log: what cannot hold it passes through untouched."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from nightlab.tools.secret_probe import Probe

__all__ = ["Found", "Pass", "pattern_finder"]

STEP_BYTES = 1 << 16
LOOK_BEHIND_BYTES = 32
SEAM_BYTES = 64
"""No hint, and nothing a probe looks at, is longer."""
SHORT_BYTES = 2048
"""In a shorter text looking is as quick as probing."""


class Found(NamedTuple):
    """What is to be replaced, and by what."""

    start: int
    end: int
    replacement: bytes


Finder = Callable[[bytes, int], Iterator[Found]]
"""Everything to replace in some data from a position on, in order, nothing twice."""


def pattern_finder(pattern: re.Pattern[bytes], replace: Callable[[re.Match[bytes]], bytes]) -> Finder:
    def find(data: bytes, start: int) -> Iterator[Found]:
        return (Found(match.start(), match.end(), replace(match)) for match in pattern.finditer(data, start))

    return find


@dataclass(frozen=True)
class Pass:
    """What to look for, the longest match with what it looks at around it, and two quick ways to say that it is not
    there: a piece of text that every match holds, and a probe for how matches begin."""

    find: Finder
    longest_bytes: int
    hint: bytes = b""
    probe: Probe | None = None

    def may_hold(self, data: bytes) -> bool:
        """False where a first look shows that nothing in `data` begins and ends there."""
        return self.hint in data and (self.probe is None or self.probe.may_hold(data))

    def redacted(self, data: bytes) -> bytes:
        """The data with every match replaced."""
        if self.hint not in data or (len(data) > SHORT_BYTES and not self.may_hold(data)):
            return data
        return self._substituted(data, 0, len(data))[0]

    def stream(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """A log in pieces of any size, every match replaced, also one that is split between pieces.

        A block is given out as it is once the next one, too, cannot hold a match: blocks are no shorter than matches,
        so that one from the first would show in either. Around the others what may still become a match is held back,
        with a few bytes for looking behind.
        """
        held, done, clean = b"", 0, True
        for block in _grouped(chunks, max(STEP_BYTES, self.longest_bytes)):
            if clean and not self.may_hold(block) and not self.may_hold(held[-SEAM_BYTES:] + block[:SEAM_BYTES]):
                if len(held) > done:
                    yield held[done:]
                held, done = block, 0
                continue
            held += block
            out, position = self._substituted(held, done, len(held) - self.longest_bytes)
            yield out
            done = min(position, LOOK_BEHIND_BYTES)
            held = held[position - done :]
            clean = not self.may_hold(held)
        yield self._substituted(held, done, len(held))[0]

    def _substituted(self, data: bytes, start: int, end: int) -> tuple[bytes, int]:
        """The data from `start` on with every match that starts before `end` replaced, and where that ends."""
        out, position = [], start
        if self.hint in data:
            for found in self.find(data, start):
                if found.start >= end:
                    break
                out += [data[position : found.start], found.replacement]
                position = found.end
        if position < end:
            out.append(data[position:end])
            position = end
        return b"".join(out), position


def _grouped(chunks: Iterable[bytes], size_bytes: int) -> Iterator[bytes]:
    """The chunks joined to blocks of at least this size; only the last may be shorter."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    for chunk in chunks:
        waiting.append(chunk)
        waiting_bytes += len(chunk)
        if waiting_bytes >= size_bytes:
            yield waiting[0] if len(waiting) == 1 else b"".join(waiting)
            waiting, waiting_bytes = [], 0
    if waiting_bytes:
        yield b"".join(waiting)
