"""Which runs are at low fidelity, and for how much of a run each counts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from nightlab.configs.study import Scalar, Study
from nightlab.search.history import History, Trial

__all__ = ["at_low", "is_low", "low_cost", "split", "total_runs", "whole_changes", "whole_runs"]


def is_low(study: Study, changed: Mapping[str, Scalar]) -> bool:
    """Whether a configuration, by what it changes, is one at low fidelity."""
    return study.search.fidelity is not None and study.search.fidelity.parameter in changed


def at_low(study: Study, changed: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What is changed where the same is run at low fidelity."""
    fidelity = study.search.fidelity
    return {**changed, fidelity.parameter: fidelity.low} if fidelity else dict(changed)


def whole_changes(study: Study, changed: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """What is changed where the same is run whole."""
    return {name: value for name, value in changed.items() if name not in at_low(study, {})}


def split(study: Study, trials: Iterable[Trial]) -> tuple[tuple[Trial, ...], tuple[Trial, ...]]:
    """The whole runs, and those at low fidelity."""
    planned = tuple(trials)
    low = tuple(trial for trial in planned if is_low(study, trial.changed))
    return tuple(trial for trial in planned if not is_low(study, trial.changed)) if low else planned, low


def whole_runs(study: Study, low_runs: int) -> int:
    """For how many whole runs so many at low fidelity count, rounded up."""
    return math.ceil(low_cost(study) * low_runs - 1e-9)


def low_cost(study: Study) -> float:
    """What a run at low fidelity takes of a whole one."""
    fidelity = study.search.fidelity
    return (fidelity.cost_of(study.parameters) or 1.0) if fidelity else 1.0


def total_runs(study: Study, history: History) -> int:
    """Whole runs of the budget, those made and those left."""
    return history.runs_left + len(history.trials) + whole_runs(study, len(history.low))
