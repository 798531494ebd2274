"""What is told of stress checks: the same words when it happens and when a lost story is told again."""

from __future__ import annotations

from nightlab.knowledge.stress import Stress, StressState

__all__ = ["told_end", "told_plan", "told_start"]


def told_plan(check: str, repeats: int) -> str:
    return f"stress check {check}: {repeats} repeats, and of the baseline"


def told_start(stress: Stress) -> str:
    return f"{_named(stress)} on slot {stress.slot}"


def told_end(stress: Stress) -> str:
    """The values of what was measured, else what became of it."""
    if stress.state is StressState.MEASURED:
        return f"{_named(stress)}: {', '.join(f'{name} {value:.6g}' for name, value in stress.values.items())}"
    return f"{_named(stress)}: {stress.state}: {stress.detail}"


def _named(stress: Stress) -> str:
    return f"{stress.check} {stress.repeat + 1}"
