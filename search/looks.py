"""The looks at a finalist's fresh pairs, and what each may spend of the risk of a false win.

A night may claim something that is not there with probability `1 - confidence` at most, whatever is looked at and how
often. Every finalist gets a share of that risk by the order in which it entered confirmation (a Bonferroni correction
that holds for any number of them, and whoever is left out in between), and each of its two looks a share of its own:
the first after `confirm_seeds` pairs, the last when no further pair can come. A win is one-sided, so an interval's two
sides take the risk each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nightlab.configs.study import Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.effects import paired_effect
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell

__all__ = ["Standing", "early_look", "last_look", "most_seeds", "standing", "winning_effect"]

SPENT = 0.8
"""Share of the risk that is planned with; the rest is for noise that is neither normal nor even, and for drift."""
FIRST_FINALIST = 0.75
"""Share of the first finalist, of the second in what is left, and so on."""
EARLY = 0.2
"""Share of the first look."""

Standing = Literal["started", "open", "won", "out"]


@dataclass(frozen=True)
class _Risk:
    early: float
    last: float


def most_seeds(study: Study) -> int:
    """Fresh seeds of a finalist that stays undecided."""
    return max(study.search.confirm_seeds, study.search.confirm_seeds_most)


def _risk(evidence: Evidence, cell: Cell) -> _Risk:
    rank = evidence.confirming.index(cell.number)
    total = SPENT * (1 - evidence.study.search.confidence)
    own = total * FIRST_FINALIST * (1 - FIRST_FINALIST) ** rank
    return _Risk(EARLY * own, (1 - EARLY) * own)


def _values(cell: Cell, first: int | None = None) -> dict[int, float]:
    """Seed → value, on the first so many fresh seeds that were planned for it."""
    planned = [trial.seed for trial in cell.trials if trial.phase == Phase.CONFIRM][:first]
    return {seed: cell.confirmed[seed] for seed in planned if seed in cell.confirmed}


def early_look(evidence: Evidence, cell: Cell) -> Effect | None:
    """The effect on the first `confirm_seeds` pairs; None before they are all in."""
    seeds = evidence.study.search.confirm_seeds
    values = _values(cell, seeds)
    if len(values.keys() & evidence.baseline.confirmed.keys()) < seeds:
        return None
    return _effect(evidence, values, _risk(evidence, cell).early)


def last_look(evidence: Evidence, cell: Cell) -> Effect | None:
    """The effect on all pairs; for whoever stopped at the first look while others went on, that look's again."""
    seeds = evidence.study.search.confirm_seeds
    values = _values(cell)
    stopped = len(values) <= seeds and any(
        len(_values(other)) > seeds for other in evidence.changes if other.number in evidence.confirming
    )
    risk = _risk(evidence, cell)
    return _effect(evidence, values, risk.early if stopped else risk.last)


def _effect(evidence: Evidence, values: dict[int, float], risk: float) -> Effect | None:
    return paired_effect(
        evidence.study, values, evidence.baseline.confirmed, evidence.look_noise, confidence=1 - 2 * risk
    )


def standing(evidence: Evidence, cell: Cell) -> Standing:
    """Where a finalist stands after its first look: `out` when failed or no longer looking better than the line."""
    fresh = [trial for trial in cell.trials if trial.phase == Phase.CONFIRM]
    if cell.rejected or any(trial.usable is None and trial.state != "pending" for trial in fresh):
        return "out"
    effect, line = early_look(evidence, cell), evidence.study.objective.min_effect
    if effect is None:
        return "started"
    if effect.low is not None and effect.low > line:
        return "won"
    return "open" if effect.delta > line else "out"


def winning_effect(evidence: Evidence, cell: Cell) -> Effect | None:
    """The effect by which a finalist has won, whatever budget is added: at its first look, or on all of its pairs."""
    if cell.number not in evidence.confirming:
        return None
    stands = standing(evidence, cell)
    if stands == "won":
        return early_look(evidence, cell)
    seeds = {trial.seed for trial in cell.trials if trial.phase == Phase.CONFIRM}
    waiting = any(
        trial.state == "pending" and trial.seed in seeds for side in (cell, evidence.baseline) for trial in side.trials
    )
    if stands == "out" or waiting or len(seeds) < most_seeds(evidence.study):
        return None
    effect = last_look(evidence, cell)
    if effect is None or effect.low is None or effect.runs < evidence.study.search.confirm_seeds:
        return None
    return effect if effect.low > evidence.study.objective.min_effect else None
