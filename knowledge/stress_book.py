"""The ledger's pages about stress checks: what was planned, submitted and measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, insert, select

from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, fetch_one, select_as
from nightlab.knowledge.stress import ENDED, Stress, StressState

__all__ = ["StressBook"]


class StressBook(Database):
    """Repeats of stress checks, each once for an experiment and check."""

    def plan_stress(self, stress: Stress) -> Stress:
        """Write what is to be measured; one there is already is returned as it stands."""
        query = select_as(tables.stresses, Stress).where(tables.stresses.c.key == stress.key)
        stress = self.safe(stress)
        with self._write() as connection:
            if held := fetch_one(connection, query, Stress):
                return held
            connection.execute(insert(tables.stresses).values(**as_row(stress)))
        return stress

    def update_stress(self, key: str, **changes: Any) -> Stress:
        """Write what has become of it; one that has ended is returned as it stands."""
        query = select_as(tables.stresses, Stress).where(tables.stresses.c.key == key)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Stress), f"stress {key}")
            if held.state in ENDED:
                return held
            return self._update(connection, tables.stresses, Stress, {"key": key}, changes)

    def stresses(
        self, number: int | None = None, *, check: str | None = None, states: Sequence[StressState] = ()
    ) -> list[Stress]:
        """In the order they were planned; of one experiment, check or of some states only."""
        table = tables.stresses
        query = select_as(table, Stress).order_by(table.c.planned_at, table.c.repeat, table.c.number, table.c.key)
        query = query if number is None else query.where(table.c.number == number)
        query = query if check is None else query.where(table.c.check == check)
        query = query.where(table.c.state.in_(states)) if states else query
        return self._all(query, Stress)

    def stress_totals(self) -> tuple[float, float]:
        """GPU-hours and US dollars: used by what has ended, reserved by what has not."""
        table = tables.stresses.c
        with self._read() as connection:
            row = connection.execute(select(func.sum(table.gpu_hours), func.sum(table.cost_usd))).one()
        return row[0] or 0.0, row[1] or 0.0
