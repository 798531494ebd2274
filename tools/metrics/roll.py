"""What ROLL logs: one JSON object of metrics a step, from its stdout tracker (`metrics_tag: {…}`) or its own logger.

The tracker's lines name the step and are preferred: the logger writes the same numbers once more, with the reducer
behind the name (`actor/loss@mean`), which is left out. `val_correct/<tag>:  0.5` is a plain line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from nightlab.errors import MetricError
from nightlab.tools.metrics.files import outcome_of
from nightlab.tools.metrics.lines import statements
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.steps import AtStep, number_of
from nightlab.tools.metrics.stream import search_word, text_lines

__all__ = ["roll_outcomes", "roll_values"]

_TRACKED = re.compile(r"(?:^|[\s\]])metrics_tag: (?=\{)")
_LOGGED = re.compile(r"(?:\[[^\[\]]*\]|\([^()]*\)|\s)*+(?=\{)")
_LINE_LIMIT_BYTES = 1 << 18

Step = float | None


def roll_outcomes(path: Path, key: str, at: AtStep | None = None) -> Iterator[Outcome]:
    """Values of `key`, in the order of the log.

    Raises OSError, and MetricError with cause `metric-absent`.
    """
    lines = text_lines(path, containing=search_word(key), limit_bytes=_LINE_LIMIT_BYTES)
    found = False
    tracked = _is_tracked(path)
    for line in lines:
        for step, value in roll_values(line, key, tracked=tracked):
            if at is None or at.takes(step):
                found = True
                yield outcome_of(value)
    if not found:
        raise MetricError(at.absence(key) if at else f"no metrics line has {key}", cause="metric-absent")


def _is_tracked(path: Path) -> bool:
    return any(_TRACKED.search(line) for line in text_lines(path, containing="metrics_tag"))


def roll_values(line: str, key: str, *, tracked: bool | None = None) -> list[tuple[Step, object]]:
    """Step (None where the line names none) and value of `key` in one clean line.

    `tracked` says whether the stdout tracker writes to this log: then nothing else counts but plain lines.
    """
    if match := _TRACKED.search(line):
        entry = _object(line[match.end() :])
        metrics = entry.get("metrics")
        named = _plain_names(metrics) if isinstance(metrics, dict) else {}
        return [(number_of(entry.get("step")), named[key])] if key in named else []
    if match := _LOGGED.match(line):
        named = _plain_names(_object(line[match.end() :])) if not tracked else {}
        step = number_of(named.get("system/global_step", named.get("global_step")))
        return [(step, named[key])] if key in named else []
    return [(None, statement.text) for statement in statements(line, key)]


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _plain_names(metrics: dict[str, object]) -> dict[str, object]:
    return {name.rsplit("@", 1)[0]: value for name, value in metrics.items()}
