"""The summaries that Hugging Face trainers print: `***** predict metrics *****` and below it `key = value` rows.

A time (`0:00:17.71`, `1 day, 2:03:04.5`) is read as seconds, `12MB` as bytes and `37GF` as operations: the units in
which the trainer's JSON files give the same quantity.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import parse_number
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.stream import text_lines

__all__ = ["block_outcomes", "summary_number"]

_HEADER = re.compile(r"(?P<before>.*?)\*{5} (?P<split>\w{1,40}) metrics \*{5}\s*$")
_ROW = re.compile(r"\s*(?P<key>[\w./@+-]{1,200})\s+=\s+(?P<value>\S.{0,80}?)\s*$")
_TIME = re.compile(r"(?:(?P<days>\d+) days?, )?(?P<hours>\d+):(?P<minutes>\d\d):(?P<seconds>\d\d(?:\.\d+)?)")
_SCALED = re.compile(r"(?P<number>-?\d+(?:\.\d+)?)(?P<unit>MB|GF)")
_COMMON = ("epoch", "total_flos", "num_input_tokens_seen")
MOST_FOREIGN_LINES = 20
_BYTES_OR_OPERATIONS = {"MB": 1 << 20, "GF": 1 << 30}


def block_outcomes(path: Path, key: str) -> Iterator[Outcome]:
    """The value of `key` in each summary of a log; a row outside a summary is none.

    Rows may carry the prefix of their header (`[rank0]: `, a time stamp), and a little other output may stand between
    them. Raises OSError, and MetricError with cause `metric-absent`.
    """
    found, header, foreign = False, None, 0
    for line in text_lines(path):
        if opened := _HEADER.match(line):
            header, foreign = opened, 0
            continue
        if header is None or foreign > MOST_FOREIGN_LINES:
            continue
        row = _ROW.match(line) or _ROW.match(line[len(header["before"]) :])
        if row is None or not (row["key"].startswith(f"{header['split']}_") or row["key"] in _COMMON):
            foreign += 1
        elif row["key"] == key:
            found = True
            yield summary_number(row["value"])
    if not found:
        raise MetricError(f"no summary has {key}", cause="metric-absent")


def summary_number(text: str) -> Outcome:
    """A value of a summary as a number in the trainer's own unit, or why it is none."""
    if time := _TIME.fullmatch(text):
        days = int(time["days"] or 0)
        return ((days * 24 + int(time["hours"])) * 60 + int(time["minutes"])) * 60 + float(time["seconds"])
    if scaled := _SCALED.fullmatch(text):
        return float(scaled["number"]) * _BYTES_OR_OPERATIONS[scaled["unit"]]
    try:
        return parse_number(text)
    except MetricError as error:
        return error
