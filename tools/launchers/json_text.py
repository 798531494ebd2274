"""Changes one value in JSON text and leaves every other character as it is, so that a diff shows only that value."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nightlab.configs.study import Scalar

__all__ = ["dumps", "loads", "put"]

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class _Member:
    """One member of an object: where its key starts and where its value starts and ends."""

    key: str
    start: int
    value_start: int
    value_end: int


def loads(text: str) -> object:
    """Raises ValueError."""
    return json.loads(text)


def dumps(document: object) -> str:
    """Text of a new file, keys in their order. Raises ValueError for nan and infinity, which JSON does not have."""
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def put(text: str, path: Sequence[str], value: Scalar) -> str:
    """The text with `value` at `path`; missing objects on the way are added. `text` is a JSON object."""
    start = _after_space(text, 0)
    for depth, key in enumerate(path):
        members = list(_members(text, start))
        member = next((m for m in reversed(members) if m.key == key), None)
        if member is None:
            return _insert(text, start, members, key, _nested(path[depth + 1 :], value))
        start, end = member.value_start, member.value_end
    return text[:start] + _inline(value) + text[end:]


def _members(text: str, start: int) -> Iterator[_Member]:
    position = _after_space(text, start + 1)
    while text[position] != "}":
        key, after_key = _DECODER.raw_decode(text, position)
        value_start = _after_space(text, _after_space(text, after_key) + 1)
        _, value_end = _DECODER.raw_decode(text, value_start)
        yield _Member(key, position, value_start, value_end)
        position = _after_space(text, value_end)
        if text[position] == ",":
            position = _after_space(text, position + 1)


def _insert(text: str, start: int, members: list[_Member], key: str, value: object) -> str:
    entry = f"{_inline(key)}: {_inline(value)}"
    if not members:
        return text[: start + 1] + entry + text[_after_space(text, start + 1) :]
    last = members[-1]
    before_last = text[members[-2].value_end if len(members) > 1 else start + 1 : last.start].lstrip(", ")
    gap = before_last if "\n" in before_last else " "
    return f"{text[: last.value_end]},{gap}{entry}{text[last.value_end :]}"


def _nested(path: Sequence[str], value: Scalar) -> object:
    nested: object = value
    for key in reversed(path):
        nested = {key: nested}
    return nested


def _inline(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _after_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position
