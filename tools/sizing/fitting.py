"""Whether a run fits on the device, and the nearest that would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from nightlab.tools.sizing.memory import GIB, MemoryEstimate, Plan, estimate_memory
from nightlab.tools.sizing.shapes import ModelShape

__all__ = ["FAR_BEYOND", "Fit", "fit", "nearest"]

FAR_BEYOND = 1.05
"""How much of the device even the most sparing reading of a configuration must be beyond its error, to be refused."""


@dataclass(frozen=True)
class Fit:
    """A run against a device; bytes."""

    plan: Plan
    estimate: MemoryEstimate
    device: float
    least: MemoryEstimate
    """Where everything that the configuration leaves open is what needs least."""
    nearest: str = ""
    """What to change, the least first; empty where it fits, or where nothing known would do."""

    @property
    def share(self) -> float:
        return self.estimate.total / self.device

    @property
    def fits(self) -> bool:
        return self.share <= 1.0

    @property
    def is_hopeless(self) -> bool:
        return self.least.total > (FAR_BEYOND + self.plan.error) * self.device

    def __str__(self) -> str:
        text = (
            f"about {self.estimate} of the {self.device / GIB:.0f} GiB of a GPU; expect ±{100 * self.plan.error:.0f} %"
        )
        return text if self.fits else f"{text}. {self.nearest or 'Nothing known makes it fit: take a smaller model'}"


def fit(shape: ModelShape, plan: Plan, device: float, sparing: Plan | None = None) -> Fit:
    """A plan against `device` bytes of one GPU; `sparing` is the least that the same configuration may mean."""
    estimate, least = estimate_memory(shape, plan, device), estimate_memory(shape, sparing or plan, device)
    return Fit(plan, estimate, device, least, nearest(shape, plan, device) if estimate.total > device else "")


def nearest(shape: ModelShape, plan: Plan, device: float) -> str:
    """The least change after which the estimate fits; empty where none does."""
    for change, changed in _changes(plan):
        estimate = estimate_memory(shape, changed, device)
        if estimate.total <= device:
            return f"The nearest that fits: {change} ({estimate.total / GIB:.1f} GiB)"
    return ""


def _changes(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Ever larger steps: those that give the same result first, then those that only cost time, then other methods."""
    yield from _smaller_batches(plan, "")
    words, base = "", plan
    for change, changed in _steps(plan):
        if changed == base:
            continue
        words, base = f"{words}{', ' if words else ''}{change}", changed
        yield words, base
        yield from _smaller_batches(base, f"{words}, ")
    if plan.lora_rank is None:
        for change, bits in (("LoRA instead of full training", None), ("LoRA on a base in 4 bits (QLoRA)", 4)):
            small = replace(plan, per_device=1, checkpointing=True, lora_rank=8, quantized_bits=bits)
            yield f"{change}, per-device batch 1 with checkpointing", small
    elif plan.quantized_bits is None:
        small = replace(plan, per_device=1, checkpointing=True, quantized_bits=4)
        yield "a base in 4 bits (QLoRA), per-device batch 1 with checkpointing", small


def _smaller_batches(plan: Plan, before: str) -> Iterator[tuple[str, Plan]]:
    for size in range(plan.per_device - 1, 0, -1):
        if plan.per_device % size == 0:
            times = plan.per_device // size
            yield f"{before}per-device batch {size} with {times} times the accumulation", replace(plan, per_device=size)


def _steps(plan: Plan) -> Iterator[tuple[str, Plan]]:
    """Each on top of those before it."""
    written = plan.generation
    if written and not written.engine_share and written.sequences > plan.per_device:
        plan = replace(plan, generation=replace(written, sequences=plan.per_device))
        yield f"answers written {plan.per_device} at a time", plan
    if written and written.engine_share and not written.engine_sleeps:
        plan = replace(plan, generation=replace(written, engine_sleeps=True))
        yield "a vLLM that sleeps while the model trains (vllm_enable_sleep_mode)", plan
    if not plan.checkpointing:
        plan = replace(plan, checkpointing=True)
        yield "gradient checkpointing", plan
    if plan.world_size > 1:
        for stage in range(plan.zero_stage + 1, 4):
            plan = replace(plan, zero_stage=stage)
            yield f"ZeRO stage {stage}", plan
    if plan.lora_rank is None and plan.optimizer == "adam":
        yield "an optimiser in 8 bits", replace(plan, optimizer="adam_8bit")
