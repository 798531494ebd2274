"""Which factors are of the data, and that tuning has reached a plateau, as the analysis tells it."""

from __future__ import annotations

from dataclasses import replace

from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.search.history import History, RankedFactor
from nightlab.search.saturation import SYMPTOM, data_moves, plateau
from nightlab.tools.datasets.findings import Finding

__all__ = ["data_factors", "plateau_findings"]


def data_factors(lab: Lab, history: History) -> frozenset[str]:
    """The factors that change the data: by their technique's category, without one by their name."""
    return frozenset(factor.name for factor in history.factors if _is_of_data(lab, factor))


def _is_of_data(lab: Lab, factor: RankedFactor) -> bool:
    if factor.technique is not None:
        return lab.catalog.get(factor.technique).category == "data"
    return "data" in factor.name.lower()


def plateau_findings(lab: Lab) -> tuple[Finding, ...]:
    """That tuning has reached a plateau, where the runs so far show it."""
    history = history_of(lab.ledger)
    history = replace(history, data=data_factors(lab, history))
    found = plateau(lab.study, history) if history.factors else None
    if found is None:
        return ()
    unit = f" {lab.study.objective.unit}".rstrip()
    text = (
        f"Tuning has reached a plateau: what is tuned first was tried, and the last {found.changes} changes gained at "
        f"most {found.best_gain:.3g}{unit} over the best before them; {found.threshold:.3g} would have been more than "
        f"noise and worth having. {_of_data(lab, history)}"
    )
    return (Finding("training", text, (SYMPTOM,)),)


def _of_data(lab: Lab, history: History) -> str:
    if not history.data:
        return NO_DATA
    names = ", ".join(sorted(history.data))
    is_left = bool(data_moves(lab.study, history))
    return f"What is left of the data ({names}) comes first." if is_left else f"Of the data {names} were tried, too."


NO_DATA = "No factor of this study changes the data: their quality, mixture and amount are what to look at next."
