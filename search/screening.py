"""Screening: one variable at a time around the incumbent, and further seeds where the first do not decide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nightlab.configs.levels import same_value
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, RankedFactor
from nightlab.search.lattice import Lattice, Point

__all__ = ["SingleChange", "next_seed", "opening_moves", "screened", "settling_seeds"]


@dataclass(frozen=True)
class SingleChange:
    """One factor at one of its levels, everything else as in the baseline."""

    factor: RankedFactor
    level: Scalar
    changed: dict[str, Scalar]
    """What it changes; a bundle several parameters."""


def screened(factors: tuple[RankedFactor, ...], study: Study) -> list[RankedFactor]:
    """The factors that matter at the baseline: those whose `requires` the baseline meets."""
    return [
        factor
        for factor in factors
        if all(same_value(study.parameters[name], value) for name, value in factor.requires.items())
    ]


def opening_moves(lattice: Lattice) -> list[Point]:
    """Single changes of the baseline, before anything is known: each factor's first value, then each one's second."""
    moves = [
        (place, index, position)
        for index, axis in enumerate(lattice.axes)
        if lattice.active(lattice.baseline, index)
        for place, position in enumerate(axis.preferred)
    ]
    points = [lattice.moved(lattice.baseline, (index, position)) for _, index, position in sorted(moves)]
    return [point for point in dict.fromkeys(points) if point != lattice.baseline and lattice.allowed(point)]


def _is_unsettled(effect: Effect, min_effect: float) -> bool:
    """Whether further seeds may show that it is without effect: near the baseline, but not inside ±min_effect."""
    if effect.low is None or effect.high is None or abs(effect.delta) >= min_effect:
        return False
    return effect.low <= -min_effect or effect.high >= min_effect


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
