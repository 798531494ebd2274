"""When tuning has reached a plateau the data are next: found in the ledger's history, told in the analysis."""

from __future__ import annotations

from collections.abc import Sequence

from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.knowledge.records import Phase, Proposal
from nightlab.search.history import History, RankedFactor
from nightlab.search.low_runs import is_low
from nightlab.search.saturation import SYMPTOM, data_moves, plateau
from nightlab.search.space import configuration_key
from nightlab.tools.datasets.findings import Finding

__all__ = ["data_factors", "data_first", "plateau_findings"]

EXPLORING = (Phase.SCREEN, Phase.COMBINE, Phase.REFINE)


def data_factors(lab: Lab, history: History) -> frozenset[str]:
    """The factors that change the data: by their technique's category, without one by their name."""
    return frozenset(factor.name for factor in history.factors if _is_of_data(lab, factor))


def _is_of_data(lab: Lab, factor: RankedFactor) -> bool:
    if factor.technique is not None:
        return lab.catalog.get(factor.technique).category == "data"
    return "data" in factor.name.lower()


def data_first(lab: Lab, history: History, proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals, those that explore behind what is left to try of the data where tuning is saturated.

    As many as there were, and no more new configurations than the budget allows. A pure function of study, catalog and
    history.
    """
    exploring = [one for one in proposals if _is_exploring(lab, one)]
    data = data_factors(lab, history)
    is_confirming = any(trial.phase is Phase.CONFIRM and trial.changed for trial in history.trials)
    if not exploring or not data or is_confirming or plateau(lab.study, history, data) is None:
        return list(proposals)
    moves = data_moves(lab.study, history, data)
    keys = {configuration_key(one.changed) for one in moves}
    behind = [one for one in exploring if configuration_key(one.changed) not in keys]
    others = [one for one in proposals if one not in exploring]
    return [*others, *_affordable(history, [*moves, *behind])[: len(exploring)]]


def _is_exploring(lab: Lab, proposal: Proposal) -> bool:
    """Whether it looks for something new at full fidelity."""
    return proposal.phase in EXPLORING and bool(proposal.changed) and not is_low(lab.study, proposal.changed)


def _affordable(history: History, proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals without the configurations that the budget has no room for."""
    known = {configuration_key(trial.changed) for trial in history.trials}
    new = [one for one in proposals if configuration_key(one.changed) not in known]
    beyond = [] if history.experiments_left is None else new[max(0, history.experiments_left) :]
    return [one for one in proposals if one not in beyond]


def plateau_findings(lab: Lab) -> tuple[Finding, ...]:
    """That tuning has reached a plateau, where the runs so far show it."""
    history = history_of(lab.ledger)
    data = data_factors(lab, history)
    found = plateau(lab.study, history, data) if history.factors else None
    if found is None:
        return ()
    unit = f" {lab.study.objective.unit}".rstrip()
    text = (
        f"Tuning has reached a plateau: what is tuned first was tried, and the last {found.changes} changes gained at "
        f"most {found.best_gain:.3g}{unit} over the best before them; {found.threshold:.3g} would have been more than "
        f"noise and worth having. {_of_data(lab, history, data)}"
    )
    return (Finding("training", text, (SYMPTOM,)),)


def _of_data(lab: Lab, history: History, data: frozenset[str]) -> str:
    if not data:
        return NO_DATA
    names = ", ".join(sorted(data))
    is_left = bool(data_moves(lab.study, history, data))
    return f"What is left of the data ({names}) comes first." if is_left else f"Of the data {names} were tried, too."


NO_DATA = "No factor of this study changes the data: their quality, mixture and amount are what to look at next."
