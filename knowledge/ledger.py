"""The ledger of one study: the one source of truth about experiments, runs, jobs, questions and spend.

Every method that writes is one transaction, committed and synced to disk before it returns; a process killed at any
moment leaves either all of it or nothing. Methods that record what may be recorded again after a crash are idempotent.
All of them raise LedgerError for a database in trouble or a record that contradicts what the ledger holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, func, insert, select, update

from nightlab.configs.code import without_unused_ideas
from nightlab.configs.study import Scalar, Study
from nightlab.errors import LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.call_book import CallBook
from nightlab.knowledge.database import as_row, columns, fetch_all, fetch_one, record_of, select_as
from nightlab.knowledge.idea_book import IdeaBook
from nightlab.knowledge.records import (
    Event,
    Experiment,
    ExperimentState,
    Job,
    JobState,
    Observation,
    Phase,
    Proposal,
    Question,
    Run,
    RunState,
    Spend,
    StudyRow,
    Verdict,
    configuration_key,
    run_key,
    utc_now,
)
from nightlab.knowledge.review_book import ReviewBook
from nightlab.knowledge.spend_book import SpendBook
from nightlab.knowledge.stress_book import StressBook

__all__ = ["Configuration", "Ledger", "MeasuredRun", "Outcome"]


class MeasuredRun(NamedTuple):
    """One run with its experiment and, once it was read, the objective's value."""

    experiment: Experiment
    run: Run
    value: float | None


class Outcome(NamedTuple):
    """What planning needs of one run: plain values, for all runs are read at every planning."""

    key: str
    number: int
    seed: int
    phase: Phase
    state: RunState
    cause: str | None
    next_step: str | None
    """What follows from its failure."""
    value: float | None
    """The objective, once it was read."""


class Configuration(NamedTuple):
    """What an experiment sets; it never changes."""

    parameters: dict[str, Scalar]
    changed: dict[str, Scalar]


