"""The ledger as the search sees it: plain trials, nothing open, nothing remembered elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import TypeAdapter

from nightlab.knowledge.ledger import Configuration, Ledger, Outcome
from nightlab.knowledge.records import RunState
from nightlab.search.history import History, RankedFactor, Trial

__all__ = ["LOST", "MOST_LOSSES", "TO_BE_RETRIED", "history_of"]

LOST = "lost"
"""Cause of a run whose job vanished without a result."""
MOST_LOSSES = 2
"""A run lost with its machine says nothing about its configuration; one lost this often may have killed it."""

TO_BE_RETRIED = frozenset({"retry", "retry_changed"})
"""What the failure of a run that is tried again is recorded with."""

_STATE: dict[RunState, Literal["pending", "measured", "failed"]] = {
    RunState.PLANNED: "pending",
    RunState.SUBMITTED: "pending",
    RunState.FINISHED: "pending",
    RunState.MEASURED: "pending",
    RunState.REVIEWED: "measured",
    RunState.REJECTED: "measured",
    RunState.FAILED: "failed",
}
_FACTORS = TypeAdapter(tuple[RankedFactor, ...])


def history_of(
    ledger: Ledger,
    *,
    runs_left: int = 0,
    experiments_left: int | None = None,
    known: dict[int, Configuration] | None = None,
) -> History:
    """Everything the ledger holds: of several attempts at one seed the last; what is to be tried again says nothing.

    `known` holds the configurations read before and is added to: they never change, and are most of what there is.
    """
    known = {} if known is None else known
    known |= ledger.configurations(after=max(known, default=-1))
    trials = tuple(_trial(outcome, known[outcome.number]) for outcome in _telling(ledger.outcomes()))
    return History(_factors(ledger), trials, runs_left, experiments_left)


def _telling(outcomes: list[Outcome]) -> list[Outcome]:
    """The last attempt of each run that says, or will say, something, in the order they were planned."""
    last: dict[tuple[int, int], Outcome] = {}
    for outcome in outcomes:
        seed = outcome.number, outcome.seed
        if outcome.state is RunState.CANCELLED or outcome.next_step in TO_BE_RETRIED:
            continue
        last.pop(seed, None)
        last[seed] = outcome
    return list(last.values())


def _trial(outcome: Outcome, configuration: Configuration) -> Trial:
    return Trial(
        number=outcome.number,
        parameters=configuration.parameters,
        changed=configuration.changed,
        seed=outcome.seed,
        phase=outcome.phase,
        state=_STATE[outcome.state],
        value=outcome.value,
        valid=outcome.state is not RunState.REJECTED,
    )


def _factors(ledger: Ledger) -> tuple[RankedFactor, ...]:
    """The factors as the design fixed them; empty before."""
    return _FACTORS.validate_python(ledger.study_row().design or ())
