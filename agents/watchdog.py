"""The watchdog over running jobs: it ends what stands still, has lost its loss to nan, or runs away from its best."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths
from nightlab.configs.watchdog import Watchdog
from nightlab.knowledge.records import Job, JobState
from nightlab.tools.metrics.curve import LossTail

if TYPE_CHECKING:
    from nightlab.agents.context import Lab

__all__ = ["Finding", "Watch", "ended_by_watchdog"]

NON_FINITE_IN_A_ROW = 3
GIVEN_BACK = 0.25
# A sleeping Python process with timers and prefetch threads uses about this share of a core.
IDLE_SHARE = 0.01
IDLE_GPU_SHARE = 0.005
"""NVML counts in whole hundredths: one is work."""


@dataclass(frozen=True)
class Finding:
    """Why a job is ended: a short identifier and a sentence."""

    cause: str
    detail: str


@dataclass
class _Seen:
    """What was seen of one job up to now."""

    losses: LossTail
    still_since: float
    bytes_written: int = 0
    cpu_seconds: float = 0.0
    first: float | None = None
    best: float = math.inf
    above: int = 0
    non_finite: int = 0


@dataclass
class Watch:
    """Looks at running jobs from time to time; what it has seen is rebuilt after a restart."""

    settings: Watchdog
    seen: dict[str, _Seen] = field(default_factory=dict)
    looked_at: float = -math.inf

    def look(self, lab: Lab, now: float) -> list[str]:
        """End the jobs that have earned it and return their keys; does nothing between two looks. `now` in seconds."""
        if now - self.looked_at < self.settings.every_seconds:
            return []
        self.looked_at = now
        jobs = {job.key: job for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
        self.seen = {key: seen for key, seen in self.seen.items() if key in jobs}
        directories = {key: Path(job.directory) for key, job in jobs.items()}
        used, shares = lab.backend.cpu_seconds(directories), lab.backend.gpu_shares(directories)
        judged = {key: self._judge(job, used.get(key), shares.get(key), now) for key, job in jobs.items()}
        findings = {key: finding for key, finding in judged.items() if finding is not None}
        for key, finding in findings.items():
            _end(lab, jobs[key], finding)
        return list(findings)

    def _judge(self, job: Job, cpu_seconds: float | None, gpu_share: float | None, now: float) -> Finding | None:
        paths = JobPaths(Path(job.directory))
        seen = self.seen.setdefault(job.key, _Seen(LossTail(paths.stdout), now))
        return self._loss(seen) or self._standstill(seen, paths, cpu_seconds, gpu_share, now)

    def _loss(self, seen: _Seen) -> Finding | None:
        for loss in seen.losses.new_losses():
            seen.non_finite = 0 if math.isfinite(loss) else seen.non_finite + 1
            if self.settings.non_finite and seen.non_finite >= NON_FINITE_IN_A_ROW:
                return Finding("loss-not-finite", f"the loss was {loss} {NON_FINITE_IN_A_ROW} times in a row")
            if not math.isfinite(loss):
                continue
            factor = self.settings.diverging_factor
            seen.first = loss if seen.first is None else seen.first
            above = factor is not None and 0 < seen.best < math.inf and loss > factor * seen.best
            # A loss that is close to nothing wanders by factors; it must have lost a good part of what it had gained.
            above = above and loss - seen.best > GIVEN_BACK * (seen.first - seen.best)
            seen.above = seen.above + 1 if above else 0
            seen.best = min(seen.best, loss)
            if seen.above >= self.settings.diverging_points:
                text = f"the loss has been above {factor:g} times its best, {seen.best:.4g}, for {seen.above} points"
                return Finding("diverged", text)
        return None

    def _standstill(
        self, seen: _Seen, paths: JobPaths, cpu_seconds: float | None, gpu_share: float | None, now: float
    ) -> Finding | None:
        written = sum(log.stat().st_size for log in (paths.stdout, paths.stderr) if log.exists())
        # Of a job whose CPU and GPUs nothing is known the output alone decides.
        used = 0.0 if cpu_seconds is None else cpu_seconds - seen.cpu_seconds
        computes = used > IDLE_SHARE * self.settings.every_seconds or (gpu_share or 0.0) > IDLE_GPU_SHARE
        if written != seen.bytes_written or computes:
            seen.still_since = now
        seen.bytes_written = written
        seen.cpu_seconds = seen.cpu_seconds if cpu_seconds is None else cpu_seconds
        limit, elapsed = self.settings.no_progress_seconds, now - seen.still_since
        if limit is None or elapsed < limit:
            return None
        idle = "no CPU use" if gpu_share is None else "no CPU or GPU use"
        return Finding("no-progress", f"no output and {idle} for {elapsed:.0f} s")


def _end(lab: Lab, job: Job, finding: Finding) -> None:
    """Write the reason where the job's end will be read, then end it: a crash between the two loses neither."""
    paths = JobPaths(Path(job.directory))
    write_atomically(paths.ended_by, json.dumps({"cause": finding.cause, "detail": finding.detail}))
    lab.backend.cancel({job.key: paths.directory})


def ended_by_watchdog(paths: JobPaths) -> Finding | None:
    """Why the watchdog ended this job, None when it did not."""
    if not paths.ended_by.exists():
        return None
    return Finding(**json.loads(paths.ended_by.read_text(encoding="utf-8")))
