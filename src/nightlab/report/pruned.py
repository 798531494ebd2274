"""What ending runs early has saved, in one sentence."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from nightlab.knowledge.records import Job, Run, RunState
from nightlab.report.numbers import count, duration

__all__ = ["pruned_sentence"]

WHOLE = (RunState.MEASURED, RunState.REVIEWED, RunState.REJECTED)


def pruned_sentence(runs: Sequence[Run], jobs: Iterable[Job]) -> str:
    """How many runs were ended for being behind and about how much longer whole ones would have taken; '' for none."""
    seconds = {job.key: job.wall_seconds for job in jobs if job.wall_seconds is not None}
    pruned = [run.key for run in runs if run.state is RunState.PRUNED]
    whole = [seconds[run.key] for run in runs if run.state in WHOLE and run.key in seconds]
    if not pruned:
        return ""
    text = f"{count(len(pruned), 'run')} ended early for being clearly behind"
    if not whole:
        return f"{text}."
    saved = sum(max(0.0, statistics.median(whole) - seconds.get(key, 0.0)) for key in pruned)
    return f"{text}: about {duration(saved)} saved." if saved >= 1 else f"{text}."
