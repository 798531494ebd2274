"""Filling a new ledger with records that were found elsewhere, and reading what a damaged one still gives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel
from sqlalchemy import Connection, Table, insert

from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, select_as, unchanged
from nightlab.knowledge.records import (
    Event,
    Experiment,
    Job,
    Observation,
    Question,
    Run,
    Spend,
    StudyRow,
    Verdict,
    configuration_key,
)

__all__ = ["Records", "Remains", "restore", "salvage"]

R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class Records:
    """Everything a ledger holds; runs in the order they were planned."""

    study: StudyRow
    experiments: Sequence[Experiment]
    runs: Sequence[Run]
    jobs: Sequence[Job]
    observations: Sequence[Observation]
    verdicts: Sequence[Verdict]
    spend: Sequence[Spend]
    questions: Sequence[Question] = ()
    events: Sequence[Event] = ()


@dataclass(frozen=True)
class Remains:
    """What only the ledger knew, as far as a damaged one still gives it."""

    study: StudyRow | None = None
    questions: Sequence[Question] = ()
    events: Sequence[Event] = ()


def restore(path: Path, records: Records, *, redact: Callable[[Any], Any] = unchanged) -> None:
    """Make a new ledger at `path` that holds `records`, all of them or none, through `redact`.

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
        return Remains(rows[0] if rows else None, questions, reader.readable(tables.events, Event))
    finally:
        reader.close()


class _Restorer(Database):
    def fill(self, records: Records) -> None:
        for observation in records.observations:
            if not all(map(math.isfinite, observation.values.values())):
                raise LedgerError(f"run {observation.key}: a value that is not finite cannot be restored")
        with self._write() as connection:
            connection.execute(insert(tables.study).values(id=1, **as_row(self.safe(records.study))))
            for experiment in records.experiments:
                key = configuration_key(experiment.parameters)
                connection.execute(insert(tables.experiments).values(configuration=key, **as_row(experiment)))
            for table, rows in (
                (tables.runs, records.runs),
                (tables.jobs, records.jobs),
                (tables.observations, records.observations),
                (tables.verdicts, records.verdicts),
                (tables.spend, records.spend),
                (tables.questions, records.questions),
                (tables.events, records.events),
            ):
                _insert(connection, table, [self.safe(row) for row in rows])

    def readable(self, table: Table, kind: type[R]) -> list[R]:
        """The table's records, none where it cannot be read."""
        try:
            return self._all(select_as(table, kind), kind)
        except (LedgerError, DiskError):
            return []


def _insert(connection: Connection, table: Table, rows: Sequence[BaseModel]) -> None:
    if rows:
        connection.execute(insert(table), [as_row(row) for row in rows])
