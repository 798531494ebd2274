"""The lines of a log of any size and content, with flat memory.

A line ends at a newline or a carriage return (progress bars). Escape sequences of terminals are taken out, other
control characters become spaces, bytes that are no UTF-8 become U+FFFD. Of a line longer than twice the limit only
its first and last `limit` bytes are kept, as two lines, each cut back to a delimiter so that no number is torn.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["clean", "numbered_lines", "search_word", "text_lines"]

_CHUNK_BYTES = 1 << 16
_LIMIT_BYTES = 1 << 15
_ESCAPE = b"\x1b"
_DELIMITERS = (b" ", b"\t", b",", b";", b"|")

# Colours and erasures may stand inside a word; cursor movements separate words.
# Styles, and strings a terminal takes in without showing them (OSC, DCS, SOS, PM, APC): no reader must believe those.
_STRING = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*+"
# A string without an end stays as it is, and is passed over at once: each of its signs may begin another.
_STYLE = re.compile(rf"\x1b\[[0-9;:]*[mK]|{_STRING}(?:\x07|\x1b\\|\x9c)|(?P<endless>{_STRING})")
_MOVEMENT = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[0-Z\\^-~]|[ -/]+[0-~])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def search_word(name: str) -> str:
    """The longest run of ASCII letters, digits and underscores in `name`: present wherever the name is printed."""
    return max(re.findall(r"[A-Za-z0-9_]+", name), key=len, default="")


def clean(text: str) -> str:
    """The text without terminal escape sequences and control characters."""
    if _CONTROL.search(text):
        text = _CONTROL.sub(" ", _MOVEMENT.sub(" ", _STYLE.sub(lambda found: found["endless"] or "", text)))
    return text.removeprefix("\ufeff")


def text_lines(path: Path, *, containing: str = "", limit_bytes: int = _LIMIT_BYTES) -> Iterator[str]:
    """The non-empty lines of a file, cleaned; with `containing` only those that hold this ASCII word.

    Raises OSError.
    """
    return (text for _, text in numbered_lines(path, containing=containing, limit_bytes=limit_bytes))


def numbered_lines(path: Path, *, containing: str = "", limit_bytes: int = _LIMIT_BYTES) -> Iterator[tuple[int, str]]:
    """As `text_lines`, each with the number an editor shows (from 1): only newlines count, carriage returns do not."""
    needle = containing.encode()
    for number, raw in _raw_lines(path, needle, limit_bytes):
        # Escape sequences may split the word, so such a line is judged once it is clean.
        if needle in raw or _ESCAPE in raw:
            text = clean(raw.decode("utf-8", errors="replace"))
            if containing in text and text.strip():
                yield number, text


def _raw_lines(path: Path, needle: bytes, limit: int) -> Iterator[tuple[int, bytes]]:
    number, pending, torn = 1, b"", False
    with path.open("rb") as log:
        while chunk := log.read(_CHUNK_BYTES):
            pending += chunk
            end = max(pending.rfind(b"\n"), pending.rfind(b"\r")) + 1
            if end:
                block, pending = pending[:end], pending[end:]
                if needle in block or _ESCAPE in block:
                    yield from _split(block, limit, number, torn=torn)
                number += block.count(b"\n")
                torn = False
            if len(pending) > 2 * limit:
                if not torn:
                    yield number, _head(pending[:limit])
                pending, torn = pending[-limit:], True
    yield from _split(pending, limit, number, torn=torn)


def _split(block: bytes, limit: int, first: int, *, torn: bool) -> Iterator[tuple[int, bytes]]:
    """Lines of a block; `torn` when the block starts within a line whose beginning is already gone."""
    for number, line in enumerate(block.split(b"\n"), first):
        for part in line.split(b"\r"):
            if torn:
                yield number, _tail(part[-limit:])
                torn = False
            elif len(part) > 2 * limit:
                yield number, _head(part[:limit])
                yield number, _tail(part[-limit:])
            elif part:
                yield number, part


def _head(window: bytes) -> bytes:
    return window[: max(window.rfind(delimiter) for delimiter in _DELIMITERS) + 1]


def _tail(window: bytes) -> bytes:
    starts = [position for delimiter in _DELIMITERS if (position := window.find(delimiter)) >= 0]
    return window[min(starts) :] if starts else b""
