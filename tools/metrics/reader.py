"""Reads one metric from what a run left behind: where to look, in which order, and what to say when it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from nightlab.configs.study import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.tools.metrics.files import csv_outcomes, json_outcomes, jsonl_outcomes
from nightlab.tools.metrics.lines import line_outcomes
from nightlab.tools.metrics.patterns import pattern_outcomes
from nightlab.tools.metrics.picks import Outcome, Tally

__all__ = ["SourceReader"]

# Time stamps of files come from the kernel's coarse clock, a few milliseconds behind.
_CLOCK_SLACK = timedelta(milliseconds=50)


class SourceReader:
    """The metric reader: `lines`, `jsonl` and `regex` on the output streams or a file, `json` and `csv` on a file."""

    def read(self, files: RunFiles, metric: str, source: MetricSource, *, maximize: bool) -> Reading:
        """The metric's value: from the source's file, else from stdout and, only where it is absent there, from stderr.

        Raises MetricError with cause `metric-absent`, `metric-not-finite`, `metric-ambiguous` or `metric-unreadable`.
        """
        absences: list[str] = []
        for name, path in _places(files, metric, source):
            try:
                return Reading(_value(path, metric, source, maximize=maximize), name)
            except MetricError as error:
                if error.cause != "metric-absent":
                    raise MetricError(f"metric {metric}: {name}: {error}", cause=error.cause) from error
                absences.append(f"{name}: {error}")
            except OSError as error:
                reason = error.strerror or str(error)
                raise MetricError(f"metric {metric}: {name}: {reason}", cause="metric-unreadable") from error
        raise MetricError(f"metric {metric}: {'; '.join(absences)}", cause="metric-absent")


def _places(files: RunFiles, metric: str, source: MetricSource) -> list[tuple[str, Path]]:
    if source.path is None:
        return [(files.stdout.name, files.stdout), (files.stderr.name, files.stderr)]
    path = files.worktree / source.path.replace("{output_dir}", str(files.output.absolute()))
    roots = (files.worktree.resolve(), files.output.resolve())
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise MetricError(
            f"metric {metric}: path {source.path} leads out of the worktree and the output folder (let the run write "
            "it inside one of them)",
            cause="metric-unreadable",
        )
    if path.exists() and files.started_at is not None and _written_at(path) < files.started_at - _CLOCK_SLACK:
        raise MetricError(
            f"metric {metric}: {source.path} was last written before this run started: the run did not write it",
            cause="metric-absent",
        )
    return [(source.path, path)]


def _written_at(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC)


def _value(path: Path, metric: str, source: MetricSource, *, maximize: bool) -> float:
    """The value that counts in one file. Raises OSError and MetricError, neither naming the file."""
    if not path.exists():
        raise MetricError("there is no such file", cause="metric-absent")
    if not path.is_file():
        raise MetricError("is not a regular file", cause="metric-unreadable")
    tally = Tally(source.pick, maximize=maximize)
    for outcome in _outcomes(path, source.key or metric, source):
        tally.add(outcome)
    value = tally.result()
    if value is None:
        raise MetricError("has no value", cause="metric-absent")
    return value


def _outcomes(path: Path, key: str, source: MetricSource) -> Iterator[Outcome]:
    match source.kind:
        case "lines":
            return line_outcomes(path, key)
        case "jsonl":
            return jsonl_outcomes(path, key)
        case "json":
            return json_outcomes(path, key)
        case "csv":
            return csv_outcomes(path, key)
        case "regex":
            return pattern_outcomes(path, source.pattern or "")
