"""What a run costs: the price table a budget of money is counted by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nightlab.configs.section import Section

__all__ = ["Prices"]

Usd = Annotated[float, Field(ge=0)]


class Prices(Section):
    """What runs cost, in US dollars; the parts add up."""

    gpu_hour_usd: Usd = 0.0
    """One hour of one GPU of those under `backend.gpus`."""
    slot_hour_usd: Usd = 0.0
    """One hour of one slot with a job on it: the machine's share."""
    run_usd: Usd = 0.0
    """Each run that was started, however long it takes."""

    def hour_usd(self, gpus: int) -> float:
        """An hour of a run on so many GPUs."""
        return self.slot_hour_usd + gpus * self.gpu_hour_usd

    def cost_usd(self, wall_seconds: float, gpus: int) -> float:
        """One run of `wall_seconds` on so many GPUs."""
        return self.run_usd + self.hour_usd(gpus) * wall_seconds / 3600
