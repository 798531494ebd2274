"""What a Hugging Face trainer (transformers, TRL, LLaMA-Factory) leaves behind, each place with its own reader.

The final result stands in `<split>_results.json`, the course of training in `trainer_state.json` (of the folder, else
of its newest checkpoint, when that is of the last step) and, for LLaMA-Factory, in `trainer_log.jsonl`. What the
trainer printed is rounded and comes after them: summaries first, then dict lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.blocks import block_outcomes
from nightlab.tools.metrics.files import json_outcomes, jsonl_outcomes, load_json, outcome_of
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.records import records
from nightlab.tools.metrics.steps import AtStep, number_of
from nightlab.tools.metrics.stream import search_word

__all__ = ["LOG", "LOG_NAMES", "Sourced", "TrainerPlace", "newest_state", "trainer_folder", "trainer_places"]

STATE, LOG, ALL_RESULTS = "trainer_state.json", "trainer_log.jsonl", "all_results.json"
LOG_NAMES = {"learning_rate": "lr", "rewards/accuracies": "accuracy"}
"""What LLaMA-Factory's log calls what the trainer calls otherwise."""
LOG_STEPS = ("current_steps",)

_SPLIT = re.compile(r"(?P<split>train|eval|predict|test)_")
_CHECKPOINT = re.compile(r"checkpoint-(\d{1,12})")

Sourced = tuple[Outcome, str]
"""A value and the process that reported it ('' where nothing says which)."""


@dataclass(frozen=True)
class TrainerPlace:
    """One file in which a metric may stand."""

    path: Path
    read: Callable[[Path], Iterator[Sourced]]


def trainer_folder(files: RunFiles, source: MetricSource) -> Path:
    """The folder a trainer wrote to: the one that the source names, else the run's output folder or its one subfolder
    that holds a trainer's files.

    Raises MetricError with cause `metric-ambiguous` where several do.
    """
    if source.path is not None:
        return files.worktree / source.path.replace("{output_dir}", str(files.output.absolute()))
    if _is_trainers(files.output) or not files.output.is_dir():
        return files.output
    inside = [path for path in sorted(files.output.iterdir()) if path.is_dir() and _is_trainers(path)]
    if len(inside) > 1:
        names = ", ".join(path.name for path in inside[:5])
        raise MetricError(
            f"several folders hold a trainer's files ({names}); name one, e.g. path: '{{output_dir}}/{inside[0].name}'",
            cause="metric-ambiguous",
        )
    return inside[0] if inside else files.output


def _is_trainers(folder: Path) -> bool:
    known = (STATE, LOG, ALL_RESULTS, "train_results.json", "eval_results.json", "predict_results.json")
    return any((folder / name).is_file() for name in known) or any(True for _ in folder.glob(f"checkpoint-*/{STATE}"))


def trainer_places(folder: Path, files: RunFiles, key: str, source: MetricSource) -> list[TrainerPlace]:
    """The places where `key` may stand, the most telling first."""
    at = None if source.at_step is None else AtStep(source.at_step)
    results = [] if at else _results(folder, key)
    course = _course(folder, key, at)
    late = [place for place in course if _is_cut_off(place.path)]
    course = [place for place in course if place not in late]
    streams = [path for path in (files.stdout, files.stderr) if path.exists()]
    summaries = [] if at else [TrainerPlace(path, lambda p: _alone(block_outcomes(p, key))) for path in streams]
    lines = [TrainerPlace(path, lambda p: _record_outcomes(p, key, at)) for path in streams]
    if source.pick == "last":
        return [*results, *course, *summaries, *lines, *late]
    return [*course, *lines, *late, *results, *summaries]


def _results(folder: Path, key: str) -> list[TrainerPlace]:
    """A split's own file, or the merged one, which may still hold another run's results of a split."""
    split = _SPLIT.match(key)
    own = folder / f"{split['split']}_results.json" if split else None
    path = own if own is not None and own.exists() else folder / ALL_RESULTS
    return [TrainerPlace(path, lambda p: _alone(json_outcomes(p, key)))] if path.exists() else []


def _course(folder: Path, key: str, at: AtStep | None) -> list[TrainerPlace]:
    places = []
    if (state := newest_state(folder)) is not None:
        places.append(TrainerPlace(state, lambda p: _alone(state_outcomes(p, key, at))))
    if (log := folder / LOG).exists():
        name = LOG_NAMES.get(key, key)
        places.append(TrainerPlace(log, lambda p: _alone(jsonl_outcomes(p, name, at, step_names=LOG_STEPS))))
    return places


def newest_state(folder: Path) -> Path | None:
    """`trainer_state.json` of the folder, else of its checkpoint with the most steps."""
    if (folder / STATE).exists():
        return folder / STATE
    numbered = [(int(match[1]), path) for path in folder.glob(f"checkpoint-*/{STATE}") if (match := _number(path))]
    return max(numbered)[1] if numbered else None


def _number(state: Path) -> re.Match[str] | None:
    return _CHECKPOINT.fullmatch(state.parent.name)


def _is_cut_off(path: Path) -> bool:
    """Whether it is the state of a checkpoint before the last step: what came after it stands in the output only."""
    if path.name != STATE or not _number(path):
        return False
    try:
        state = load_json(path)
    except (MetricError, OSError):
        return True
    return not isinstance(state, dict) or number_of(state.get("global_step")) != number_of(state.get("max_steps"))


def state_outcomes(path: Path, key: str, at: AtStep | None = None) -> Iterator[Outcome]:
    """Values of `key` in the `log_history` of a `trainer_state.json`.

    Raises OSError, and MetricError with cause `metric-unreadable` or `metric-absent`.
    """
    state = load_json(path)
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise MetricError("has no log_history", cause="metric-unreadable")
    found = False
    for entry in history:
        if not isinstance(entry, dict) or key not in entry:
            continue
        if at is None or at.takes(number_of(entry.get("step"))):
            found = True
            yield outcome_of(entry[key])
    if not found:
        raise MetricError(at.absence(key) if at else f"log_history has no {key}", cause="metric-absent")


def _record_outcomes(path: Path, key: str, at: AtStep | None) -> Iterator[Sourced]:
    found = False
    for record in records(path, search_word(key)):
        if key not in record.values:
            continue
        steps = [record.values[name] for name in AtStep.names if name in record.values]
        if at is None or at.takes(number_of(steps[0]) if steps else None):
            found = True
            yield outcome_of(record.values[key]), record.source
    if not found:
        raise MetricError(at.absence(key) if at else f"no dict line has {key}", cause="metric-absent")


def _alone(outcomes: Iterator[Outcome]) -> Iterator[Sourced]:
    return ((outcome, "") for outcome in outcomes)
