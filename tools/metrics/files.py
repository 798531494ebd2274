"""Values in JSON lines, JSON files and CSV files.

Dots in a key step into nested objects; a key that itself contains dots is found first. A step may be an index into a
list (`-1` is the last element); any other step taken at a list is taken in each of its elements, so that
`log_history.eval_loss` is the series of all values logged. Of a series the study's `pick` chooses.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import excerpt, parse_number
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.steps import AtStep, number_of
from nightlab.tools.metrics.stream import search_word, text_lines

__all__ = ["csv_outcomes", "json_objects", "json_outcomes", "jsonl_outcomes", "load_json", "outcome_of", "values_at"]

_JSON_FILE_LIMIT_BYTES = 32 << 20
_JSON_LINE_LIMIT_BYTES = 1 << 19
_CSV_DELIMITERS = (",", "\t", ";", "|")


def jsonl_outcomes(
    path: Path, key: str, at: AtStep | None = None, *, step_names: Iterable[str] = AtStep.names
) -> Iterator[Outcome]:
    """Values at `key` in every line that is a JSON object; other lines, and lines above 1 MiB, are passed over.

    With `at` only those of objects that state this step. Raises OSError, and MetricError with cause `metric-absent`.
    """
    found = False
    for line in text_lines(path, containing=search_word(key), limit_bytes=_JSON_LINE_LIMIT_BYTES):
        node = _json_object(line)
        values = list(values_at(node, key))
        if not values or (at and not at.takes(_step_of(node, step_names))):
            continue
        found = True
        yield from map(outcome_of, values)
    if not found:
        raise MetricError(at.absence(key) if at else f"no JSON line has the key {key}", cause="metric-absent")


def json_objects(path: Path, word: str) -> Iterator[dict[str, object]]:
    """The JSON objects of a file of lines that hold `word` somewhere. Raises OSError."""
    for line in text_lines(path, containing=word, limit_bytes=_JSON_LINE_LIMIT_BYTES):
        node = _json_object(line)
        if isinstance(node, dict):
            yield node


def _step_of(node: object, names: Iterable[str]) -> float | None:
    steps = [value for name in names for value in values_at(node, name)]
    return number_of(steps[0]) if steps else None


def load_json(path: Path) -> object:
    """The content of a JSON file of at most 32 MiB. Raises OSError, and MetricError with cause `metric-unreadable`."""
    if not path.is_file() and path.exists():
        raise MetricError("is not a regular file", cause="metric-unreadable")
    if path.stat().st_size > _JSON_FILE_LIMIT_BYTES:
        raise MetricError("is larger than 32 MiB; write the metric to a small file", cause="metric-unreadable")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise MetricError(f"is not JSON: {error}", cause="metric-unreadable") from error


def json_outcomes(path: Path, key: str) -> Iterator[Outcome]:
    """Values at `key` in a JSON file of at most 32 MiB.

    Raises OSError, and MetricError with cause `metric-unreadable` or `metric-absent`.
    """
    document = load_json(path)
    values = list(values_at(document, key))
    if not values:
        known = f"; it has {_listed(document)}" if isinstance(document, dict) else ""
        raise MetricError(f"has no key {key}{known}", cause="metric-absent")
    yield from map(outcome_of, values)


def csv_outcomes(path: Path, key: str, at: AtStep | None = None) -> Iterator[Outcome]:
    """Values of the column `key`; empty cells, short rows and repeated headers are passed over.

    The delimiter is the one of comma, tab, semicolon and bar that makes `key` a column of the first line. With `at`
    only the rows of this step count. Raises OSError, and MetricError with cause `metric-absent` or
    `metric-unreadable`.
    """
    lines = text_lines(path)
    first = next(lines, "")
    delimiter = next((mark for mark in _CSV_DELIMITERS if key in _cells(first, mark)), None)
    if delimiter is None:
        columns = max((_cells(first, mark) for mark in _CSV_DELIMITERS), key=len)
        raise MetricError(f"has no column {key}; it has {_listed(columns)}", cause="metric-absent")
    found = False
    for cell, step in _column(chain([first], lines), delimiter, key):
        if at is None or at.takes(step):
            found = True
            yield outcome_of(cell)
    if not found:
        raise MetricError(at.absence(key) if at else f"has no value in column {key}", cause="metric-absent")


def values_at(node: object, key: str) -> Iterator[object]:
    """Every value at the dotted `key`; a list of values at the end is a series."""
    if isinstance(node, list):
        yield from _values_in_list(node, key)
    elif isinstance(node, dict):
        if key in node:
            value = node[key]
            yield from value if isinstance(value, list) else [value]
            return
        for head, rest in _cuts(key):
            if isinstance(node.get(head), dict | list):
                yield from values_at(node[head], rest)
                return


def _values_in_list(items: list[object], key: str) -> Iterator[object]:
    head, _, rest = key.partition(".")
    if head.removeprefix("-").isdecimal():
        if -len(items) <= int(head) < len(items):
            item = items[int(head)]
            yield from values_at(item, rest) if rest else [item]
    else:
        for item in items:
            yield from values_at(item, key)


def _cuts(key: str) -> Iterator[tuple[str, str]]:
    parts = key.split(".")
    for size in range(len(parts) - 1, 0, -1):
        yield ".".join(parts[:size]), ".".join(parts[size:])


def _json_object(line: str) -> object:
    text = line.strip()
    if not text.startswith("{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def outcome_of(value: object) -> Outcome:
    """A JSON value, or the text of a number, as a finite number, or why it is none."""
    if value is None:
        return MetricError("null is not a finite number", cause="metric-not-finite")
    if isinstance(value, bool | dict | list):
        return MetricError(f"{excerpt(json.dumps(value))} is not a number", cause="metric-unreadable")
    try:
        return parse_number(value if isinstance(value, str) else repr(value))
    except MetricError as error:
        return error


def _cells(line: str, delimiter: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])]


def _column(lines: Iterable[str], delimiter: str, key: str) -> Iterator[tuple[str, float | None]]:
    """The cells of a column, each with the step its row states."""
    rows = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    try:
        header = [cell.strip() for cell in next(rows)]
        position = header.index(key)
        steps = next((header.index(name) for name in AtStep.names if name in header), None)
        for row in rows:
            cell = row[position].strip() if len(row) >= len(header) else ""
            if cell and cell != key:
                yield cell, None if steps is None else number_of(row[steps])
    except csv.Error as error:
        raise MetricError(f"is not CSV: {error}", cause="metric-unreadable") from error


def _listed(names: Iterable[object]) -> str:
    shown = [str(name) for name in names][:12]
    return ", ".join(shown)[:200] or "nothing"
