"""The rows of a JSONL file of predictions, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.errors import MetricError

__all__ = ["Row", "Rows", "field_of"]

BROKEN_SHARE = 0.01
LONGEST_ROW_BYTES = 1 << 20
MOST_ROWS = 1_000_000
SHOWN = 5
NO_FIELD = object()

Row = dict[str, object]


@dataclass
class Rows:
    """Reads a file once; after that the counts say how much of it could be read."""

    path: Path
    read: int = 0
    broken: int = 0
    first_broken: list[int] = field(default_factory=list)
    """Line numbers (from 1) of the first few broken rows."""

    def __iter__(self) -> Iterator[tuple[int, Row]]:
        """Line number and object of every row; blank lines are no rows.

        A row that is no JSON object, or is above 1 MiB, is broken. Raises OSError; MetricError with cause
        `metric-absent` for a file without rows, `metric-unreadable` when more than 1 % of them are broken or there
        are more than a million.
        """
        for number, line in _lines(self.path):
            row = _object(line)
            if row is None:
                self._count_broken(number)
                continue
            self.read += 1
            if self.read > MOST_ROWS:
                raise MetricError(f"has more than {MOST_ROWS:,} rows", cause="metric-unreadable")
            yield number, row
        self._judge()

    def _count_broken(self, number: int) -> None:
        self.broken += 1
        if len(self.first_broken) < SHOWN:
            self.first_broken.append(number)

    def _judge(self) -> None:
        total = self.read + self.broken
        if not total:
            raise MetricError("is empty: there is nothing to score", cause="metric-absent")
        if self.broken > BROKEN_SHARE * total:
            lines = ", ".join(map(str, self.first_broken)) + (", …" if self.broken > SHOWN else "")
            raise MetricError(
                f"{self.broken} of {total} rows are no JSON object (line {lines}); at most {BROKEN_SHARE:.0%} may be",
                cause="metric-unreadable",
            )


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Number and bytes of each line that is not blank, cut one byte above the limit."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_ROW_BYTES + 1):
            number += 1
            rest = line
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(LONGEST_ROW_BYTES)
            if line.strip():
                yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


def _object(line: bytes) -> Row | None:
    if len(line) > LONGEST_ROW_BYTES:
        return None
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def field_of(row: Row, name: str) -> object:
    """What stands in the field; dots step into nested objects, a key with dots of its own is found first.

    `NO_FIELD` where there is none.
    """
    if name in row:
        return row[name]
    head, _, rest = name.partition(".")
    inner = row.get(head)
    return field_of(inner, rest) if rest and isinstance(inner, dict) else NO_FIELD
