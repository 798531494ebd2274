"""The study's story where part of it is lost: events that runs and verdicts tell of by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import NamedTuple

from nightlab.agents.cards import Entry
from nightlab.agents.design import read_design
from nightlab.knowledge.records import (
    Event,
    Experiment,
    Job,
    Observation,
    Run,
    RunState,
    StudyRow,
    StudyStatus,
    Verdict,
)

__all__ = ["missing_events"]


class _Told(NamedTuple):
    time: datetime | None
    kind: str
    text: str
    number: int | None = None


def missing_events(
    events: Iterable[Event],
    row: StudyRow,
    experiments: Mapping[int, Experiment],
    entries: Iterable[Entry],
    verdicts: Iterable[Verdict],
) -> list[Event]:
    """What `events` lack of the records' story, in the order of time; to be added behind them.

    Remedies, changes of the study file and notes on the disk stand in events only, and are not found again.
    """
    held = list(events)
    known: dict[tuple[str, int | None, str], list[datetime]] = defaultdict(list)
    for event in held:
        known[event.kind, event.number, event.text].append(event.time)
    missing: list[_Told] = []
    for told in _story(row, experiments, entries, verdicts):
        times = known[told.kind, told.number, told.text]
        # On more runs a verdict may come out in the same words: what was told before it told of another.
        is_newer = told.kind == "verdict" and told.time is not None and times[-1:] < [told.time]
        if times and not is_newer:
            times.pop()
        else:
            missing.append(told)
    last_id = max((event.id for event in held), default=0)
    dated = [(told.time or row.started_at, told) for told in missing]
    ordered = sorted(((time, told) for time, told in dated if time is not None), key=lambda pair: pair[0])
    return [
        Event(id=last_id + place, time=time, kind=told.kind, number=told.number, text=told.text)
        for place, (time, told) in enumerate(ordered, 1)
    ]


def _story(
    row: StudyRow, experiments: Mapping[int, Experiment], entries: Iterable[Entry], verdicts: Iterable[Verdict]
) -> Iterator[_Told]:
    yield _Told(row.started_at, "started", f"from commit {row.base_commit[:12]}")
    if row.design is not None:
        design = read_design(row.design)
        yield _Told(row.started_at, "design", f"{len(design.factors)} factors, {design.level_count} levels")
    metric = row.study.objective.metric
    for run, job, observation in entries:
        yield from _of_run(run, experiments[run.number], job, observation, metric)
    for verdict in verdicts:
        text = f"{experiments[verdict.number].variable}: {verdict.kind}, {verdict.label}"
        yield _Told(verdict.decided_at, "verdict", text, verdict.number)
    if row.status is StudyStatus.FINISHED:
        yield _Told(row.finished_at, "finished", "every verdict is in")


def _of_run(
    run: Run, experiment: Experiment, job: Job | None, observation: Observation | None, metric: str
) -> Iterator[_Told]:
    if run.attempt == 1:
        yield _Told(run.created_at, "planned", run.reason, run.number)
    if job is not None and job.native_id is not None:
        text = f"{experiment.variable} seed {run.seed} on slot {job.slot}"
        yield _Told(job.started_at or job.intent_at, "submitted", text, run.number)
    if observation is not None and run.state is not RunState.PRUNED:
        text = f"seed {run.seed}: {metric} {observation.values[metric]:.6g}"
        yield _Told(observation.read_at, "measured", text, run.number)
    ends = {
        RunState.FAILED: f"seed {run.seed}: {run.cause}. {run.detail}",
        RunState.CANCELLED: f"seed {run.seed}: {run.detail}",
        RunState.PRUNED: f"seed {run.seed}: {run.detail}",
        RunState.REJECTED: run.detail,
    }
    if run.state in ends:
        yield _Told(run.ended_at or run.created_at, run.state.value, ends[run.state], run.number)
