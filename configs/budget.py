"""What a study may use, each limit in its own unit; the first one reached ends it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Duration, next_clock_time

__all__ = ["Budget"]

BOUNDLESS = ("ask_above", "llm_tokens")
"""How the keys begin that set no limit to a night: those that ask, and what runs do not use."""

Amount = Annotated[float, Field(gt=0)]


class Budget(Section):
    """What the study may use; it ends when the first of them is spent, with confirmation kept in reserve. What runs in
    flight will take is reserved at the pace seen so far, so only they can overspend it."""

    runs: Annotated[int, Field(ge=1)] | None = None
    """Training runs in all: replicates, retries and confirmation included."""
    experiments: Annotated[int, Field(ge=1)] | None = None
    """Configurations tried, the baseline not counted."""
    duration_seconds: Duration | None = Field(default=None, alias="duration")
    """Wall-clock time from the first start, e.g. `9h`."""
    until: str | None = None
    """Wall-clock time to be finished by: `HH:MM`, local or with a time zone (`07:30 Europe/Berlin`), or an ISO
    date-time, local or with an offset."""
    gpu_hours: Amount | None = None
    """Hours of the GPUs listed under `backend.gpus`, all of them added up."""
    llm_tokens: Annotated[int, Field(ge=1)] | None = None
    """Tokens of language models, input and output added up. It limits the calls, not the runs: give another limit for
    those. A call that may take more than is left is not made."""
    cost_usd: Amount | None = None
    """Money, by the table under `prices`: runs and calls of language models."""
    ask_above_gpu_hours: Amount | None = None
    """Once this much is used, going on is a question (`approvals.spend`); the hard limit holds all the same."""
    ask_above_cost_usd: Amount | None = None
    """The same for money."""

    @model_validator(mode="after")
    def _bounded(self) -> Budget:
        if all(getattr(self, name) is None for name in type(self).model_fields if not name.startswith(BOUNDLESS)):
            refuse(Problem("sets no limit", (), f"give at least one of {', '.join(_keys())}"))
        if self.until is not None:
            try:
                next_clock_time(self.until, datetime.now(UTC))
            except KeyError as error:
                refuse(Problem(f"names no time zone: {error.args[0]}", ("until",), "for example 07:30 Europe/Berlin"))
            except ValueError:
                refuse(Problem("is neither HH:MM nor an ISO date-time", ("until",), "for example until: 07:30"))
        return self

    @property
    def bounds_without_money(self) -> bool:
        """Whether a night ends without `cost_usd`."""
        limits = (self.runs, self.experiments, self.duration_seconds, self.until, self.gpu_hours)
        return any(limit is not None for limit in limits)


def _keys() -> list[str]:
    return [field.alias or name for name, field in Budget.model_fields.items() if not name.startswith(BOUNDLESS)]