class Ledger(SpendBook, CallBook, IdeaBook, ReviewBook, StressBook):
    """The records of one study, safe to share between threads and to open in several processes."""

    # --- the study ---------------------------------------------------------------------------------------------

    def save_study(
        self,
        study: Study,
        *,
        base_commit: str,
        graph_version: str = "",
        deadline: datetime | None = None,
        frozen_hashes: dict[str, str] | None = None,
    ) -> StudyRow:
        """Write the study once; an equal study at the same commit is left as it stands.

        Raises LedgerError when the ledger already holds another study; `update_study` changes one on purpose.
        """
        new = StudyRow(
            name=study.study,
            study=study,
            base_commit=base_commit,
            graph_version=graph_version,
            deadline=deadline,
            frozen_hashes=frozen_hashes or {},
        )
        new = self.safe(new)
        with self._write() as connection:
            held = fetch_one(connection, select_as(tables.study, StudyRow), StudyRow)
            if held is None:
                connection.execute(insert(tables.study).values(id=1, **as_row(new)))
                return new
        if (held.study, held.base_commit) != (new.study, base_commit):
            raise LedgerError(
                f"{self._place}: holds the study {held.name} from commit {held.base_commit[:12]}, which differs from "
                f"{study.study} at {base_commit[:12]} (give the new study another name)"
            )
        return held

    def has_study(self) -> bool:
        """Whether the study was saved: a lab killed while it opened the ledger leaves one without."""
        held = self._one(select_as(tables.study, StudyRow), StudyRow) is not None
        if not held:
            self._refuse_lost_records()
        return held

    def study_row(self) -> StudyRow:
        """The study. Raises LedgerError before it was saved."""
        return self._found(self._one(select_as(tables.study, StudyRow), StudyRow), "study yet")

    def update_study(self, **changes: Any) -> StudyRow:
        """Change fields of the study's row, e.g. `status=StudyStatus.RUNNING`."""
        with self._write() as connection:
            return self._update(connection, tables.study, StudyRow, {"id": 1}, changes)

    def is_paused(self) -> bool:
        """Whether a person asked that no new job be started."""
        with self._read() as connection:
            return bool(connection.execute(select(tables.study.c.paused)).scalar())

    # --- planning ----------------------------------------------------------------------------------------------

    def plan(
        self,
        proposal: Proposal,
        *,
        scenario: str,
        method: str,
        base_model: str,
        base_commit: str,
        branch_for: Callable[[int, str], str],
        retry: bool = False,
    ) -> Run:
        """The run for a proposal, made with its experiment and the budget it reserves unless it stands already.

        The same configuration is the same experiment; the one that changes nothing is number 0. The same
        configuration and seed is the same run, except that `retry` adds the next attempt after one that failed or was
        cancelled. `branch_for` gives a branch's name for a number and a variable.
        """
        parameters = without_unused_ideas(proposal.parameters)
        proposal = self.safe(proposal.model_copy(update={"parameters": parameters}))
        with self._write() as connection:
            study = self._study_name(connection)
            experiment = self._experiment_of(connection, proposal)
            if experiment is None:
                number = self._next_number(connection, proposal)
                experiment = Experiment(
                    study=study,
                    number=number,
                    scenario=scenario,
                    method=method,
                    base_model=base_model,
                    branch=branch_for(number, proposal.variable),
                    base_commit=base_commit,
                    **proposal.model_dump(exclude={"seed"}),
                )
                configuration = configuration_key(proposal.parameters)
                connection.execute(insert(tables.experiments).values(configuration=configuration, **as_row(experiment)))
            return self._plan_run(connection, study, experiment.number, proposal, retry=retry)

    def _study_name(self, connection: Connection) -> str:
        name: str | None = connection.execute(select(tables.study.c.name)).scalar()
        if name is None:
            raise LedgerError(f"{self._place}: holds no study yet (save the study before planning)")
        return name

    def _experiment_of(self, connection: Connection, proposal: Proposal) -> Experiment | None:
        query = select_as(tables.experiments, Experiment)
        same = tables.experiments.c.configuration == configuration_key(proposal.parameters)
        return fetch_one(connection, query.where(same), Experiment)

    def _next_number(self, connection: Connection, proposal: Proposal) -> int:
        highest = connection.execute(select(func.max(tables.experiments.c.number))).scalar()
        if proposal.changed:
            return (highest or 0) + 1
        if connection.execute(select(tables.experiments.c.number).where(tables.experiments.c.number == 0)).first():
            raise LedgerError(
                f"{self._place}: the baseline's parameters differ from those of experiment 00 "
                "(give the changed study another name)"
            )
        return 0

    def _plan_run(self, connection: Connection, study: str, number: int, proposal: Proposal, *, retry: bool) -> Run:
        latest = _latest_attempt(connection, number, proposal.seed)
        if latest is not None:
            return _next_attempt(connection, latest) if retry else latest
        first = Run(
            key=run_key(study, number, 1, proposal.seed),
            study=study,
            number=number,
            seed=proposal.seed,
            phase=proposal.phase,
            reason=proposal.reason,
            **_turned(_latest_of(connection, number)),
        )
        return _add_run(connection, first)

    def retry(
        self,
        key: str,
        *,
        overrides: dict[str, Scalar] | None = None,
        extra_env: dict[str, str] | None = None,
        remedy: str | None = None,
    ) -> Run:
        """The next attempt of a run that failed or was cancelled; when there is a later one already, that one.

        `overrides` and `extra_env` are what `remedy` turns, on top of what earlier remedies turned; later seeds of the
        experiment start from there.
        """
        query = select_as(tables.runs, Run).where(tables.runs.c.key == key)
        with self._write() as connection:
            run = self._found(fetch_one(connection, query, Run), f"run {key}")
            latest = _latest_attempt(connection, run.number, run.seed) or run
            if latest.key != key:
                return latest
            turned = {
                "overrides": {**latest.overrides, **(overrides or {})},
                "extra_env": {**latest.extra_env, **(extra_env or {})},
                "remedies": [*latest.remedies, *([remedy] if remedy else [])],
            }
            return _next_attempt(connection, latest, turned)

    # --- experiments and runs ----------------------------------------------------------------------------------

    def experiments(self, *, states: Iterable[ExperimentState] | None = None) -> list[Experiment]:
        """Experiments by number."""
        query = select_as(tables.experiments, Experiment).order_by(tables.experiments.c.number)
        if states is not None:
            query = query.where(tables.experiments.c.state.in_(list(states)))
        return self._all(query, Experiment)

    def experiment(self, number: int) -> Experiment:
        """One experiment. Raises LedgerError when there is none of this number."""
        query = select_as(tables.experiments, Experiment).where(tables.experiments.c.number == number)
        return self._found(self._one(query, Experiment), f"experiment {number:02d}")

    def runs(self, number: int | None = None, *, states: Iterable[RunState] | None = None) -> list[Run]:
        """Runs in the order they were planned, of one experiment or of all."""
        query = select_as(tables.runs, Run).order_by(tables.runs.c.id)
        if number is not None:
            query = query.where(tables.runs.c.number == number)
        if states is not None:
            query = query.where(tables.runs.c.state.in_(list(states)))
        return self._all(query, Run)

    def run(self, key: str) -> Run:
        """One run. Raises LedgerError when there is none of this key."""
        query = select_as(tables.runs, Run).where(tables.runs.c.key == key)
        return self._found(self._one(query, Run), f"run {key}")

    def update_experiment(self, number: int, **changes: Any) -> Experiment:
        """Change fields of an experiment. Raises LedgerError for an illegal move of its state."""
        with self._write() as connection:
            return self._update(connection, tables.experiments, Experiment, {"number": number}, changes)

    def update_run(self, key: str, **changes: Any) -> Run:
        """Change fields of a run. Raises LedgerError for an illegal move of its state."""
        with self._write() as connection:
            return self._update(connection, tables.runs, Run, {"key": key}, changes)

    def measured_runs(self) -> list[MeasuredRun]:
        """Every run in the order it was planned, with its experiment and the objective's value or None."""
        query = (
            select(tables.observations.c["values"].label("observed"), *columns(tables.runs, Run))
            .select_from(tables.runs.outerjoin(tables.observations, tables.observations.c.key == tables.runs.c.key))
            .order_by(tables.runs.c.id)
        )
        with self._read() as connection:
            metric = connection.execute(select(tables.study.c.study)).scalar_one()["objective"]["metric"]
            of_number = {
                e.number: e for e in fetch_all(connection, select_as(tables.experiments, Experiment), Experiment)
            }
            rows = connection.execute(query).all()
        measured = []
        for row in rows:
            fields = row._asdict()
            observed = fields.pop("observed")
            run = record_of(fields, Run)
            measured.append(MeasuredRun(of_number[run.number], run, (observed or {}).get(metric)))
        return measured

    def outcomes(self) -> list[Outcome]:
        """Every run in the order it was planned, with the objective's value or None: `measured_runs` in brief."""
        run, observation = tables.runs.c, tables.observations.c
        query = (
            select(run.key, run.number, run.seed, run.phase, run.state, run.cause, run.next_step, observation["values"])
            .select_from(tables.runs.outerjoin(tables.observations, observation.key == run.key))
            .order_by(run.id)
        )
        with self._read() as connection:
            metric = connection.execute(select(tables.study.c.study)).scalar_one()["objective"]["metric"]
            rows = connection.execute(query).all()
        return [
            Outcome(key, number, seed, Phase(phase), RunState(state), cause, step, (values or {}).get(metric))
            for key, number, seed, phase, state, cause, step, values in rows
        ]

    def configurations(self, *, after: int = -1) -> dict[int, Configuration]:
        """What each experiment with a number above `after` sets."""
        experiment = tables.experiments.c
        query = select(experiment.number, experiment.parameters, experiment.changed)
        with self._read() as connection:
            rows = connection.execute(query.where(experiment.number > after).order_by(experiment.number)).all()
        return {number: Configuration(parameters, changed) for number, parameters, changed in rows}

    # --- jobs --------------------------------------------------------------------------------------------------

    def intend_job(self, job: Job) -> Job:
        """Write a job before it is submitted; one that was submitted already is returned as it stands.

        An intent that came to nothing takes the new slot and folder.
        """
        query = select_as(tables.jobs, Job).where(tables.jobs.c.key == job.key)
        with self._write() as connection:
            held = fetch_one(connection, query, Job)
            if held is None:
                connection.execute(insert(tables.jobs).values(**as_row(job)))
                return job
            if held.state is not JobState.INTENDED or held.native_id is not None:
                return held
            connection.execute(update(tables.jobs).where(tables.jobs.c.key == job.key).values(**as_row(job)))
            return job

    def jobs(self, number: int | None = None, *, states: Iterable[JobState] | None = None) -> list[Job]:
        """Jobs in the order their runs were planned, of one experiment or of all."""
        query = select_as(tables.jobs, Job).join_from(tables.jobs, tables.runs).order_by(tables.runs.c.id)
        if number is not None:
            query = query.where(tables.runs.c.number == number)
        if states is not None:
            query = query.where(tables.jobs.c.state.in_(list(states)))
        return self._all(query, Job)

    def job(self, key: str) -> Job | None:
        """The job of a run, None before it was intended."""
        return self._one(select_as(tables.jobs, Job).where(tables.jobs.c.key == key), Job)

    def update_job(self, key: str, **changes: Any) -> Job:
        """Change fields of a job."""
        with self._write() as connection:
            return self._update(connection, tables.jobs, Job, {"key": key}, changes)

    def adopt(self, key: str, native_id: str) -> Job:
        """Write that the backend has a run's job: job running, run submitted, its prepared experiment running."""
        with self._write() as connection:
            changes = {"native_id": native_id, "state": JobState.RUNNING}
            job = self._update(connection, tables.jobs, Job, {"key": key}, changes)
            run = self._update(connection, tables.runs, Run, {"key": key}, {"state": RunState.SUBMITTED})
            experiment = tables.experiments.c
            prepared = (experiment.number == run.number, experiment.state == ExperimentState.PREPARED)
            connection.execute(update(tables.experiments).where(*prepared).values(state=ExperimentState.RUNNING))
            return job

    # --- observations and verdicts -----------------------------------------------------------------------------

    def record_observation(self, observation: Observation) -> None:
        """Write what was read from a run; the same values a second time change nothing.

        Raises LedgerError for other values than were read before, and for one that is not finite.
        """
        wrong = [f"{name} = {value}" for name, value in observation.values.items() if not math.isfinite(value)]
        if wrong:
            raise LedgerError(f"run {observation.key}: not finite: {', '.join(wrong)} (count the run as failed)")
        query = select_as(tables.observations, Observation).where(tables.observations.c.key == observation.key)
        with self._write() as connection:
            held = fetch_one(connection, query, Observation)
            if held is None:
                connection.execute(insert(tables.observations).values(**as_row(observation)))
            elif held.values != observation.values:
                raise LedgerError(
                    f"run {observation.key}: was measured as {held.values}, now {observation.values} "
                    "(a run is measured once; plan another attempt)"
                )

    def observations(self) -> list[Observation]:
        """Observations in the order their runs were planned."""
        query = select_as(tables.observations, Observation).join_from(tables.observations, tables.runs)
        return self._all(query.order_by(tables.runs.c.id), Observation)

    def observation(self, key: str) -> Observation | None:
        """What was read from a run, None before it was."""
        query = select_as(tables.observations, Observation).where(tables.observations.c.key == key)
        return self._one(query, Observation)

    def record_verdict(self, verdict: Verdict) -> None:
        """Add a verdict to its experiment's history; one equal to the latest but for its time changes nothing."""
        verdict = self.safe(verdict)
        query = select_as(tables.verdicts, Verdict).where(tables.verdicts.c.number == verdict.number)
        with self._write() as connection:
            latest = fetch_one(connection, query.order_by(tables.verdicts.c.id.desc()).limit(1), Verdict)
            if latest is None or latest.model_copy(update={"decided_at": verdict.decided_at}) != verdict:
                connection.execute(insert(tables.verdicts).values(**as_row(verdict)))

    def verdicts(self) -> dict[int, Verdict]:
        """The latest verdict of each experiment that has one."""
        newest = select(func.max(tables.verdicts.c.id)).group_by(tables.verdicts.c.number)
        query = select_as(tables.verdicts, Verdict).where(tables.verdicts.c.id.in_(newest))
        rows = self._all(query.order_by(tables.verdicts.c.number), Verdict)
        return {verdict.number: verdict for verdict in rows}

    def verdict(self, number: int) -> Verdict | None:
        """The latest verdict of one experiment, None before it has one."""
        query = select_as(tables.verdicts, Verdict).where(tables.verdicts.c.number == number)
        return self._one(query.order_by(tables.verdicts.c.id.desc()).limit(1), Verdict)

    def verdict_history(self, number: int) -> list[Verdict]:
        """All verdicts of an experiment, oldest first."""
        query = select_as(tables.verdicts, Verdict).where(tables.verdicts.c.number == number)
        return self._all(query.order_by(tables.verdicts.c.id), Verdict)

    # --- questions ---------------------------------------------------------------------------------------------

    def ask(self, question: Question) -> Question:
        """Put a question; one already asked under this id is returned as it stands, perhaps answered."""
        question = self.safe(question)
        query = select_as(tables.questions, Question).where(tables.questions.c.id == question.id)
        with self._write() as connection:
            held = fetch_one(connection, query, Question)
            if held is None:
                connection.execute(insert(tables.questions).values(**as_row(question)))
        return held or question

    def answer(self, question_id: str, answer: str, *, by: str) -> Question:
        """Answer a question. Raises LedgerError for an unknown one, an answer it does not offer, or a second answer."""
        query = select_as(tables.questions, Question).where(tables.questions.c.id == question_id)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Question), f"question {question_id}")
            if held.options and answer not in held.options:
                raise LedgerError(f"question {question_id}: {answer!r} is not among {', '.join(held.options)}")
            if held.answer is not None and held.answer != answer:
                raise LedgerError(f"question {question_id}: was answered {held.answer!r} by {held.answered_by}")
            if held.answer == answer:
                return held
            changes = {"answer": answer, "answered_by": by, "answered_at": utc_now()}
            return self._update(connection, tables.questions, Question, {"id": question_id}, changes)

    def question(self, question_id: str) -> Question | None:
        """One question, None before it was asked."""
        query = select_as(tables.questions, Question).where(tables.questions.c.id == question_id)
        return self._one(query, Question)

    def questions(self, *, open_only: bool = False) -> list[Question]:
        """Questions, oldest first."""
        query = select_as(tables.questions, Question).order_by(tables.questions.c.asked_at, tables.questions.c.id)
        if open_only:
            query = query.where(tables.questions.c.answer.is_(None))
        return self._all(query, Question)

    def settle_questions(self, now: datetime, *, by: str) -> list[Question]:
        """Give every open question whose deadline has passed its safe answer; returns them as answered."""
        question = tables.questions.c
        query = select_as(tables.questions, Question).where(question.answer.is_(None), question.deadline <= now)
        with self._write() as connection:
            return [
                self._update(
                    connection,
                    tables.questions,
                    Question,
                    {"id": overdue.id},
                    {"answer": overdue.default, "answered_by": by, "answered_at": now},
                )
                for overdue in fetch_all(connection, query, Question)
            ]

    # --- notices -----------------------------------------------------------------------------------------------

    def was_told(self, key: str) -> bool:
        """Whether the notice of this key was delivered."""
        with self._read() as connection:
            return (
                connection.execute(select(tables.notices.c.key).where(tables.notices.c.key == key)).first() is not None
            )

    def mark_told(self, key: str) -> None:
        """Write that the notice of this key was delivered."""
        with self._write() as connection:
            if connection.execute(select(tables.notices.c.key).where(tables.notices.c.key == key)).first() is None:
                connection.execute(insert(tables.notices).values(key=key, time=utc_now()))

    # --- events ------------------------------------------------------------------------------------------------

    def add_event(self, kind: str, text: str, number: int | None = None) -> None:
        """Add one line to the study's story."""
        text = self._redact(text)
        with self._write() as connection:
            connection.execute(insert(tables.events).values(time=utc_now(), kind=kind, text=text, number=number))

    def events(self, after: int | None = None) -> list[Event]:
        """Events in order, those behind the event with id `after` or all."""
        query = select_as(tables.events, Event).where(tables.events.c.id > (after or 0)).order_by(tables.events.c.id)
        return self._all(query, Event)


