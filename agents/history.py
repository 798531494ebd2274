"""The ledger as the search sees it: plain trials, nothing open, nothing remembered elsewhere."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Literal

from nightlab.agents.code_space import accepted, factors_of, forbidden_by
from nightlab.agents.design import read_design
from nightlab.configs.code import idea_parameter, with_ideas_unused
from nightlab.knowledge.ledger import Configuration, Ledger, Outcome
from nightlab.knowledge.records import RunState
from nightlab.search.history import History, Trial
from nightlab.search.low_runs import split

__all__ = ["LOST", "MOST_LOSSES", "TO_BE_RETRIED", "history_of"]

LOST = "lost"
"""Cause of a run whose job vanished without a result."""
MOST_LOSSES = 2
"""A run lost with its machine says nothing about its configuration; one lost this often may have killed it."""

UNDECIDED = frozenset({"ask", "repair"})
"""What one is recorded with that a person must decide about, or a model is to mend."""
TO_BE_RETRIED = frozenset({"retry", "retry_changed"})
"""What the failure of a run that is tried again is recorded with."""

_STATE: dict[RunState, Literal["pending", "measured", "failed", "pruned"]] = {
    RunState.PLANNED: "pending",
    RunState.SUBMITTED: "pending",
    RunState.FINISHED: "pending",
    RunState.MEASURED: "pending",
    RunState.REVIEWED: "measured",
    RunState.REJECTED: "measured",
    RunState.FAILED: "failed",
    RunState.PRUNED: "pruned",
}


def history_of(
    ledger: Ledger,
    *,
    runs_left: int = 0,
    experiments_left: int | None = None,
    known: dict[int, Configuration] | None = None,
    waiting: Container[int] = (),
) -> History:
    """Everything the ledger holds: of several attempts at one seed the last; what is to be tried again says nothing.

    `known` holds the configurations read before and is added to: they never change, and are most of what there is.
    `waiting` are experiments whose failures a person has yet to decide about: those count as pending.
    """
    known = {} if known is None else known
    known |= ledger.configurations(after=max(known, default=-1))
    ideas = accepted(ledger)
    names = [idea_parameter(idea.name) for idea in ideas]
    outcomes = _telling(ledger.outcomes())
    row = ledger.study_row()
    trials, low = split(row.study, (_trial(one, known[one.number], waiting, names) for one in outcomes))
    design = read_design(row.design)
    return History(
        # Before there is a design nothing is to be tried.
        factors=(*design.factors, *(factors_of(ideas) if row.design is not None else ())),
        forbidden=(*design.forbidden, *forbidden_by(ideas)),
        trials=trials,
        runs_left=runs_left,
        experiments_left=experiments_left,
        low=low,
    )


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


def _trial(outcome: Outcome, configuration: Configuration, waiting: Container[int], ideas: Sequence[str]) -> Trial:
    waits = outcome.next_step in UNDECIDED and outcome.number in waiting
    return Trial(
        number=outcome.number,
        parameters=with_ideas_unused(configuration.parameters, ideas),
        changed=configuration.changed,
        seed=outcome.seed,
        phase=outcome.phase,
        state="pending" if waits else _STATE[outcome.state],
        value=outcome.value,
        valid=outcome.state is not RunState.REJECTED,
    )
