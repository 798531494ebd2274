"""Training steps as logs state them, and the choice of the values of one step."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import parse_number

__all__ = ["STEP_NAMES", "AtStep", "number_of", "step_in"]

STEP_NAMES = ("step", "global_step", "iteration", "iter", "epoch", "_step")
"""In the order they are believed."""


def step_in(line: str, names: Iterable[str] = STEP_NAMES) -> float | None:
    """The step that a line states: `step 120`, `step: 120/1000`, `[iter=7]`."""
    for name in names:
        pattern = rf"(?<![\w./-]){re.escape(name)}(?!\w)[\"']?\s*[:=#]?\s*(\d[\d,_]*(?:\.\d+)?)(?![\w%])"
        if match := re.search(pattern, line, re.IGNORECASE):
            return float(match[1].replace(",", "").replace("_", ""))
    return None


def number_of(value: object) -> float | None:
    """A finite number, nan for what is printed in its place, None for anything else."""
    if value is None or isinstance(value, bool | dict | list):
        return None
    try:
        return parse_number(value if isinstance(value, str) else repr(value))
    except MetricError as error:
        return math.nan if error.cause == "metric-not-finite" else None


@dataclass
class AtStep:
    """Takes the values of one step; of all others it remembers only which were nearest."""

    wanted: float
    below: float = -math.inf
    above: float = math.inf

    names = tuple(name for name in STEP_NAMES if name != "epoch")
    """What counts steps; an epoch is none."""

    def takes(self, step: float | None) -> bool:
        if step is None or not math.isfinite(step):
            return False
        if step < self.wanted:
            self.below = max(self.below, step)
        elif step > self.wanted:
            self.above = min(self.above, step)
        return step == self.wanted

    def absence(self, key: str) -> str:
        """That nothing was reported at this step, and which steps it was reported at next to it."""
        near = [f"{step:g}" for step in (self.below, self.above) if math.isfinite(step)]
        said = f"the nearest are {' and '.join(near)}" if near else "no value of it stands beside a step"
        return f"has no {key} at step {self.wanted:g}; {said}"