def _latest_attempt(connection: Connection, number: int, seed: int) -> Run | None:
    run = tables.runs.c
    query = select_as(tables.runs, Run).where(run.number == number, run.seed == seed)
    return fetch_one(connection, query.order_by(run.attempt.desc()).limit(1), Run)


def _latest_of(connection: Connection, number: int) -> Run | None:
    run = tables.runs.c
    return fetch_one(
        connection, select_as(tables.runs, Run).where(run.number == number).order_by(run.id.desc()).limit(1), Run
    )


def _turned(run: Run | None) -> dict[str, Any]:
    """What remedies have turned for an experiment so far: its next runs start from there."""
    return run.model_dump(include={"overrides", "extra_env", "remedies"}) if run else {}


def _next_attempt(connection: Connection, latest: Run, turned: dict[str, Any] | None = None) -> Run:
    if latest.state not in (RunState.FAILED, RunState.CANCELLED):
        return latest
    attempt = latest.attempt + 1
    new = Run(
        key=run_key(latest.study, latest.number, attempt, latest.seed),
        study=latest.study,
        number=latest.number,
        seed=latest.seed,
        attempt=attempt,
        phase=latest.phase,
        reason=latest.reason,
        **(_turned(latest) if turned is None else turned),
    )
    return _add_run(connection, new)


def _add_run(connection: Connection, run: Run) -> Run:
    connection.execute(insert(tables.runs).values(**as_row(run)))
    connection.execute(insert(tables.spend).values(**as_row(Spend(key=run.key))))
    return run
