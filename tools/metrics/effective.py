"""The configuration a trainer says it ran with, compared with the one that was asked for.

Only what is stated outright counts: batch, accumulation, epochs and steps as the trainer announces them, the adapter's
own file, and the learning rate as it was logged. A scheduler changes that on its way, so it is judged by its peak.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.files import json_objects
from nightlab.tools.metrics.records import records
from nightlab.tools.metrics.steps import number_of
from nightlab.tools.metrics.stream import text_lines
from nightlab.tools.metrics.summary import json_object
from nightlab.tools.metrics.trainer import LOG, newest_state, trainer_folder

__all__ = ["Seen", "effective_mismatches", "read_seen"]

_ANNOUNCED = {
    "per_device_train_batch_size": re.compile(r"Instantaneous batch size per device = ([\d,]+)\s*$"),
    "gradient_accumulation_steps": re.compile(r"Gradient Accumulation steps = ([\d,]+)\s*$"),
    "num_train_epochs": re.compile(r"\bNum Epochs = ([\d,]+)\s*$"),
    "max_steps": re.compile(r"Total optimization steps = ([\d,]+)\s*$"),
}
_ADAPTER = {"lora_rank": "r", "lora_r": "r", "lora_alpha": "lora_alpha", "lora_dropout": "lora_dropout"}
ADAPTER_FILE = "adapter_config.json"

MOST_RATES = 2000
# Rounding of the printed rate.
TOO_HIGH = 1.02
# A linear schedule has 0.7 of its rate left when 0.3 of the training is over.
EARLY, TOO_LOW = (0.1, 0.3), 0.6
LONGEST_WARMUP = 0.1
SLOW_SCHEDULES = ("", "linear", "cosine", "constant", "constant_with_warmup", "cosine_with_min_lr")


@dataclass(frozen=True)
class Seen:
    """What a run's own files say it ran with."""

    facts: dict[str, float] = field(default_factory=dict)
    """Argument → value, by the names of Hugging Face's trainer."""
    rates: list[tuple[float | None, float]] = field(default_factory=list)
    """Learning rates as logged, each with the share of the training that was over (None where that is unknown)."""


def effective_mismatches(requested: Mapping[str, object], seen: Seen) -> list[str]:
    """Every argument that demonstrably had another value than was asked for, in one line each.

    `requested` holds arguments by the names of Hugging Face's trainer, LLaMA-Factory or TRL; unknown ones are ignored.
    """
    asked = {name: value for name, value in requested.items() if _is_number(value)}
    reasons = [
        f"{name} {asked[name]:g} was asked for, the run had {seen.facts[name]:g}"
        for name in _comparable(requested, seen)
        if not math.isclose(_as_run(name, asked[name]), seen.facts[name], rel_tol=1e-6)
    ]
    return [*reasons, *_rate_mismatch(requested, seen)]


def _comparable(requested: Mapping[str, object], seen: Seen) -> Iterator[str]:
    """The arguments whose value in a run is the one asked for, with nothing else in between."""
    asked = {name for name, value in requested.items() if _is_number(value) and name in seen.facts}
    if requested.get("auto_find_batch_size"):
        asked.discard("per_device_train_batch_size")
    if _positive(requested.get("max_steps")):
        asked.discard("num_train_epochs")
    else:
        asked.discard("max_steps")
    if requested.get("adapter_name_or_path") or any(requested.get(name) for name in ("pissa_init", "pissa_convert")):
        asked -= _ADAPTER.keys()
    yield from sorted(asked)


def _as_run(name: str, value: object) -> float:
    """A trainer counts begun epochs."""
    number = _number(value)
    return float(math.ceil(number)) if name == "num_train_epochs" else number


