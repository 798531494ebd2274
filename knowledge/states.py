"""Which state may follow which: the one table of legal moves."""

from __future__ import annotations

from collections.abc import Mapping

from nightlab.errors import LedgerError
from nightlab.knowledge.records import ExperimentState, RunState

__all__ = ["EXPERIMENT_MOVES", "RUN_MOVES", "check_move"]

_E, _R = ExperimentState, RunState

# Runs of one experiment go their ways side by side, further seeds come after a verdict and a restarted lab sees only
# how things ended: once prepared, an experiment may skip forward and go back.
_UNDER_WAY = frozenset({_E.PREPARED, _E.SUBMITTED, _E.RUNNING, _E.FINISHED, _E.MEASURED, _E.REVIEWED})
_JUDGED = frozenset({_E.KEPT, _E.DISCARDED, _E.INCONCLUSIVE, _E.REJECTED})
_BROKEN_OFF = frozenset({_E.FAILED, _E.CANCELLED})

EXPERIMENT_MOVES: Mapping[ExperimentState, frozenset[ExperimentState]] = {
    _E.PLANNED: frozenset({_E.PREPARED}) | _BROKEN_OFF,
    **dict.fromkeys(_UNDER_WAY | _JUDGED, _UNDER_WAY | _JUDGED | _BROKEN_OFF),
    **dict.fromkeys(_BROKEN_OFF, _UNDER_WAY | _BROKEN_OFF),
}
"""What was never prepared, or broke off, cannot be judged, and nothing returns to `planned`."""

RUN_MOVES: Mapping[RunState, frozenset[RunState]] = {
    _R.PLANNED: frozenset({_R.SUBMITTED, _R.FAILED, _R.CANCELLED}),
    _R.SUBMITTED: frozenset({_R.FINISHED, _R.FAILED, _R.PRUNED, _R.CANCELLED}),
    _R.FINISHED: frozenset({_R.MEASURED, _R.FAILED, _R.CANCELLED}),
    _R.MEASURED: frozenset({_R.REVIEWED, _R.REJECTED}),
    _R.REVIEWED: frozenset(),
    _R.REJECTED: frozenset(),
    _R.FAILED: frozenset(),
    _R.PRUNED: frozenset(),
    _R.CANCELLED: frozenset(),
}
"""A run never returns: what is tried again is a new run with the next attempt."""


def check_move(what: str, old: ExperimentState | RunState, new: ExperimentState | RunState) -> None:
    """Raise LedgerError unless `new` may follow `old`; staying is always allowed."""
    moves: frozenset[str] = EXPERIMENT_MOVES[old] if isinstance(old, ExperimentState) else RUN_MOVES[old]
    if new != old and new not in moves:
        legal = ", ".join(sorted(moves)) or "nothing, it is an end"
        raise LedgerError(f"{what}: state {new.value} cannot follow {old.value} (what may follow: {legal})")
