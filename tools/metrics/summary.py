"""The last value of everything a trainer reports, and its predictions: for findings, never for a verdict."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.files import load_json
from nightlab.tools.metrics.findings import PREDICTIONS, NamedFinding, findings_of, read_predictions
from nightlab.tools.metrics.records import records
from nightlab.tools.metrics.steps import number_of
from nightlab.tools.metrics.trainer import newest_state, trainer_folder

__all__ = ["findings_in", "json_object", "last_values"]

FLUCTUATING = ("frac_reward_zero_std", "completions/clipped_ratio")
MOST_VALUES = 2000
RESULTS = ("all_results.json", "train_results.json", "eval_results.json", "predict_results.json")


def findings_in(files: RunFiles, source: MetricSource) -> list[NamedFinding]:
    """What a run's own files show to be wrong with it; `source` names the trainer's folder where it is a trainer's.

    Raises OSError.
    """
    try:
        folder = trainer_folder(files, source if source.kind == "trainer" else MetricSource(kind="trainer"))
    except MetricError:
        return []
    path = folder / PREDICTIONS
    predictions = read_predictions(path) if path.is_file() and files.wrote(path) else []
    return findings_of(last_values(files, folder), predictions)


def last_values(files: RunFiles, folder: Path) -> dict[str, float]:
    """Metric → its last value in the trainer's result files, else in its state, else in its dict lines.

    What differs from step to step by chance is the mean of them all.
    """
    state = newest_state(folder)
    history = json_object(state, files).get("log_history") if state else None
    steps = [entry for entry in history if isinstance(entry, dict)] if isinstance(history, list) else []
    values: dict[str, float] = {}
    sums = dict.fromkeys(FLUCTUATING, (0.0, 0))
    for entry in steps or _printed(files):
        _take(values, entry)
        for key in FLUCTUATING:
            if (number := number_of(entry.get(key))) is not None and math.isfinite(number):
                sums[key] = sums[key][0] + number, sums[key][1] + 1
    values |= {key: total / count for key, (total, count) in sums.items() if count}
    for name in RESULTS:
        _take(values, json_object(folder / name, files))
    return values


def _printed(files: RunFiles) -> Iterator[Mapping[str, object]]:
    for stream in (files.stdout, files.stderr):
        yield from (record.values for record in records(stream, "epoch")) if stream.exists() else ()


def _take(values: dict[str, float], entry: Mapping[str, object]) -> None:
    for key, value in entry.items():
        number = number_of(value)
        if number is not None and (key in values or len(values) < MOST_VALUES):
            values[key] = number


def json_object(path: Path, files: RunFiles) -> dict[str, object]:
    """A JSON object that this run wrote; an empty one where there is none."""
    if not path.is_file() or not files.wrote(path):
        return {}
    try:
        document = load_json(path)
    except MetricError:
        return {}
    return document if isinstance(document, dict) else {}
