"""Values captured by a study's own regular expression, line by line.

A pattern that captures only part of a number is refused: `loss=([0-9.]+)` would read `1e-3` as 1 and `.*([0-9.]+)`
would read `0.345` as 5.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import excerpt, parse_number
from nightlab.tools.metrics.picks import Outcome
from nightlab.tools.metrics.steps import AtStep, number_of, step_in
from nightlab.tools.metrics.stream import text_lines

__all__ = ["pattern_outcomes"]

_WHOLE_NUMBER = re.compile(
    r"(?:(?<![\w.)\]])[-+])?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+,\d+(?![\d.,]*\d)|\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?",
    re.ASCII,
)
# A longer stretch around a capture is never one number.
_NEIGHBOURHOOD_CHARACTERS = 64


def pattern_outcomes(path: Path, pattern: str, at: AtStep | None = None) -> Iterator[Outcome]:
    """What the group `value`, else the first group, captures in each match; with `at` only at this step.

    The step is what a group `step` captures, else what the line states.
    Raises OSError, and MetricError with cause `metric-absent`.
    """
    compiled = re.compile(pattern)
    group = "value" if "value" in compiled.groupindex else 1
    found = False
    for line in text_lines(path):
        for match in compiled.finditer(line):
            if match[group] is not None and (at is None or at.takes(_step(match))):
                found = True
                yield _outcome(match, group)
    if not found:
        absent = at.absence(f"match of {excerpt(pattern)}") if at else f"no line matches the pattern {excerpt(pattern)}"
        raise MetricError(absent, cause="metric-absent")


def _step(match: re.Match[str]) -> float | None:
    groups = match.groupdict()
    return number_of(groups["step"]) if "step" in groups else step_in(match.string, AtStep.names)


def _outcome(match: re.Match[str], group: int | str) -> Outcome:
    try:
        value = parse_number(match[group])
    except MetricError as error:
        return error
    start, end = match.span(group)
    for whole in _WHOLE_NUMBER.finditer(
        match.string, max(0, start - _NEIGHBOURHOOD_CHARACTERS), end + _NEIGHBOURHOOD_CHARACTERS
    ):
        overlaps = whole.start() < end and start < whole.end()
        if overlaps and (whole.start() < start or end < whole.end()):
            return MetricError(
                f"the pattern captures {excerpt(match[group])} of {excerpt(whole[0])}; widen its group, for example "
                r"(\S+)",
                cause="metric-ambiguous",
            )
    return value
