"""Filling a ledger with records that were found elsewhere, and reading what a damaged one still gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Column, Connection, Table, insert, select, update

from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, select_as, unchanged
from nightlab.knowledge.records import (
    Event,
    Experiment,
    Idea,
    Job,
    ModelCall,
    Observation,
    Question,
    Review,
    Run,
    Spend,
    StudyRow,
    Verdict,
    configuration_key,
)
from nightlab.knowledge.stress import Stress

__all__ = ["Records", "Remains", "restore", "salvage"]

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Records:
    """What a ledger is to hold; runs in the order they were planned."""

    study: StudyRow
    experiments: Sequence[Experiment]
    runs: Sequence[Run]
    jobs: Sequence[Job]
    observations: Sequence[Observation]
    verdicts: Sequence[Verdict]
    spend: Sequence[Spend]
    questions: Sequence[Question] = ()
    events: Sequence[Event] = ()
    told: Mapping[str, datetime] = field(default_factory=dict)
    """Notices that were delivered: key → when."""
    calls: Sequence[ModelCall] = ()
    ideas: Sequence[Idea] = ()
    reviews: Sequence[Review] = ()
    stresses: Sequence[Stress] = ()


@dataclass(frozen=True)
class Remains:
    """What only the ledger knew, as far as a damaged one still gives it."""

    study: StudyRow | None = None
    questions: Sequence[Question] = ()
    events: Sequence[Event] = ()
    told: Mapping[str, datetime] = field(default_factory=dict)
    calls: Sequence[ModelCall] = ()
    ideas: Sequence[Idea] = ()
    reviews: Sequence[Review] = ()
    stresses: Sequence[Stress] = ()


def restore(path: Path, records: Records, *, redact: Callable[[Any], Any] = unchanged) -> None:
    """Put `records`, all of them or none, through `redact` into the ledger at `path`, made when there is none.

    A record takes the place of the one with its key; verdicts and events are added to those that are there.
    Raises LedgerError where they contradict each other, DiskError when the disk takes no more.
    """
    with _Restorer.open(path, redact=redact) as ledger:
        ledger.fill(records)


def salvage(copy: Path) -> Remains:
    """What can be read of the damaged ledger `copy`, which may be changed by that."""
    if not copy.exists() or not copy.stat().st_size:
        return Remains()
    reader = _Restorer(tables.ledger_engine(copy))
    try:
        rows = reader.readable(tables.study, StudyRow)
        questions = reader.readable(tables.questions, Question)
        events = reader.readable(tables.events, Event)
        return Remains(
            rows[0] if rows else None,
            questions,
            events,
            reader.notices(),
            reader.readable(tables.calls, ModelCall),
            reader.readable(tables.ideas, Idea),
            reader.readable(tables.reviews, Review),
            reader.readable(tables.stresses, Stress),
        )
    finally:
        reader.close()


class _Restorer(Database):
    def fill(self, records: Records) -> None:
        for observation in records.observations:
            if not all(map(math.isfinite, observation.values.values())):
                raise LedgerError(f"run {observation.key}: a value that is not finite cannot be restored")
        with self._write() as connection:
            _put(connection, tables.study.c.id, [{"id": 1} | as_row(self.safe(records.study))])
            experiments = [
                {"configuration": configuration_key(one.parameters)} | as_row(one) for one in records.experiments
            ]
            _put(connection, tables.experiments.c.number, experiments)
            for key, rows in (
                (tables.runs.c.key, records.runs),
                (tables.jobs.c.key, records.jobs),
                (tables.observations.c.key, records.observations),
                (tables.spend.c.key, records.spend),
                (tables.questions.c.id, records.questions),
                (tables.calls.c.id, records.calls),
                (tables.ideas.c.number, records.ideas),
                (tables.reviews.c.key, records.reviews),
                (tables.stresses.c.key, records.stresses),
            ):
                _put(connection, key, [as_row(self.safe(row)) for row in rows])
            _put(connection, tables.notices.c.key, [{"key": key, "time": time} for key, time in records.told.items()])
            for table, added in ((tables.verdicts, records.verdicts), (tables.events, records.events)):
                if added:
                    connection.execute(insert(table), [as_row(self.safe(row)) for row in added])

    def readable(self, table: Table, kind: type[R]) -> list[R]:
        """The table's records, none where it cannot be read."""
        try:
            return self._all(select_as(table, kind), kind)
        except (LedgerError, DiskError):
            return []

    def notices(self) -> dict[str, datetime]:
        """Keys of the notices that were delivered, with their times; none where they cannot be read."""
        try:
            with self._read() as connection:
                rows = connection.execute(select(tables.notices.c.key, tables.notices.c.time)).all()
            return {row.key: row.time for row in rows}
        except (LedgerError, DiskError, ValueError, TypeError):
            return {}


def _put(connection: Connection, key: Column[Any], rows: Sequence[dict[str, Any]]) -> None:
    """Each row in the place of the one with its key, or new."""
    held = set(connection.execute(select(key)).scalars())
    for row in rows:
        if row[key.name] in held:
            connection.execute(update(key.table).where(key == row[key.name]).values(**row))
    if new := [row for row in rows if row[key.name] not in held]:
        connection.execute(insert(key.table), new)
