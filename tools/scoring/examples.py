"""From rows to what is scored: one example a row, or one a group of rows."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise

from nightlab.configs.scoring import LABELLED, ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.rows import NO_FIELD, Row, field_of

__all__ = ["Example", "as_text", "examples_of", "key_of", "names_between"]

SHOWN = 60


@dataclass(frozen=True)
class Example:
    """What is scored as one: label and prediction as they stand in the file, lists of them for a group."""

    line: int
    label: object
    prediction: object
    name: str | None
    """What tells it from others in both of two files; None where rows have no such field."""
    slice: str | None


def examples_of(rows: Iterable[tuple[int, Row]], settings: ScoringSettings) -> Iterator[Example]:
    """The examples in the order of the file, each group where its first row stands.

    Raises MetricError with cause `metric-unreadable` for a row without one of the fields.
    """
    singles = (_example(number, row, settings) for number, row in rows)
    if settings.group_by is None:
        yield from singles
        return
    groups: dict[str, list[Example]] = {}
    for example in singles:
        groups.setdefault(example.name or "", []).append(example)
    for name, group in groups.items():
        first = group[0]
        yield Example(first.line, [e.label for e in group], [e.prediction for e in group], name, first.slice)


def _example(number: int, row: Row, settings: ScoringSettings) -> Example:
    label = _required(number, row, "label", settings.label) if settings.kind in LABELLED else None
    prediction = _required(number, row, "prediction", settings.prediction)
    if label is None and settings.kind in LABELLED:
        raise MetricError(f"line {number}: the label is null", cause="metric-unreadable")
    if settings.group_by is None:
        found = field_of(row, settings.prompt)
        name = None if found is NO_FIELD else as_text(found)
    else:
        name = as_text(_required(number, row, "group_by", settings.group_by))
    return Example(number, label, prediction, name, _slice(number, row, settings))


def _required(number: int, row: Row, key: str, name: str) -> object:
    value = field_of(row, name)
    if value is NO_FIELD:
        known = ", ".join(row)[:SHOWN] or "nothing"
        raise MetricError(
            f"line {number} has no field {name}; it has {known} ({key} names the field)", cause="metric-unreadable"
        )
    return value


def _slice(number: int, row: Row, settings: ScoringSettings) -> str | None:
    if settings.slice_by is None:
        return None
    value = _required(number, row, "slice_by", settings.slice_by)
    if not settings.slice_edges:
        return as_text(value)[:SHOWN]
    size = value if isinstance(value, int | float) and not isinstance(value, bool) else len(as_text(value))
    return names_between(settings.slice_edges)[bisect_right(settings.slice_edges, size)]


def names_between(edges: list[float]) -> list[str]:
    """The slices that rising limits make, in their order; a limit belongs to the slice above it."""
    between = [f"{low:g} to {high:g}" for low, high in pairwise(edges)]
    return [f"below {edges[0]:g}", *between, f"{edges[-1]:g} and more"]


def as_text(value: object) -> str:
    """Text as it is, nothing for null, anything else as JSON; halves of characters become question marks."""
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "replace").decode()


def key_of(name: str) -> int:
    """64 bits for a name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "big")
