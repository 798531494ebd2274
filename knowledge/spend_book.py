"""The ledger's pages about spending: what each run reserved and used, and the pace at which runs end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select, update

from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, fetch_one, select_as
from nightlab.knowledge.records import RunState, Spend

__all__ = ["SpendBook", "SpendTotals"]


@dataclass(frozen=True)
class SpendTotals:
    """What the study has reserved and used so far."""

    runs: int
    """Runs reserved, whether they have ended or not."""
    settled_runs: int
    wall_seconds: float
    gpu_hours: float
    cost_usd: float = 0.0


class SpendBook(Database):
    """Reservations, settlements and the pace of a study's runs."""

    def reserve(self, key: str, *, gpu_hours: float, cost_usd: float) -> None:
        """Write what a run that was just planned will take; one that has ended keeps what it used."""
        spend = tables.spend.c
        values = {"reserved_gpu_hours": gpu_hours, "reserved_cost_usd": cost_usd}
        with self._write() as connection:
            connection.execute(update(tables.spend).where(spend.key == key, ~spend.settled).values(**values))

    def settle(
        self, key: str, *, wall_seconds: float | None, gpu_hours: float = 0.0, cost_usd: float = 0.0, runs: int = 1
    ) -> Spend:
        """Replace a run's reservation by what it used; `runs=0` gives back one that never started.

        Without `wall_seconds` nobody knows what it used: what was reserved is taken as spent.
        """
        query = select_as(tables.spend, Spend).where(tables.spend.c.key == key)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, Spend), f"spend {key}")
            if wall_seconds is None:
                gpu_hours, cost_usd = held.reserved_gpu_hours, held.reserved_cost_usd
            changes = {
                "reserved_runs": runs,
                "settled": True,
                "wall_seconds": wall_seconds or 0.0,
                "gpu_hours": gpu_hours,
                "cost_usd": cost_usd,
            }
            return self._update(connection, tables.spend, Spend, {"key": key}, changes)

    def changing(self, parameter: str) -> list[int]:
        """Numbers of the experiments that change a parameter, with one entry for each run not taken back."""
        run, experiment = tables.runs.c, tables.experiments.c
        joined = tables.runs.join(tables.experiments, experiment.number == run.number)
        query = (
            select(run.number)
            .select_from(joined)
            .where(experiment.changed[parameter].as_string().is_not(None), run.state != RunState.CANCELLED)
        )
        with self._read() as connection:
            return list(connection.execute(query).scalars())

    def spend_totals(self) -> SpendTotals:
        """Sums over all runs, those in flight included."""
        spend = tables.spend.c
        sums = [func.sum(c) for c in (spend.reserved_runs, spend.wall_seconds, spend.gpu_hours, spend.cost_usd)]
        with self._read() as connection:
            row = connection.execute(select(*sums)).one()
            settled = connection.execute(select(func.sum(spend.reserved_runs)).where(spend.settled)).scalar()
        return SpendTotals(row[0] or 0, settled or 0, row[1] or 0.0, row[2] or 0.0, row[3] or 0.0)

    def tried(self) -> int:
        """Configurations with a run that was not taken back, the baseline not counted."""
        run = tables.runs.c
        query = select(func.count(run.number.distinct())).where(run.number > 0, run.state != RunState.CANCELLED)
        with self._read() as connection:
            return connection.execute(query).scalar_one()

    def in_flight_since(self) -> list[datetime | None]:
        """When each run planned or running was handed to the backend; None where it was not yet."""
        joined = tables.runs.outerjoin(tables.jobs, tables.jobs.c.key == tables.runs.c.key)
        unended = tables.runs.c.state.in_([RunState.PLANNED, RunState.SUBMITTED])
        with self._read() as connection:
            return list(
                connection.execute(select(tables.jobs.c.intent_at).select_from(joined).where(unended)).scalars()
            )

    def wall_seconds(self, without: Collection[int] = ()) -> list[float]:
        """How long each job took that ended well, those of the experiments `without` left out."""
        job = tables.jobs.c
        query = select(job.wall_seconds).where(job.exit_code == 0, job.wall_seconds.is_not(None))
        if without:
            joined = tables.jobs.join(tables.runs, tables.runs.c.key == job.key)
            query = query.select_from(joined).where(tables.runs.c.number.not_in(without))
        with self._read() as connection:
            return list(connection.execute(query).scalars())

    def cycle_seconds(self, last: int = 64) -> list[float]:
        """From one submission to the next on the same slot, where the first ended well, of the `last` jobs."""
        job = tables.jobs.c
        query = select(job.slot, job.intent_at, job.exit_code).order_by(job.intent_at.desc()).limit(last)
        with self._read() as connection:
            newest_first = connection.execute(query).all()
        following: dict[int, datetime] = {}
        cycles = []
        for slot, intent_at, exit_code in newest_first:
            if exit_code == 0 and slot in following:
                cycles.append((following[slot] - intent_at).total_seconds())
            following[slot] = intent_at
        return cycles
