"""When a running job is ended before its time."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nightlab.configs.section import Section
from nightlab.configs.units import Duration, Flag

__all__ = ["Watchdog"]


class Watchdog(Section):
    """When a running job is ended before its time."""

    no_progress_seconds: Duration | None = Field(default=1800.0, alias="no_progress")
    """A job whose output does not grow and whose processes use next to no CPU, nor a GPU where the extra `gpu` lets the
    lab see that, for this long is ended."""
    non_finite: Flag = True
    """End a job whose logged loss is nan or infinite three times in a row; a run whose loss ended so has failed."""
    diverging_factor: Annotated[float, Field(gt=1)] | None = 3.0
    """End a job whose logged loss stays above this many times its best value so far for `diverging_points` points, and
    has lost a quarter of what it had gained; a run whose loss ended this many times above where it began has failed."""
    diverging_points: Annotated[int, Field(ge=3)] = 20
    """Logged loss values in a row that count as diverged."""
    every_seconds: Duration = Field(default=5.0, alias="every")
    """How often running jobs are looked at."""
