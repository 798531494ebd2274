"""Where a study stands right now, read from its ledger: for `status`, for `run`'s live display, and for scripts."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Literal

from pydantic import AwareDatetime, BaseModel

from nightlab.agents.code_space import accepted
from nightlab.agents.spending import usage_of
from nightlab.configs.study import Study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import (
    CallState,
    Effect,
    Event,
    Experiment,
    IdeaState,
    Job,
    JobState,
    Phase,
    Question,
    Run,
    RunState,
    StudyStatus,
    VerdictKind,
)
from nightlab.knowledge.stress import ENDED, IN_FLIGHT, Stress
from nightlab.report.model import ExperimentRow, Metric
from nightlab.report.rows import build_rows, measure_noise
from nightlab.report.sentences import choose_winners
from nightlab.report.wording import Wording
from nightlab.search.spending import BudgetLine, budget_lines
from nightlab.tools.failures import NextStep

__all__ = ["Asked", "Best", "SlotNow", "Snapshot", "StressNow", "snapshot_of"]

RECENT_EVENTS = 5
UNENDED = (RunState.PLANNED, RunState.SUBMITTED)


class SlotNow(BaseModel):
    """What one slot does; without a number it is free."""

    slot: int
    number: int | None = None
    variable: str = ""
    seed: int | None = None
    """Of its run; None under stress."""
    check: str = ""
    """The stress check it goes through, where it is no run."""
    repeat: int | None = None
    """Of the check, from 0."""
    since: AwareDatetime | None = None


class StressNow(BaseModel):
    """A stress check of one experiment, and of the baseline beside it, that has not ended."""

    number: int
    check: str
    ended: int
    """Repeats."""
    repeats: int


class Asked(BaseModel):
    """What a language model has yet to answer."""

    kind: Literal["idea", "review", "repair", "analysis"]
    number: int | None = None
    """The experiment that it is about."""
    since: AwareDatetime | None = None


class Best(BaseModel):
    """The best experiment so far: the confirmed one, else the best by its mean that nothing speaks against."""

    number: int
    variable: str
    branch: str
    value: float
    runs: int
    effect: Effect | None = None
    """Above 0 is better."""
    label: str
    confirmed: bool
    value_text: str
    """The value with its unit and the digits the noise leaves."""
    change_text: str
    """The metric's own change with its interval; empty before there is a verdict."""


class Snapshot(BaseModel):
    """All of it."""

    study: str
    status: StudyStatus
    phase: str
    """`understand` before the first run, then what the newest runs are for, at the end `done`."""
    metric: str
    unit: str
    experiments: int
    """Configurations tried, the baseline not counted."""
    runs_planned: int
    runs_ended: int
    runs_failed: int
    runs_budget: int | None
    experiments_budget: int | None
    verdicts: dict[str, int]
    baseline: float | None
    baseline_runs: int
    baseline_text: str
    best: Best | None
    slots: list[SlotNow]
    stress: list[StressNow] = []
    """Checks under way, those of the baseline with the experiments' they stand beside."""
    asked: list[Asked] = []
    """What a model is being asked, or will be asked when the lab goes on."""
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    deadline: AwareDatetime | None
    expected_end: AwareDatetime | None
    """Where the runs of the budget would end at the pace seen so far; never after the deadline."""
    paused: bool = False
    """No new job is started; what runs goes on."""
    notices: dict[str, int] = {}
    """What became of the notifications: delivered, repeated, failed, dropped."""
    budget: list[BudgetLine] = []
    """Used, reserved, limit and forecast of each resource: seconds, GPU-hours, US dollars, counts."""
    questions: list[Question]
    """Those not yet answered."""
    recent: list[Event]
    """The last few events, newest last."""


def snapshot_of(ledger: Ledger, study: Study, now: datetime, *, running: Collection[str] | None = None) -> Snapshot:
    """Read the ledger once; nothing is written.

    `running`: keys of the jobs, stress checks' among them, that still run, where no lab keeps the ledger up to date.
    """
    row = ledger.study_row()
    experiments, runs, jobs = ledger.experiments(), ledger.runs(), ledger.jobs()
    stresses = ledger.stresses() if study.stress else []
    observations = {observation.key: observation for observation in ledger.observations()}
    verdicts = ledger.verdicts()
    rows = build_rows(study, experiments, runs, jobs, observations, verdicts, accepted(ledger))
    noise = measure_noise(rows[0] if rows else None)
    metric = Metric(study.objective.metric, study.objective.unit, study.maximize, study.objective.min_effect)
    wording = Wording(metric, noise)
    ended = [run for run in runs if run.state not in UNENDED]
    return Snapshot(
        study=row.name,
        status=row.status,
        phase=row.phase if row.phase == "done" or not runs else _phase(runs),
        metric=metric.name,
        unit=metric.unit,
        experiments=sum(e.number > 0 for e in experiments),
        runs_planned=len(runs),
        runs_ended=len(ended),
        runs_failed=sum(run.state is RunState.FAILED for run in ended),
        runs_budget=study.budget.runs,
        experiments_budget=study.budget.experiments,
        verdicts=Counter(verdict.kind.value for verdict in verdicts.values()),
        baseline=noise.mean if noise else None,
        baseline_runs=noise.runs if noise else 0,
        baseline_text=wording.value(noise.mean) if noise else "",
        best=_best(rows, wording),
        slots=_slots(
            study,
            experiments,
            runs,
            [job for job in jobs if running is None or job.key in running],
            [one for one in stresses if running is None or one.key in running],
        ),
        stress=_under_stress(stresses),
        asked=[] if row.finished_at else list(_asked(ledger, runs)),
        started_at=row.started_at,
        finished_at=row.finished_at,
        deadline=row.deadline,
        expected_end=None if row.finished_at else _expected_end(study, jobs, now, row.deadline),
        paused=row.paused,
        notices=row.notices,
        budget=list(budget_lines(study, usage_of(ledger, now))),
        questions=ledger.questions(open_only=True),
        recent=ledger.events()[-RECENT_EVENTS:],
    )


