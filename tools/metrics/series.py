"""A metric as a running job reports it, step by step: for ending what falls behind, never for a verdict.

A line, JSON object or CSV row that states both counts; a value without a step is left out, so the final result printed
after training is no part of the curve.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.files import values_at
from nightlab.tools.metrics.lines import statements
from nightlab.tools.metrics.records import records_in
from nightlab.tools.metrics.roll import roll_values
from nightlab.tools.metrics.steps import STEP_NAMES, number_of, step_in
from nightlab.tools.metrics.stream import clean
from nightlab.tools.metrics.trainer import LOG, LOG_NAMES, LOG_STEPS, trainer_folder

__all__ = ["SeriesTail", "StepValue", "tails_of"]

StepValue = tuple[float, float]
"""Step and value; the value may be nan."""

CSV_DELIMITERS = (",", "\t", ";", "|")
LONGEST_READ = 1 << 20
LONGEST_LINE = 1 << 14
MOST_POINTS = 2000
"""More are thinned out to every second one."""


def tails_of(files: RunFiles, metric: str, source: MetricSource, step: str | None = None) -> list[SeriesTail]:
    """The files in which a running job may report a metric, the first to be believed.

    `step` names the step; None: one of the usual names.
    """
    if source.kind == "trainer":
        return _tails_of_trainer(files, metric, source, step)
    if source.path is None:
        paths = [files.stdout, files.stderr]
    else:
        paths = [files.worktree / source.path.replace("{output_dir}", str(files.output))]
    return [SeriesTail(path, source, metric, step) for path in paths]


def _tails_of_trainer(files: RunFiles, metric: str, source: MetricSource, step: str | None) -> list[SeriesTail]:
    """LLaMA-Factory's log, which counts steps; else what the trainer prints, which counts epochs."""

    def log_path() -> Path:
        try:
            return trainer_folder(files, source) / LOG
        except MetricError:
            return files.output / LOG

    streams = [SeriesTail(path, source, metric, step) for path in (files.stdout, files.stderr)]
    key = source.key or metric
    log = MetricSource(kind="jsonl", key=LOG_NAMES.get(key, key))
    return [SeriesTail(log_path(), log, metric, step or LOG_STEPS[0], find=log_path), *streams]


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
    find: Callable[[], Path] | None = None
    """Where the file is now, for one whose folder the job itself makes."""

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
        self.path = self.find() if self.find else self.path
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
                yield from _paired(step_in(line, self._step_names), found)
            case "regex":
                match = re.search(self.source.pattern or "", line)
                groups = match.groupdict() if match else {}
                if match is not None:
                    step = number_of(groups.get("step")) if "step" in groups else step_in(line, self._step_names)
                    yield from _paired(step, [match[("value" if "value" in groups else 1)]])
            case "jsonl":
                yield from self._in_object(line)
            case "trainer":
                for record in records_in(line):
                    if self._key in record.values and record.source in ("", "rank 0"):
                        steps = [record.values[name] for name in self._step_names if name in record.values]
                        yield from _paired(number_of(steps[0]) if steps else None, [record.values[self._key]])
            case "roll":
                for step, value in roll_values(line, self._key):
                    yield from _paired(step, [value])
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
        yield from _paired(number_of(steps[0]) if steps else None, list(values_at(node, self._key)))

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
            yield from _paired(number_of(cells[step]), [cells[value]])


def _paired(step: float | None, values: list[object] | list[str]) -> Iterator[StepValue]:
    """The last of the values, if there is a step and it is a number or none any more (nan)."""
    if step is None or not math.isfinite(step) or not values:
        return
    value = number_of(values[-1])
    if value is not None:
        yield step, value
