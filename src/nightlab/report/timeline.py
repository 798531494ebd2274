"""What each slot did, second by second, from the jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

from nightlab.knowledge.records import Job, Phase, Run, RunState
from nightlab.knowledge.stress import Stress, StressState
from nightlab.report.model import Bar, Timeline

__all__ = ["build_timeline", "group_by_slot"]


def build_timeline(
    jobs: Sequence[Job], runs: Sequence[Run], slots: int, now: datetime | None, stresses: Sequence[Stress] = ()
) -> Timeline:
    """Bars by slot and the slots' utilisation; a job that has not ended reaches to `now` (UTC).

    Repeats of stress checks are there once they have ended: when one began is known from then on.
    """
    runs_by_key = {run.key: run for run in runs}
    started = [job for job in jobs if job.started_at is not None]
    if not started:
        return Timeline(slots, (), 0.0, None)
    origin = min(job.intent_at for job in started)
    bars = []
    for job in started:
        end = job.ended_at or now
        if job.started_at is None or end is None or end < job.started_at:
            continue
        run = runs_by_key.get(job.key)
        if run is not None:
            bars.append(_bar(job, run, (job.started_at - origin).total_seconds(), (end - origin).total_seconds()))
    bars += [bar for one in stresses if (bar := _stress_bar(one, origin)) is not None]
    span = max((bar.end_seconds for bar in bars), default=0.0)
    used_slots = max(slots, max((bar.slot + 1 for bar in bars), default=0))
    busy = sum(_covered(bars, slot) for slot in range(used_slots))
    utilisation = busy / (span * used_slots) if span > 0 else None
    return Timeline(used_slots, tuple(sorted(bars, key=lambda b: (b.slot, b.start_seconds))), span, utilisation)


def _bar(job: Job, run: Run, start_seconds: float, end_seconds: float) -> Bar:
    outcome: Literal["measured", "failed", "running"]
    if run.state in (RunState.FAILED, RunState.CANCELLED):
        outcome = "failed"
    elif job.ended_at is None:
        outcome = "running"
    else:
        outcome = "measured"
    return Bar(job.slot, start_seconds, end_seconds, run.number, run.seed, run.phase, outcome)


def _stress_bar(stress: Stress, origin: datetime) -> Bar | None:
    if stress.slot is None or stress.ended_at is None or not stress.wall_seconds:
        return None
    end_seconds = (stress.ended_at - origin).total_seconds()
    outcome: Literal["measured", "failed"] = "measured" if stress.state is StressState.MEASURED else "failed"
    start_seconds = max(0.0, end_seconds - stress.wall_seconds)
    place = stress.slot, start_seconds, end_seconds
    return Bar(*place, stress.number, stress.repeat, Phase.CONFIRM, outcome, stress.check)


def _covered(bars: Sequence[Bar], slot: int) -> float:
    """Seconds of a slot with at least one job on it: overlaps after a restart do not count twice."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted((bar.start_seconds, bar.end_seconds) for bar in bars if bar.slot == slot):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def group_by_slot(timeline: Timeline) -> Mapping[int, list[Bar]]:
    """Slot → its bars in time order; a slot without a job has an empty list."""
    rows: dict[int, list[Bar]] = {slot: [] for slot in range(timeline.slots)}
    for bar in timeline.bars:
        rows[bar.slot].append(bar)
    return rows
