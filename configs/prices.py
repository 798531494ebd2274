"""What a run and a model's tokens cost: the price table a budget of money is counted by."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from nightlab.configs.section import Section

__all__ = ["ModelPrice", "Prices"]

Usd = Annotated[float, Field(ge=0)]


class ModelPrice(Section):
    """What the tokens of one language model cost, in US dollars a million."""

    input_million_usd: Usd = 0.0
    """A million tokens of prompts."""
    cached_million_usd: Usd | None = None
    """A million of those that the provider took from its cache; `input_million_usd` when left out."""
    output_million_usd: Usd = 0.0
    """A million tokens of answers, reasoning included."""

    def cost_usd(self, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """One call; `input_tokens` hold the cached ones."""
        cached_usd = self.input_million_usd if self.cached_million_usd is None else self.cached_million_usd
        fresh = (input_tokens - cached_tokens) * self.input_million_usd
        return (fresh + cached_tokens * cached_usd + output_tokens * self.output_million_usd) / 1e6


class Prices(Section):
    """What runs and calls of language models cost, in US dollars; the parts add up."""

    gpu_hour_usd: Usd = 0.0
    """One hour of one GPU of those under `backend.gpus`."""
    slot_hour_usd: Usd = 0.0
    """One hour of one slot with a job on it: the machine's share."""
    run_usd: Usd = 0.0
    """Each run that was started, however long it takes."""
    models: dict[str, ModelPrice] = Field(default_factory=dict)
    """What the language models cost, by name as they are called. With `budget.cost_usd` a model without a price is not
    called; write `{}` for one that costs nothing."""

    def hour_usd(self, gpus: int) -> float:
        """An hour of a run on so many GPUs."""
        return self.slot_hour_usd + gpus * self.gpu_hour_usd

    def cost_usd(self, wall_seconds: float, gpus: int) -> float:
        """One run of `wall_seconds` on so many GPUs."""
        return self.run_usd + self.hour_usd(gpus) * wall_seconds / 3600
