"""The study's story where part of it is lost: the events that other records tell of by themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from nightlab.agents.cards import Entry
from nightlab.agents.design import read_design
from nightlab.agents.idea_words import told_idea
from nightlab.agents.model_calls import DEAD, told_loss
from nightlab.agents.review_words import told as told_review
from nightlab.agents.run_findings import kept_findings
from nightlab.agents.stress_words import told_end, told_plan, told_start
from nightlab.configs.paths import JobPaths
from nightlab.graph.questions import DEADLINE, told_default
from nightlab.graph.reviewing import NO_ROOM
from nightlab.knowledge.records import (
    CallState,
    Event,
    Experiment,
    Idea,
    IdeaState,
    Job,
    Observation,
    Question,
    Review,
    ReviewState,
    Run,
    RunState,
    StudyRow,
    StudyStatus,
    Verdict,
)
from nightlab.knowledge.restoring import Remains
from nightlab.knowledge.stress import ENDED, Stress

__all__ = ["NOT_RETOLD", "RETOLD", "missing_events"]

RETOLD = frozenset(
    {
        *("started", "design", "planned", "submitted", "measured", "finding", "verdict", "finished"),
        *("failed", "cancelled", "pruned", "rejected"),
        *("question", "answered", "stress", "review", "idea", "call"),
    }
)
"""Kinds of events that other records tell of."""
NOT_RETOLD = {
    "changed": "the ledger holds the study as it is, not as it was",
    "paused": "the ledger holds whether the study is paused, not since when",
    "resumed": "likewise",
    "staying": "nothing came of it but an answer",
    "disk": "the disk is as it is now",
    "damaged": "what was damaged lies beside the ledger",
    "recovered": "each recovery tells of itself",
    "notify": "the notices that were delivered are kept, the others are not",
    "fallback": "the calls say what failed, not what was done instead",
    "model": "the faults of a model's setup are found again at the next start",
    "remedy": "the run holds the values that were turned, not the words",
    "repair": "the idea holds what it was mended for, not by which model",
    "checkpoints": "what was removed is gone",
    "merge": "the winner's conclusion tells it again",
}
"""Kinds of events that stand in the story only, and why."""


OWN = "nightlab: "
"""How the lab's own answers are signed; nobody is told of those but of a deadline's."""


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
    remains: Remains | None = None,
) -> list[Event]:
    """What `events` lack of the records' story, in the order of time; to be added behind them.

    `remains`: what only the ledger knew, as far as it is known. Kinds outside of `RETOLD` are not found again.
    """
    held = list(events)
    known: dict[tuple[str, int | None, str], list[datetime]] = defaultdict(list)
    for event in held:
        known[event.kind, event.number, event.text].append(event.time)
    missing: list[_Told] = []
    story = [*_story(row, experiments, entries, verdicts), *_beside(remains or Remains(), experiments)]
    for told in story:
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
        for finding in kept_findings(JobPaths(Path(job.directory))) if job is not None else ():
            yield _Told(observation.read_at, "finding", f"seed {run.seed}: {finding}", run.number)
    ends = {
        RunState.FAILED: f"seed {run.seed}: {run.cause}. {run.detail}",
        RunState.CANCELLED: f"seed {run.seed}: {run.detail}",
        RunState.PRUNED: f"seed {run.seed}: {run.detail}",
        RunState.REJECTED: run.detail,
    }
    if run.state in ends:
        yield _Told(run.ended_at or run.created_at, run.state.value, ends[run.state], run.number)


def _beside(remains: Remains, experiments: Mapping[int, Experiment]) -> Iterator[_Told]:
    """What happened beside the runs."""
    for question in remains.questions:
        yield from _of_question(question)
    yield from _of_stresses([one for one in remains.stresses if one.number in experiments])
    for review in remains.reviews:
        if review.number in experiments:
            yield from _of_review(review)
    yield from (_of_idea(idea) for idea in remains.ideas if idea.state is not IdeaState.ASKING and not idea.mended)
    for call in remains.calls:
        if call.state is CallState.LOST and call.outcome == DEAD:
            yield _Told(call.ended_at, "call", told_loss(call))


def _of_question(question: Question) -> Iterator[_Told]:
    yield _Told(question.asked_at, "question", question.text)
    if question.answered_by == DEADLINE:
        yield _Told(question.answered_at, "answered", told_default(question))
    elif question.answered_by is not None and not question.answered_by.startswith(OWN):
        yield _Told(question.answered_at, "answered", f"{question.id}: {question.answer}, by {question.answered_by}")


def _of_stresses(stresses: list[Stress]) -> Iterator[_Told]:
    repeats: dict[tuple[int, str], list[Stress]] = defaultdict(list)
    for one in stresses:
        repeats[one.number, one.check].append(one)
    for (number, check), own in repeats.items():
        if number > 0:
            yield _Told(own[0].planned_at, "stress", told_plan(check, len(own)), number)
    for one in stresses:
        # When it began is not kept.
        if one.native_id is not None:
            yield _Told(one.planned_at, "stress", told_start(one), one.number)
        if one.state in ENDED:
            yield _Told(one.ended_at, "stress", told_end(one), one.number)


def _of_review(review: Review) -> Iterator[_Told]:
    if review.state is not ReviewState.ASKING:
        yield _Told(review.asked_at, "review", told_review(review), review.number)
    if review.note == NO_ROOM:
        yield _Told(review.asked_at, "review", NO_ROOM, review.number)


def _of_idea(idea: Idea) -> _Told:
    return _Told(idea.created_at, "idea", told_idea(idea))
