"""The seam to where jobs run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Protocol

from nightlab.knowledge.records import JobState

__all__ = ["Backend", "JobSpec", "JobStatus"]


@dataclass(frozen=True)
class JobSpec:
    """One job, complete: nothing but this is needed to run it."""

    key: str
    """`study/NN/attempt/seed`; submitting the same key twice starts one job."""
    command: tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    """Variables the launcher sets; the backend adds its own allow-listed ones underneath."""
    directory: Path
    """The job's folder (`JobPaths`)."""
    slot: int = 0
    """0 ≤ slot < slots; decides the GPUs."""
    timeout_seconds: float | None = None


@dataclass(frozen=True)
class JobStatus:
    """What the backend says of a job now; times are UTC, sizes bytes."""

    state: JobState
    native_id: str | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    """Exit status; negative is the signal's number."""
    timed_out: bool = False
    cancelled: bool = False
    """Ended by `cancel`, or by a signal to its runner: it says nothing about what it ran."""
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    detail: str = field(default="")


class Backend(Protocol):
    """Where jobs run. A failed job is a `JobStatus`; only the backend's own trouble raises `BackendError`."""

    @property
    def name(self) -> str: ...

    @property
    def slots(self) -> int: ...

    def submit(self, spec: JobSpec) -> str:
        """Start the job, or find the one already started under this key; returns the native id."""
        ...

    def find(self, key: str, directory: Path) -> str | None:
        """Native id of a job submitted under `key` (running or ended), None when there never was one."""
        ...

    def poll(self, directories: Mapping[str, Path]) -> dict[str, JobStatus]:
        """Status of the jobs `{key: directory}`; a job that vanished without a result is `lost`."""
        ...

    def wait(self, directories: Mapping[str, Path], seconds: float) -> bool:
        """True as soon as one of the jobs has ended, False after `seconds` without."""
        ...

    def cpu_seconds(self, directories: Mapping[str, Path]) -> dict[str, float]:
        """CPU seconds used so far by each running job's processes; jobs of which nothing can be told are left out."""
        ...

    def gpu_shares(self, directories: Mapping[str, Path]) -> dict[str, float]:
        """How busy each running job's busiest GPU is now, 0 to 1; jobs of which nothing can be told are left out."""
        ...

    def cancel(self, directories: Mapping[str, Path]) -> Iterable[str]:
        """End the jobs with their whole process trees and return the keys of those that were still running."""
        ...
