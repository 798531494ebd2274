"""Screening: one variable at a time from the baseline, and further seeds where the first do not decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, RankedFactor
from nightlab.search.space import same_value

__all__ = ["SingleChange", "is_tie", "new_levels", "screened", "settling_seeds", "tie_seeds"]

LEVELS_A_ROUND = 2
"""A factor's first two values (up and down, or the two best guesses) come before any factor's third."""


@dataclass(frozen=True)
class SingleChange:
    """One factor at one of its levels, everything else as in the baseline."""

    factor: RankedFactor
    level: Scalar

    @property
    def changed(self) -> dict[str, Scalar]:
        return {self.factor.name: self.level}


def screened(factors: tuple[RankedFactor, ...], study: Study) -> list[RankedFactor]:
    """The factors that matter at the baseline: those whose `requires` the baseline meets."""
    return [
        factor
        for factor in factors
        if all(same_value(study.parameters[name], value) for name, value in factor.requires.items())
    ]


def new_levels(evidence: Evidence, factors: tuple[RankedFactor, ...]) -> list[SingleChange]:
    """The single changes to run next, not yet run in any way: in rounds of two levels, factors in ranked order."""
    found = [
        (index // LEVELS_A_ROUND, rank, index, SingleChange(factor, level))
        for rank, factor in enumerate(screened(factors, evidence.study))
        for index, level in enumerate(factor.levels)
        if evidence.cell({factor.name: level}) is None and _open(evidence, factor, index)
    ]
    return [change for *_, change in sorted(found, key=lambda entry: entry[:3])]


def _open(evidence: Evidence, factor: RankedFactor, index: int) -> bool:
    """Whether the nearer levels on the same side allow this one: none failed or clearly worse, none still to come."""
    if not factor.ordered:
        return True
    for earlier, level in _nearer(evidence, factor, index):
        cell = evidence.cell({factor.name: level})
        if cell is None or (cell.pending and not cell.values):
            if earlier:
                return False
        elif not cell.sound or _clearly_worse(evidence.effect(cell)):
            return False
    return True


def _nearer(evidence: Evidence, factor: RankedFactor, index: int) -> Iterator[tuple[bool, Scalar]]:
    baseline, level = float(evidence.study.parameters[factor.name]), float(factor.levels[index])
    for position, other in enumerate(factor.levels):
        between = baseline < float(other) < level or level < float(other) < baseline
        if between:
            yield position < index, other


def _clearly_worse(effect: Effect | None) -> bool:
    return effect is not None and effect.high is not None and effect.high < 0


def is_tie(effect: Effect, min_effect: float) -> bool:
    """Whether further seeds may turn it into a win: the interval straddles the line, nearer to a win than a loss."""
    if effect.low is None or effect.high is None:
        return False
    return effect.low <= min_effect < effect.high and effect.delta > -min_effect


def _is_unsettled(effect: Effect, min_effect: float) -> bool:
    """Whether further seeds may show that it is without effect: near the baseline, but not inside ±min_effect."""
    if effect.low is None or effect.high is None or abs(effect.delta) >= min_effect:
        return False
    return effect.low <= -min_effect or effect.high >= min_effect


def tie_seeds(evidence: Evidence) -> list[tuple[Cell, int]]:
    """Single changes that may yet be wins, with the seed of one more run, most promising first."""
    further, line = evidence.study.search.replicate_ties, evidence.study.objective.min_effect
    ties = [(effect.delta, cell) for effect, cell in _repeatable(evidence, 1 + further) if is_tie(effect, line)]
    return [(cell, next_seed(cell)) for _, cell in sorted(ties, key=lambda entry: -entry[0])]


def settling_seeds(evidence: Evidence) -> list[tuple[Cell, int]]:
    """Single changes that may be without effect, with the seed of one more run, those nearest the baseline first.

    At most as many runs each as the baseline has replicates.
    """
    most, line = evidence.study.search.baseline_replicates, evidence.study.objective.min_effect
    found = [(abs(effect.delta), cell) for effect, cell in _repeatable(evidence, most) if _is_unsettled(effect, line)]
    return [(cell, next_seed(cell)) for _, cell in sorted(found, key=lambda entry: entry[0])]


def _repeatable(evidence: Evidence, most: int) -> Iterator[tuple[Effect, Cell]]:
    for cell in evidence.changes:
        runs = sum(trial.phase != Phase.CONFIRM for trial in cell.trials)
        effect = evidence.effect(cell) if len(cell.changed) == 1 and cell.sound and not cell.pending else None
        if effect and runs < most:
            yield effect, cell


def next_seed(cell: Cell) -> int:
    """The lowest seed it has not run with: the baseline's first ones, so that seeds are shared."""
    return next(seed for seed in range(len(cell.seeds) + 1) if seed not in cell.seeds)
