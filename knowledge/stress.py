"""The record of one repeat of a stress check: a job beside the runs, whose values no search ever sees."""

from __future__ import annotations

from enum import StrEnum

from pydantic import AwareDatetime, Field

from nightlab.knowledge.records import Record, utc_now

__all__ = ["ENDED", "IN_FLIGHT", "Stress", "StressState", "stress_key"]


class StressState(StrEnum):
    """Where one repeat of a stress check stands."""

    PLANNED = "planned"
    INTENDED = "intended"
    """It has a slot and a folder; the backend may have its job."""
    RUNNING = "running"
    MEASURED = "measured"
    FAILED = "failed"
    """`detail` says why."""
    CANCELLED = "cancelled"
    """It says nothing: the time was over, the budget had no room, somebody ended it (`detail`)."""


IN_FLIGHT = (StressState.INTENDED, StressState.RUNNING)
"""It holds a slot."""
ENDED = (StressState.MEASURED, StressState.FAILED, StressState.CANCELLED)


def stress_key(study: str, number: int, check: str, repeat: int) -> str:
    """The deterministic key of its job: `study/NN/stress/<check>/K`."""
    return f"{study}/{number:02d}/stress/{check}/{repeat}"


class Stress(Record):
    """One repeat of one stress check on one experiment."""

    key: str
    number: int
    check: str
    """The check's name in the study."""
    repeat: int
    """From 0."""
    run: str
    """Key of the run whose output is put under stress."""
    state: StressState = StressState.PLANNED
    slot: int | None = None
    directory: str = ""
    worktree: str = ""
    native_id: str | None = None
    losses: int = 0
    """How often its job vanished without a result, or was ended by somebody: it is tried again in another folder."""
    exit_code: int | None = None
    wall_seconds: float | None = None
    values: dict[str, float] = Field(default_factory=dict)
    """Metric name → finite value; empty unless it was measured."""
    detail: str = ""
    gpu_hours: float = 0.0
    """What it used; until it has ended what it may take at most."""
    cost_usd: float = 0.0
    planned_at: AwareDatetime = Field(default_factory=utc_now)
    ended_at: AwareDatetime | None = None