def _phase(runs: Sequence[Run]) -> str:
    # The baseline also runs on seeds of later phases, to fill slots that would wait.
    changes = [run.phase for run in runs if run.number > 0]
    return str(changes[-1] if changes else Phase.BASELINE)


def _best(rows: Sequence[ExperimentRow], wording: Wording) -> Best | None:
    winners = choose_winners(rows, wording.metric.min_effect)
    row = winners[0] if winners else _leader(rows, wording)
    if row is None or row.mean is None:
        return None
    return Best(
        number=row.number,
        variable=row.variable,
        branch=row.branch,
        value=row.mean,
        runs=len([point for point in row.points if point.believed]),
        effect=row.effect,
        label=row.label if row.verdict else "no verdict yet",
        confirmed=bool(winners),
        value_text=wording.value(row.mean),
        change_text=wording.both(row.effect) if row.effect else "",
    )


def _leader(rows: Sequence[ExperimentRow], wording: Wording) -> ExperimentRow | None:
    """The best mean among those that are not refuted, if it beats the baseline's."""
    sign = 1.0 if wording.metric.maximize else -1.0
    open_kinds = (None, VerdictKind.INCONCLUSIVE)
    gains = {
        row.number: sign * (row.mean - wording.noise.mean)
        for row in rows
        if wording.noise and row.mean is not None and not row.is_baseline
        if row.verdict in open_kinds and not row.breaches
    }
    number = max(gains, key=gains.__getitem__, default=None)
    return next((row for row in rows if row.number == number and gains[row.number] > 0), None)


def _slots(
    study: Study,
    experiments: Sequence[Experiment],
    runs: Sequence[Run],
    jobs: Sequence[Job],
    stresses: Sequence[Stress],
) -> list[SlotNow]:
    slots = {slot: SlotNow(slot=slot) for slot in range(study.backend.slots)}
    variables = {experiment.number: experiment.variable for experiment in experiments}
    by_key = {run.key: run for run in runs}
    for job in jobs:
        if job.state in (JobState.INTENDED, JobState.RUNNING):
            run = by_key[job.key]
            slots[job.slot] = SlotNow(
                slot=job.slot,
                number=run.number,
                variable=variables[run.number],
                seed=run.seed,
                since=job.started_at or job.intent_at,
            )
    for one in stresses:
        if one.state in IN_FLIGHT and one.slot is not None:
            slots[one.slot] = SlotNow(
                slot=one.slot, number=one.number, variable=variables[one.number], check=one.check, repeat=one.repeat
            )
    return [slots[slot] for slot in sorted(slots)]


def _under_stress(stresses: Sequence[Stress]) -> list[StressNow]:
    found, of = [], defaultdict[tuple[int, str], list[Stress]](list)
    for one in stresses:
        of[one.number, one.check].append(one)
    for (number, check), own in list(of.items()):
        repeats = [*own, *of[0, check]] if number else []
        ended = sum(one.state in ENDED for one in repeats)
        if ended < len(repeats):
            found.append(StressNow(number=number, check=check, ended=ended, repeats=len(repeats)))
    return found


def _asked(ledger: Ledger, runs: Sequence[Run]) -> Iterator[Asked]:
    for idea in ledger.ideas():
        if idea.state is IdeaState.ASKING:
            yield Asked(kind="idea", since=idea.created_at)
    for review in ledger.reviews(asking_only=True):
        yield Asked(kind="review", number=review.number, since=review.asked_at)
    last = {(run.number, run.seed): run for run in runs}
    for run in last.values():
        if run.state is RunState.FAILED and run.next_step == NextStep.REPAIR:
            yield Asked(kind="repair", number=run.number, since=run.ended_at)
    for call in ledger.calls(states=(CallState.RESERVED,)):
        if call.purpose == "analysis":
            yield Asked(kind="analysis", since=call.reserved_at)


def _expected_end(study: Study, jobs: Sequence[Job], now: datetime, deadline: datetime | None) -> datetime | None:
    walls = [job.wall_seconds for job in jobs if job.wall_seconds]
    if study.budget.runs is None or not walls:
        return deadline
    left = max(0, study.budget.runs - len(walls))
    end = now + timedelta(seconds=left * statistics.median(walls) / study.backend.slots)
    return min(end, deadline) if deadline else end
