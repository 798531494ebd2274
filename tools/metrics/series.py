"""A metric as a running job reports it, step by step: for ending what falls behind, never for a verdict.

A line, JSON object or CSV row that states both counts; a value without a step is left out, so the final result printed
after training is no part of the curve.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.study import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.files import values_at
from nightlab.tools.metrics.lines import statements
from nightlab.tools.metrics.numbers import parse_number
from nightlab.tools.metrics.stream import clean

__all__ = ["SeriesTail", "StepValue"]

StepValue = tuple[float, float]
"""Step and value; the value may be nan."""

STEP_NAMES = ("step", "global_step", "iteration", "iter", "epoch", "_step")
"""In the order they are believed."""
CSV_DELIMITERS = (",", "\t", ";", "|")
LONGEST_READ = 1 << 20
LONGEST_LINE = 1 << 14
MOST_POINTS = 2000
"""More are thinned out to every second one."""


@dataclass
class SeriesTail:
    """Follows one growing file; `points` holds what it has reported so far, by rising step."""

    path: Path
    source: MetricSource
    metric: str
    step: str | None = None
    """Name of the step; None: one of the usual ones."""
    points: list[StepValue] = field(default_factory=list)
    offset: int = 0
    columns: tuple[int, int, str] | None = None
    """Of a CSV file: place of the step, place of the metric, delimiter."""

    def read(self) -> list[StepValue]:
        """All points, with what is new since the last call; of a long stretch at most the last MiB is read."""
        for line in self._new_lines():
            for step, value in self._values(line):
                self._add(step, value)
        return self.points

    def _add(self, step: float, value: float) -> None:
        if self.points and step < self.points[-1][0]:
            return
        if self.points and step == self.points[-1][0]:
            self.points[-1] = (step, value)
            return
        self.points.append((step, value))
        if len(self.points) > MOST_POINTS:
            self.points[:] = [*self.points[:-1:2], self.points[-1]]

    def _new_lines(self) -> Iterator[str]:
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size <= self.offset:
            return
        with self.path.open("rb") as log:
            if self.source.kind == "csv" and self.columns is None:
                self.columns = self._header(log.readline(LONGEST_LINE))
            log.seek(max(self.offset, size - LONGEST_READ))
            text = log.read(LONGEST_READ)
        # An unfinished last line is left for the next call.
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        self.offset = size - len(text) + end if end or len(text) < LONGEST_READ else size
        for line in re.split(rb"[\r\n]", text[:end]):
            if line and len(line) <= LONGEST_LINE:
                yield clean(line.decode("utf-8", errors="replace"))

    @property
    def _key(self) -> str:
        return self.source.key or self.metric

    @property
    def _step_names(self) -> tuple[str, ...]:
        return (self.step,) if self.step else STEP_NAMES

    def _values(self, line: str) -> Iterator[StepValue]:
        match self.source.kind:
            case "lines":
                found = [statement.text for statement in statements(line, self._key)]
                yield from _paired(_step_in(line, self._step_names), found)
            case "regex":
                match = re.search(self.source.pattern or "", line)
                groups = match.groupdict() if match else {}
                if match is not None:
                    step = _number(groups.get("step")) if "step" in groups else _step_in(line, self._step_names)
                    yield from _paired(step, [match[("value" if "value" in groups else 1)]])
            case "jsonl":
                yield from self._in_object(line)
            case "csv":
                yield from self._in_row(line)
            case "json":
                return

    def _in_object(self, line: str) -> Iterator[StepValue]:
        text = line.strip()
        if not text.startswith("{"):
            return
        try:
            node = json.loads(text)
        except (ValueError, RecursionError):
            return
        steps = [value for name in self._step_names for value in values_at(node, name)]
        yield from _paired(_number(steps[0]) if steps else None, list(values_at(node, self._key)))

    def _header(self, line: bytes) -> tuple[int, int, str] | None:
        text = clean(line.decode("utf-8", errors="replace"))
        for delimiter in CSV_DELIMITERS:
            names = [cell.strip() for cell in next(csv.reader([text], delimiter=delimiter), [])]
            steps = [name for name in self._step_names if name in names]
            if self._key in names and steps:
                return names.index(steps[0]), names.index(self._key), delimiter
        return None

    def _in_row(self, line: str) -> Iterator[StepValue]:
        if self.columns is None:
            return
        step, value, delimiter = self.columns
        cells = next(csv.reader([line], delimiter=delimiter), [])
        if len(cells) > max(step, value):
            yield from _paired(_number(cells[step]), [cells[value]])


def _step_in(line: str, names: tuple[str, ...]) -> float | None:
    """The step that a line states: `step 120`, `step: 120/1000`, `[iter=7]`."""
    for name in names:
        pattern = rf"(?<![\w./-]){re.escape(name)}(?!\w)[\"']?\s*[:=#]?\s*(\d[\d,_]*(?:\.\d+)?)(?![\w%])"
        if match := re.search(pattern, line, re.IGNORECASE):
            return float(match[1].replace(",", "").replace("_", ""))
    return None


def _paired(step: float | None, values: list[object] | list[str]) -> Iterator[StepValue]:
    """The last of the values, if there is a step and it is a number or none any more (nan)."""
    if step is None or not math.isfinite(step) or not values:
        return
    value = _number(values[-1])
    if value is not None:
        yield step, value


def _number(value: object) -> float | None:
    """A finite number, nan for what is printed in its place, None for anything else."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    try:
        return parse_number(value if isinstance(value, str) else repr(value))
    except MetricError as error:
        return math.nan if error.cause == "metric-not-finite" else None
