"""The failure-rate breaker over the ledger: what is not tried any more, because its runs all die the same way."""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.agents.design import read_design
from nightlab.agents.history import TO_BE_RETRIED
from nightlab.knowledge.records import RunState
from nightlab.tools.failures import NextStep, Outcome, Trip, tripped

__all__ = ["trips"]


def trips(lab: Lab) -> tuple[Trip, ...]:
    """Every trip as the ledger stands now, the study's before the factors'. Runs that say nothing are passed over.

    A failure whose signature says `stop` trips the study by itself.
    """
    final = {run.cause or "": run.number for run in lab.ledger.outcomes() if run.next_step == NextStep.STOP}
    stops = [Trip(cause, None, (number,), 1) for cause, number in final.items()]
    counted = tripped(_outcomes(lab), lab.study.failures.breaker)
    return (*stops, *(trip for trip in counted if trip.factor is not None or trip.cause not in final))


def _outcomes(lab: Lab) -> list[Outcome]:
    found = []
    design = read_design(lab.ledger.study_row().design)
    for run in lab.ledger.outcomes():
        if run.state is RunState.FAILED and run.next_step not in (*TO_BE_RETRIED, NextStep.REPAIR):
            cause = run.cause
        elif run.state in (RunState.REVIEWED, RunState.MEASURED, RunState.REJECTED):
            cause = None
        else:
            continue
        changed = lab.configurations[run.number].changed if run.number in lab.configurations else {}
        found.append(Outcome(run.number, cause, frozenset(design.factor_of(name) for name in changed)))
    return found
