"""Where a study stands right now, read from its ledger: for `status`, for `run`'s live display, and for scripts."""

from __future__ import annotations

import statistics
from datetime import datetime, timedelta

from pydantic import AwareDatetime, BaseModel

from nightlab.configs.study import Study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Effect, JobState, Question, RunState, StudyStatus, VerdictKind

__all__ = ["Best", "SlotNow", "Snapshot", "snapshot_of"]


class SlotNow(BaseModel):
    """What one slot does."""

    slot: int
    number: int | None = None
    variable: str = ""
    seed: int | None = None
    seconds: float | None = None


class Best(BaseModel):
    """The best experiment so far: the confirmed one, else the best by its mean."""

    number: int
    variable: str
    branch: str
    value: float
    runs: int
    effect: Effect | None = None
    label: str = "no verdict yet"
    confirmed: bool = False


class Snapshot(BaseModel):
    """All of it."""

    study: str
    status: StudyStatus
    phase: str
    metric: str
    unit: str
    experiments: int
    """Configurations tried, the baseline not counted."""
    runs_planned: int
    runs_ended: int
    runs_failed: int
    runs_budget: int | None
    verdicts: dict[str, int]
    baseline: float | None
    baseline_runs: int
    best: Best | None
    slots: list[SlotNow]
    started_at: AwareDatetime | None
    finished_at: AwareDatetime | None
    deadline: AwareDatetime | None
    expected_end: AwareDatetime | None
    """Where the runs of the budget would end at the pace seen so far; never after the deadline."""
    questions: list[Question]
    last_event: str


def snapshot_of(ledger: Ledger, study: Study, now: datetime) -> Snapshot:
    """Read the ledger once; nothing is written."""
    row = ledger.study_row()
    rows = ledger.measured_runs()
    ended = [r for _, r, _ in rows if r.state not in (RunState.PLANNED, RunState.SUBMITTED)]
    verdicts = ledger.verdicts()
    counts: dict[str, int] = {}
    for verdict in verdicts.values():
        counts[verdict.kind.value] = counts.get(verdict.kind.value, 0) + 1
    baseline = _values(ledger, 0)
    events = ledger.events()
    return Snapshot(
        study=row.name,
        status=row.status,
        phase=_phase(ledger, row.phase),
        metric=study.objective.metric,
        unit=study.objective.unit,
        experiments=len({e.number for e, _, _ in rows if e.number > 0}),
        runs_planned=len(rows),
        runs_ended=len(ended),
        runs_failed=sum(1 for r in ended if r.state is RunState.FAILED),
        runs_budget=study.budget.runs,
        verdicts=counts,
        baseline=statistics.fmean(baseline) if baseline else None,
        baseline_runs=len(baseline),
        best=_best(ledger, study),
        slots=_slots(ledger, study, now),
        started_at=row.started_at,
        finished_at=row.finished_at,
        deadline=row.deadline,
        expected_end=_expected_end(ledger, study, now, row.deadline) if row.finished_at is None else None,
        questions=ledger.questions(open_only=True),
        last_event=events[-1].text if events else "",
    )


def _values(ledger: Ledger, number: int) -> list[float]:
    rows = ledger.measured_runs()
    return [v for e, r, v in rows if e.number == number and r.state is RunState.REVIEWED and v is not None]


def _phase(ledger: Ledger, phase: str) -> str:
    runs = ledger.runs()
    return str(runs[-1].phase) if runs and phase != "done" else phase


def _best(ledger: Ledger, study: Study) -> Best | None:
    values: dict[int, list[float]] = {}
    experiments = {}
    for experiment, run, value in ledger.measured_runs():
        if run.state is RunState.REVIEWED and value is not None:
            values.setdefault(experiment.number, []).append(value)
            experiments[experiment.number] = experiment
    verdicts = ledger.verdicts()
    kept = [n for n in values if n in verdicts and verdicts[n].kind is VerdictKind.KEEP]
    pool = kept or [n for n in values if n > 0]
    if not pool:
        return None
    pick = max if study.maximize else min
    number = pick(pool, key=lambda n: statistics.fmean(values[n]))
    verdict = verdicts.get(number)
    experiment = experiments[number]
    return Best(
        number=number,
        variable=experiment.variable,
        branch=experiment.branch,
        value=statistics.fmean(values[number]),
        runs=len(values[number]),
        effect=verdict.effect if verdict else None,
        label=verdict.label if verdict else "no verdict yet",
        confirmed=bool(kept),
    )


def _slots(ledger: Ledger, study: Study, now: datetime) -> list[SlotNow]:
    slots = {slot: SlotNow(slot=slot) for slot in range(study.backend.slots)}
    for job in ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING)):
        run = ledger.run(job.key)
        experiment = ledger.experiment(run.number)
        slots[job.slot] = SlotNow(
            slot=job.slot,
            number=run.number,
            variable=experiment.variable,
            seed=run.seed,
            seconds=(now - job.intent_at).total_seconds(),
        )
    return [slots[slot] for slot in sorted(slots)]


def _expected_end(ledger: Ledger, study: Study, now: datetime, deadline: datetime | None) -> datetime | None:
    walls = [job.wall_seconds for job in ledger.jobs(states=(JobState.ENDED,)) if job.wall_seconds]
    if study.budget.runs is None or not walls:
        return deadline
    left = study.budget.runs - len(walls)
    end = now + timedelta(seconds=left * statistics.median(walls) / study.backend.slots)
    return min(end, deadline) if deadline else end
