"""The seam between what a run left behind and typed numbers."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from nightlab.configs.study import MetricSource

if TYPE_CHECKING:
    from nightlab.tools.scoring.score import Score

__all__ = ["MetricReader", "Reading", "RunFiles"]

# Time stamps of files come from the kernel's coarse clock, a few milliseconds behind.
_CLOCK_SLACK = timedelta(milliseconds=50)


@dataclass(frozen=True)
class RunFiles:
    """Where one run's traces lie."""

    stdout: Path
    stderr: Path
    worktree: Path
    output: Path
    started_at: datetime | None = None
    """When the run started, UTC: a metric file last written before it is another run's and counts as absent."""

    def wrote(self, path: Path) -> bool:
        """Whether an existing file may be this run's, by the time it was last written."""
        written = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        return self.started_at is None or written >= self.started_at - _CLOCK_SLACK


@dataclass(frozen=True)
class Reading:
    """One metric's value (finite) and the file it came from."""

    value: float
    source: str
    score: Score | None = None
    """What a value that the lab computed itself rests on."""


class MetricReader(Protocol):
    def read(self, files: RunFiles, metric: str, source: MetricSource, *, maximize: bool) -> Reading:
        """The metric's value. `maximize` says which value `pick: best` means.

        Raises MetricError with cause `metric-absent`, `metric-not-finite`, `metric-ambiguous` or `metric-unreadable`.
        """
        ...
