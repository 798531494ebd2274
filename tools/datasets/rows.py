"""Reads the rows of data files one by one, in bounded memory; what cannot be read is a row as well."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

__all__ = ["LONGEST_READ", "SUFFIXES", "Row", "is_whole", "read_rows"]

SUFFIXES = (".json", ".jsonl", ".ndjson", ".csv", ".tsv", ".txt", ".parquet")

LONGEST_READ = 256 * 1024**2
"""Bytes of a file that are read; of a larger one of lines, as much in blocks spread evenly over it."""
BLOCKS = 64
CHUNK = 1 << 16
LONGEST_ROW = 16 * 1024**2
_BETWEEN = re.compile(r"[ \t\r\n,]*")


@dataclass(frozen=True)
class Row:
    """One row as it stands, or why it cannot be read. `number` counts from 1 among the rows that were read."""

    number: int
    value: object = None
    fault: str = ""


def is_whole(file: Path) -> bool:
    """Whether all of the file is read."""
    return file.stat().st_size <= LONGEST_READ


def read_rows(file: Path) -> Iterator[Row]:
    """Rows of a file, told apart by its suffix. Raises OSError; a fault in the file is a row's fault."""
    suffix = file.suffix.lower()
    if suffix == ".parquet":
        yield from _parquet(file)
    elif suffix in (".csv", ".tsv"):
        yield from _table(file, "\t" if suffix == ".tsv" else ",")
    elif suffix == ".txt":
        yield from (Row(number, line) for number, line in enumerate(_lines(file), 1) if line.strip())
    elif suffix == ".json" and _starts_with_bracket(file):
        yield from _array(file)
    else:
        yield from _objects(file)


def _open(file: Path) -> TextIO:
    # A byte that is no UTF-8 becomes U+FFFD, which is counted as a fault of encoding.
    return file.open(encoding="utf-8-sig", errors="replace", newline="")


def _starts_with_bracket(file: Path) -> bool:
    with _open(file) as text:
        return text.read(CHUNK).lstrip().startswith("[")


def _lines(file: Path) -> Iterator[str]:
    """Lines without their ends; of a large file whole lines of evenly spread blocks."""
    size = file.stat().st_size
    starts = [0] if size <= LONGEST_READ else [size * block // BLOCKS for block in range(BLOCKS)]
    length = size if size <= LONGEST_READ else LONGEST_READ // BLOCKS
    with file.open("rb") as data:
        for start in starts:
            data.seek(start)
            if start:
                data.readline()
            while data.tell() < start + length and (line := data.readline(LONGEST_ROW)):
                yield line.decode("utf-8-sig" if start == 0 else "utf-8", "replace").rstrip("\r\n")


def _objects(file: Path) -> Iterator[Row]:
    for number, line in enumerate((one for one in _lines(file) if one.strip()), 1):
        try:
            yield Row(number, json.loads(line))
        except (ValueError, RecursionError):
            yield Row(number, fault="is no JSON")


def _array(file: Path) -> Iterator[Row]:
    """The items of one JSON array, each as soon as it is whole; the text behind a fault is not read."""
    decoder, number, read = json.JSONDecoder(), 0, 0
    with _open(file) as text:
        buffer, start = text.read(CHUNK).lstrip(), 1
        while True:
            start = _BETWEEN.match(buffer, start).end()  # type: ignore[union-attr]
            if buffer.startswith("]", start) or read + start > LONGEST_READ:
                return
            try:
                value, end = decoder.raw_decode(buffer, start)
            except (ValueError, RecursionError):
                # It may only be cut: the buffer doubles, so that a long item is not parsed once a chunk.
                read, buffer, start = read + start, buffer[start:], 0
                more = text.read(max(CHUNK, len(buffer)))
                if not more or len(buffer) > LONGEST_ROW:
                    yield Row(number + 1, fault="is no JSON: nothing behind it can be read")
                    return
                buffer += more
                continue
            number, start = number + 1, end
            yield Row(number, value)


def _table(file: Path, delimiter: str) -> Iterator[Row]:
    """Rows of a table with a header; a row with more or fewer cells than the header is broken."""
    csv.field_size_limit(LONGEST_ROW)
    with _open(file) as text:
        lines = csv.reader(text, delimiter=delimiter)
        try:
            number, header = 0, next(lines, None) or []
        except csv.Error as error:
            yield Row(1, fault=f"is no table: {error}")
            return
        while text.buffer.tell() <= LONGEST_READ:
            number += 1
            try:
                cells = next(lines, None)
            except csv.Error as error:
                yield Row(number, fault=f"is no table row: {error}")
                continue
            if cells is None:
                return
            if len(cells) == len(header):
                yield Row(number, dict(zip(header, cells, strict=True)))
            elif cells:
                yield Row(number, fault="has more or fewer cells than the header")


def _parquet(file: Path) -> Iterator[Row]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        yield Row(1, fault='is Parquet, which needs `pip install "nightlab[data]"`')
        return
    number = 0
    try:
        with parquet.ParquetFile(file) as table:
            for batch in table.iter_batches(batch_size=1024):
                for value in batch.to_pylist():
                    number += 1
                    yield Row(number, value)
    except ArrowException as error:
        yield Row(number + 1, fault=f"is no Parquet: {str(error)[:80]}")
