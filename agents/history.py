"""The ledger as the search sees it: plain trials, nothing open, nothing remembered elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import TypeAdapter

from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Run, RunState
from nightlab.search.history import History, RankedFactor, Trial

__all__ = ["history_of"]

_STATE: dict[RunState, Literal["pending", "measured", "failed"]] = {
    RunState.PLANNED: "pending",
    RunState.SUBMITTED: "pending",
    RunState.FINISHED: "pending",
    RunState.MEASURED: "pending",
    RunState.REVIEWED: "measured",
    RunState.REJECTED: "measured",
    RunState.FAILED: "failed",
}


def history_of(ledger: Ledger, *, runs_left: int = 0, experiments_left: int | None = None) -> History:
    """Everything the ledger holds: of several attempts at one seed the last; a cancelled run says nothing."""
    rows = ledger.measured_runs()
    last: dict[tuple[int, int], Run] = {}
    for _, run, _ in rows:
        if run.state is not RunState.CANCELLED:
            last[run.number, run.seed] = run
    trials = tuple(
        Trial(
            number=run.number,
            parameters=experiment.parameters,
            changed=experiment.changed,
            seed=run.seed,
            phase=run.phase,
            state=_STATE[run.state],
            value=value,
            valid=run.state is not RunState.REJECTED,
        )
        for experiment, run, value in rows
        if run.state is not RunState.CANCELLED and last[run.number, run.seed].key == run.key
    )
    return History(ranked_factors(ledger), trials, runs_left, experiments_left)


def ranked_factors(ledger: Ledger) -> tuple[RankedFactor, ...]:
    """The factors as the design fixed them; empty before."""
    row = ledger.study_row()
    adapter = TypeAdapter(tuple[RankedFactor, ...])
    return adapter.validate_python(row.design or ())
