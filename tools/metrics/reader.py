"""Reads one metric from what a run left behind: where to look, in which order, and what to say when it is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.tools.metrics.files import csv_outcomes, json_outcomes, jsonl_outcomes
from nightlab.tools.metrics.lines import line_outcomes
from nightlab.tools.metrics.patterns import pattern_outcomes
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.ranks import RankTally
from nightlab.tools.metrics.roll import roll_outcomes
from nightlab.tools.metrics.steps import AtStep
from nightlab.tools.metrics.trainer import Sourced, trainer_folder, trainer_places

__all__ = ["SourceReader"]

# What makes a trainer's next place be tried; of another source's places only absence does.
_PASSED_OVER = ("metric-absent", "metric-unreadable")


@dataclass(frozen=True)
class _Place:
    name: str
    path: Path
    read: Callable[[Path], Iterator[Sourced]]


class SourceReader:
    """The metric reader: `lines`, `jsonl`, `regex` and `roll` on the output streams or a file, `json` and `csv` on a
    file, `trainer` on a folder and the output streams."""

    def read(self, files: RunFiles, metric: str, source: MetricSource, *, maximize: bool) -> Reading:
        """The metric's value: from the source's file, else from stdout and, only where it is absent there, from stderr.

        Raises MetricError with cause `metric-absent`, `metric-not-finite`, `metric-ambiguous` or `metric-unreadable`.
        """
        absences: list[MetricError] = []
        for place in _places(files, metric, source):
            try:
                _require_fresh(place, files)
                if source.score is not None:
                    return _scored(place, source.score)
                return Reading(_value(place, source, maximize=maximize), place.name)
            except MetricError as error:
                named = MetricError(f"{place.name}: {error}", cause=error.cause)
                if error.cause not in (_PASSED_OVER if source.kind == "trainer" else _PASSED_OVER[:1]):
                    raise MetricError(f"metric {metric}: {named}", cause=error.cause) from error
                absences.append(named)
            except OSError as error:
                reason = error.strerror or str(error)
                raise MetricError(f"metric {metric}: {place.name}: {reason}", cause="metric-unreadable") from error
        said = "; ".join(map(str, absences)) or "the run left nothing to read it from"
        unreadable = any(error.cause == "metric-unreadable" for error in absences)
        raise MetricError(f"metric {metric}: {said}", cause="metric-unreadable" if unreadable else "metric-absent")


def _places(files: RunFiles, metric: str, source: MetricSource) -> list[_Place]:
    key = source.key or metric
    if source.kind == "trainer":
        return _trainer_places(files, metric, key, source)

    def read(path: Path) -> Iterator[Sourced]:
        return ((outcome, "") for outcome in _outcomes(path, key, source))

    if source.path is None:
        return [_Place(path.name, path, read) for path in (files.stdout, files.stderr)]
    path = files.worktree / source.path.replace("{output_dir}", str(files.output.absolute()))
    _require_inside(files, path, metric, source)
    return [_Place(source.path, path, read)]


def _trainer_places(files: RunFiles, metric: str, key: str, source: MetricSource) -> list[_Place]:
    try:
        folder = trainer_folder(files, source)
    except MetricError as error:
        raise MetricError(f"metric {metric}: {error}", cause=error.cause) from error
    _require_inside(files, folder, metric, source)
    places = trainer_places(folder, files, key, source)
    for place in places:
        # A link in the folder may lead anywhere.
        if place.path not in (files.stdout, files.stderr):
            _require_inside(files, place.path, metric, source)
    return [_Place(_name(place.path, folder), place.path, place.read) for place in places]


def _name(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else path.name


def _require_inside(files: RunFiles, path: Path, metric: str, source: MetricSource) -> None:
    roots = (files.worktree.resolve(), files.output.resolve())
    if not any(path.resolve().is_relative_to(root) for root in roots):
        raise MetricError(
            f"metric {metric}: path {source.path or path.name} leads out of the worktree and the output folder (let "
            "the run write it inside one of them)",
            cause="metric-unreadable",
        )


def _require_fresh(place: _Place, files: RunFiles) -> None:
    """Raises MetricError, naming no file, when a file that is no output stream was not written by this run."""
    is_stream = place.path in (files.stdout, files.stderr)
    if not is_stream and place.path.exists() and not files.wrote(place.path):
        raise MetricError(
            "was last written before this run started: the run did not write it",
            cause="metric-absent",
        )


def _require_file(path: Path) -> None:
    if not path.exists():
        raise MetricError("there is no such file", cause="metric-absent")
    if not path.is_file():
        raise MetricError("is not a regular file", cause="metric-unreadable")


def _scored(place: _Place, settings: ScoringSettings) -> Reading:
    """The lab's own score of a file. Raises OSError and MetricError, neither naming the file."""
    from nightlab.tools.scoring.score import score_file

    _require_file(place.path)
    score = score_file(place.path, settings)
    return Reading(score.value, place.name, score)


def _value(place: _Place, source: MetricSource, *, maximize: bool) -> float:
    """The value that counts in one file. Raises OSError and MetricError, neither naming the file."""
    _require_file(place.path)
    tally = RankTally(source, maximize=maximize)
    for outcome, process in place.read(place.path):
        tally.add(outcome, process)
    value = tally.result()
    if value is None:
        raise MetricError("has no value", cause="metric-absent")
    return value


def _outcomes(path: Path, key: str, source: MetricSource) -> Iterator[Outcome]:
    at = None if source.at_step is None else AtStep(source.at_step)
    match source.kind:
        case "lines" | "trainer":
            return line_outcomes(path, key, at)
        case "jsonl":
            return jsonl_outcomes(path, key, at)
        case "json":
            return json_outcomes(path, key)
        case "csv":
            return csv_outcomes(path, key, at)
        case "regex":
            return pattern_outcomes(path, source.pattern or "", at)
        case "roll":
            return roll_outcomes(path, key, at)
        case "predictions":
            raise AssertionError("predictions are scored as a whole")
