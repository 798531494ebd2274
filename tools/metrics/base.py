"""The seam between what a run left behind and typed numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from nightlab.configs.study import MetricSource

__all__ = ["MetricReader", "Reading", "RunFiles"]


@dataclass(frozen=True)
class RunFiles:
    """Where one run's traces lie."""

    stdout: Path
    stderr: Path
    worktree: Path
    output: Path
    started_at: datetime | None = None
    """When the run started, UTC: a metric file last written before it is another run's and counts as absent."""


@dataclass(frozen=True)
class Reading:
    """One metric's value (finite) and the file it came from."""

    value: float
    source: str


class MetricReader(Protocol):
    def read(self, files: RunFiles, metric: str, source: MetricSource, *, maximize: bool) -> Reading:
        """The metric's value. `maximize` says which value `pick: best` means.

        Raises MetricError with cause `metric-absent`, `metric-not-finite`, `metric-ambiguous` or `metric-unreadable`.
        """
        ...