def _rate_mismatch(requested: Mapping[str, object], seen: Seen) -> Iterator[str]:
    asked = requested.get("learning_rate")
    if not _positive(asked) or not seen.rates or any("layerwise" in name and on for name, on in requested.items()):
        return
    if "layerwise" in str(requested.get("optim", "")):
        return
    wanted, peak = _number(asked), max(rate for _, rate in seen.rates)
    if peak > TOO_HIGH * wanted:
        yield f"learning_rate {wanted:g} was asked for, the run logged {peak:g}"
    elif _is_slow(requested, seen):
        early = [rate for share, rate in seen.rates if share is not None and share <= EARLY[1]]
        shares = [share for share, _ in seen.rates if share is not None]
        if any(EARLY[0] < share <= EARLY[1] for share in shares) and max(early) < TOO_LOW * wanted:
            yield f"learning_rate {wanted:g} was asked for, early in training the run logged at most {max(early):g}"


def _is_slow(requested: Mapping[str, object], seen: Seen) -> bool:
    """Whether the schedule is one that is near its peak in the second tenth of the training."""
    if str(requested.get("lr_scheduler_type") or "").lower() not in SLOW_SCHEDULES:
        return False
    ratio, steps = (_number(requested.get(name) or 0) for name in ("warmup_ratio", "warmup_steps"))
    total = seen.facts.get("max_steps", 0)
    share = steps if steps < 1 else steps / total if total else 1
    return max(ratio, share) <= LONGEST_WARMUP


def _is_number(value: object) -> bool:
    return not math.isnan(_number(value))


def _positive(value: object) -> bool:
    return _number(value) > 0


def _number(value: object) -> float:
    """A number, also as a framework's YAML may hold it in quotes; nan for anything else."""
    number = number_of(value)
    return math.nan if number is None else number


def read_seen(files: RunFiles, source: MetricSource) -> Seen:
    """What the run's output, the trainer's files and the adapter's state; `source` as in `findings_in`.

    Raises OSError.
    """
    try:
        folder = trainer_folder(files, source if source.kind == "trainer" else MetricSource(kind="trainer"))
    except MetricError:
        return Seen()
    adapter = json_object(folder / ADAPTER_FILE, files)
    facts = _announced(files) | {
        name: number for name, key in _ADAPTER.items() if (number := number_of(adapter.get(key))) is not None
    }
    return Seen(facts, _rates(files, folder))


def _announced(files: RunFiles) -> dict[str, float]:
    """What stands once, or always with the same value, below `***** Running training *****`."""
    said: dict[str, set[float]] = {}
    for stream in (files.stdout, files.stderr):
        for line in text_lines(stream, containing=" = ") if stream.exists() else ():
            for name, pattern in _ANNOUNCED.items():
                if match := pattern.search(line):
                    said.setdefault(name, set()).add(float(match[1].replace(",", "")))
    return {name: values.pop() for name, values in said.items() if len(values) == 1}


def _rates(files: RunFiles, folder: Path) -> list[tuple[float | None, float]]:
    state = newest_state(folder)
    held = json_object(state, files) if state else {}
    history, total = held.get("log_history"), _number(held.get("max_steps"))
    if isinstance(history, list) and history:
        entries = [entry for entry in history if isinstance(entry, dict)]
        found = [_rate(entry.get("learning_rate"), entry.get("step"), total) for entry in entries]
        return [rate for rate in found if rate][:MOST_RATES]
    log = folder / LOG
    if log.is_file() and files.wrote(log):
        rows = json_objects(log, "lr")
        logged = (_rate(row.get("lr"), row.get("current_steps"), _number(row.get("total_steps"))) for row in rows)
        return _first(logged)
    streams = [stream for stream in (files.stdout, files.stderr) if stream.exists()]
    lines = (record.values for stream in streams for record in records(stream, "learning_rate"))
    return _first(_rate(values.get("learning_rate"), None, math.nan) for values in lines)


def _first(rates: Iterator[tuple[float | None, float] | None]) -> list[tuple[float | None, float]]:
    found: list[tuple[float | None, float]] = []
    for rate in rates:
        if rate is not None and len(found) < MOST_RATES:
            found.append(rate)
    return found


def _rate(rate: object, step: object, total: float) -> tuple[float | None, float] | None:
    number, at = number_of(rate), _number(step)
    if number is None or not math.isfinite(number):
        return None
    return (at / total if total > 0 and math.isfinite(at) else None), number
