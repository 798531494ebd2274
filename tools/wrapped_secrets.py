"""Secrets in base64 text that is broken into lines, as `base64`, PEM and MIME write it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping

from nightlab.tools.redaction_pass import Found, Pass
from nightlab.tools.secret_probe import PROBE_BYTES, Probe

__all__ = ["wrapped_pass"]

HEAD_CHARACTERS = 2 * PROBE_BYTES
"""How a match begins. Lines are longer than this, so that one half of it stands unbroken."""
MAX_BREAK_BYTES = 2 + 16
# As a log holds it, indented or not, or as JSON and Python write it.
_BREAK = rb"(?:\r?\n[ \t]{0,16}|(?:\\r)?\\n)"
_ONE_BREAK = re.compile(_BREAK)


def wrapped_pass(replacements: Mapping[bytes, bytes]) -> Pass | None:
    """Looks for each of these base64 texts, wherever its lines are broken; None where all are too short for that."""
    of_head: dict[bytes, list[bytes]] = defaultdict(list)
    for text in sorted(replacements, key=lambda text: (-len(text), text)):
        if len(text) > HEAD_CHARACTERS:
            of_head[text[:HEAD_CHARACTERS]].append(text)
    if not of_head:
        return None
    heads = re.compile(b"|".join(map(_broken, sorted(of_head))))

    def find(data: bytes, start: int) -> Iterator[Found]:
        if b"\n" not in data and rb"\n" not in data:
            return
        for match in heads.finditer(data, start):
            if match.start() < start:
                continue
            for text in of_head[_ONE_BREAK.sub(b"", match[0])]:
                if end := _end_of(text[HEAD_CHARACTERS:], data, match.end()):
                    yield Found(match.start(), end, replacements[text])
                    start = end
                    break

    longest = max(map(len, replacements))
    halves = [half for head in of_head for half in (head[:PROBE_BYTES], head[PROBE_BYTES:])]
    # A break stands after sixteen characters at the earliest.
    return Pass(find, longest + (longest // 16 + 1) * MAX_BREAK_BYTES, probe=Probe(halves))


def _broken(head: bytes) -> bytes:
    return (_BREAK + b"?").join(re.escape(head[i : i + 1]) for i in range(len(head)))


def _end_of(rest: bytes, data: bytes, position: int) -> int | None:
    """Where `rest` ends that goes on at `position`, breaks passed over; None where it does not."""
    done = 0
    while done < len(rest):
        if data[position : position + 1] == rest[done : done + 1]:
            position, done = position + 1, done + 1
        elif found := _ONE_BREAK.match(data, position):
            position = found.end()
        else:
            return None
    return position
