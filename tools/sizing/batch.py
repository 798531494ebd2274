"""The effective batch: how many examples one step of the optimiser sees."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from nightlab.tools.failures.remedies import BatchNames, batch_names
from nightlab.tools.sizing.configuration import Configuration

__all__ = ["EffectiveBatch", "effective_batch", "names_of_batch"]


@dataclass(frozen=True)
class EffectiveBatch:
    """World size × per-device batch × accumulation."""

    world_size: int
    per_device: int
    accumulation: int = 1

    @property
    def size(self) -> int:
        return self.world_size * self.per_device * self.accumulation

    def smaller(self) -> EffectiveBatch | None:
        """The same size with the next smaller per-device batch; None where it is 1 already."""
        divisor = next((n for n in range(2, self.per_device + 1) if self.per_device % n == 0), None)
        if divisor is None:
            return None
        return replace(self, per_device=self.per_device // divisor, accumulation=self.accumulation * divisor)

    def __str__(self) -> str:
        return f"{self.size} = {self.world_size} × {self.per_device} × {self.accumulation}"


def effective_batch(configuration: Configuration) -> EffectiveBatch | None:
    """That of a configuration; None where nothing is named like a batch.

    The names are those of LLaMA-Factory, Hugging Face, TRL, DeepSpeed and Lightning, or as `catalog.parameters` says.
    With a total batch instead of an accumulation, the accumulation is what is missing to it. The world size is a
    parameter of that name, else the processes of a run.
    """
    names = names_of_batch(configuration)
    per_device = _count(configuration, names.per_device) if names else None
    if names is None or per_device is None:
        return None
    world = configuration.number("world_size") or configuration.processes
    if names.accumulation:
        return EffectiveBatch(world, per_device, _count(configuration, names.accumulation) or 1)
    total = _count(configuration, names.total) if names.total else None
    return EffectiveBatch(world, per_device, max(1, math.ceil(total / (per_device * world))) if total else 1)


def names_of_batch(configuration: Configuration) -> BatchNames | None:
    """Which parameters hold the batch; None where none does."""
    own = {name: value for name, value in configuration.own.items() if value in configuration.values}
    found = batch_names(configuration.values)
    per_device = own.get("per_device_train_batch_size", found.per_device if found else None)
    if per_device is None:
        return None
    accumulation = own.get("gradient_accumulation_steps", found.accumulation if found else None)
    return BatchNames(per_device, accumulation, own.get("effective_batch", found.total if found else None))


def _count(configuration: Configuration, name: str) -> int | None:
    value = configuration.values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
