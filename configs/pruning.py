"""When a running run that falls behind is ended before its time."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section

__all__ = ["PruningSettings"]


class PruningSettings(Section):
    """When a running run that falls behind is ended before its time (needs a metric reported with its step)."""

    mode: Literal["auto", "careful", "off"] = "auto"
    """`auto`: a first look at a new value must be among the best third of what got as far, or close to the best; what
    refines the best is ended only when clearly worse. `careful`: only the clearly worse, whatever it is. `off`: never.
    Baseline, confirmation, further seeds and rows of an orthogonal array are never ended for being behind."""
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = None
    """Share of the steps in which nothing is compared, at least the run's own warm-up. Without it comparing starts 4 %
    of the steps after the warm-up that the parameters name (0 is one), at 12 % where they name none."""
    metric: Annotated[str, Field(min_length=1)] | None = None
    """Metric to compare by, where the objective itself is not reported on the way; it should rank runs as the objective
    does. A training loss does not where regularisation differs."""
    direction: Literal["minimize", "maximize"] | None = None
    """Which way `metric` is better, where that differs from the objective."""
    step: Annotated[str, Field(min_length=1)] | None = None
    """Name of the step in the metric's own line, JSON object or CSV row; without it `step`, `global_step`, `iteration`,
    `iter` or `epoch`."""
    schedule_parameters: list[str] | None = None
    """Parameters that shape the curve (number of steps, schedule, warm-up): runs that differ in one of them are not
    compared half-way. Without it those whose names speak of steps, epochs, warm-up, schedule, decay or cool-down."""
    warmup_parameter: str | None = None
    """Parameter that holds the warm-up, in steps or as a share of them, as its name says (`warmup_steps`,
    `warmup_ratio`); where it says neither, up to 1 a share. Without it those whose names say `warmup`."""

    @model_validator(mode="after")
    def _of_a_metric(self) -> PruningSettings:
        if self.direction is not None and self.metric is None:
            refuse(Problem("belongs to a metric of its own", ("direction",), "name it in metric, or remove direction"))
        return self
