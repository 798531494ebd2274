"""Leaving out: the winner without each of its changes, as one that it does as well without is no part of the recipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nightlab.configs.study import Scalar
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell
from nightlab.search.lattice import Lattice
from nightlab.search.looks import winning_effect

__all__ = ["RUNS_EACH", "LeftOut", "left_out", "winner"]

RUNS_EACH = 2
"""Runs of the winner without one of its changes, where budget is left."""


class LeftOut(NamedTuple):
    """One run of the winner without its change of one factor."""

    factor: str
    changed: dict[str, Scalar]
    """What is left of its changes."""
    seed: int


def winner(evidence: Evidence) -> Cell | None:
    """The finalist that wins by most so far; None without a win."""
    effects = ((cell, winning_effect(evidence, cell)) for cell in evidence.changes)
    wins = [(effect.delta, cell) for cell, effect in effects if effect]
    return max(wins, key=lambda entry: entry[0])[1] if wins else None


def left_out(evidence: Evidence, lattice: Lattice, whole: Cell) -> Iterator[LeftOut]:
    """The runs still to be made for the winner `whole`: the first one of each change, then the second ones."""
    point = lattice.point_of(whole.parameters)
    if point is None:
        return
    bases = list(enumerate(zip(lattice.axes, lattice.baseline, strict=True)))
    for seed in range(RUNS_EACH):
        for index, (axis, base) in bases:
            other = lattice.moved(point, (index, base))
            changed = lattice.changed(other)
            if point[index] != base and changed and lattice.allowed(other) and _is_due(evidence.cell(changed), seed):
                yield LeftOut(axis.factor.name, changed, seed)


def _is_due(cell: Cell | None, seed: int) -> bool:
    if cell is None:
        return True
    return (cell.sound or cell.pending) and seed not in cell.seeds and len(cell.trials) < RUNS_EACH
