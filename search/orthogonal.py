"""Combination: the winners of screening in a two-level orthogonal array, and the main effects it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.confirmation import exploration_left
from nightlab.search.effects import contrast_effect, contrast_error
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History, Trial
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice
from nightlab.search.levels import is_forbidden
from nightlab.search.screening import SingleChange

__all__ = [
    "ArrayPlan",
    "MainEffect",
    "array_plan",
    "confounded_pairs",
    "has_strength_two",
    "main_effects",
    "predicted_best",
    "two_level_array",
    "winners",
]

Design = NDArray[np.int64]
SIZES = {4: "L4(2^3)", 8: "L8(2^7)", 12: "L12(2^11)", 16: "L16(2^15)"}
"""Runs → name in pydoe; its L64(2^31) is not orthogonal and is not used."""


NEAR_MISS = 0.25
"""Deviations by which a change that the incumbent does not hold may be expected to lose and still enter the array."""
ARRAY_SHARE = 1 / 3
"""Share of the exploration that is left which the rows of an array may take."""
FEWEST_TO_COMBINE = 12
"""Runs of exploration below which joint moves, one at a time, find more than an array."""


@dataclass(frozen=True)
class ArrayPlan:
    """An orthogonal array over changes of the baseline: 1 where a row makes the change; row 0 is the baseline."""

    changes: tuple[SingleChange, ...]
    rows: tuple[tuple[int, ...], ...]

    @property
    def name(self) -> str:
        return f"L{len(self.rows)}"

    def changed(self, row: int) -> dict[str, Scalar]:
        """What differs from the baseline in a row."""
        made = zip(self.changes, self.rows[row], strict=True)
        return {name: value for change, on in made if on for name, value in change.changed.items()}

    def row_of(self, changed: dict[str, Scalar]) -> int | None:
        """The row with exactly these changes."""
        return next((row for row in range(len(self.rows)) if self.changed(row) == changed), None)


@dataclass(frozen=True)
class MainEffect:
    """What one change does on average over the rows of the array."""

    factor: str
    level: Scalar
    effect: Effect
    standard_error: float
    confounded_with: tuple[str, ...]
    """Two-factor interactions that the array cannot tell from it, `a × b`."""
    array: str
    """`L8`: the array it comes from."""


def has_strength_two(design: Design) -> bool:
    """Whether every pair of columns shows every pair of levels equally often."""
    for one, other in combinations(range(design.shape[1]), 2):
        pairs, counts = np.unique(design[:, [one, other]], axis=0, return_counts=True)
        levels = len(np.unique(design[:, one])) * len(np.unique(design[:, other]))
        if len(pairs) != levels or len(set(counts.tolist())) != 1:
            return False
    return True


@lru_cache(maxsize=64)
def two_level_array(size: int, factors: int) -> tuple[tuple[int, ...], ...]:
    """`size` (4, 8, 12 or 16) rows × `factors` columns of 0 and 1, strength 2, first row all 0.

    The columns are those that confound main effects least with two-factor interactions. Raises ValueError when the
    library's array is not orthogonal.
    """
    # Not at the top of the module: the library takes about a second to import, and most calls never combine.
    import pydoe

    full: Design = np.asarray(pydoe.get_orthogonal_array(SIZES[size]), dtype=np.int64)
    if not has_strength_two(full) or full[0].any():
        raise ValueError(f"pydoe's {SIZES[size]} is not an orthogonal array that starts at the baseline")
    chosen = min(combinations(range(full.shape[1]), factors), key=lambda columns: _confounding(size, full, columns))
    return tuple(tuple(row) for row in full[:, chosen].tolist())


def _confounding(size: int, full: Design, columns: tuple[int, ...]) -> float:
    signs = 2.0 * full[:, columns] - 1
    cubes = np.einsum("ra,rb,rc->abc", signs, signs, signs, optimize=True) / size
    apart = [cubes[triple] ** 2 for triple in combinations(range(len(columns)), 3)]
    return float(sum(apart))


def confounded_pairs(rows: Sequence[Sequence[int]], column: int) -> list[tuple[int, int]]:
    """The pairs of other columns whose interaction is correlated with the column's main effect."""
    signs = 2 * np.asarray(rows) - 1
    others = [other for other in range(signs.shape[1]) if other != column]
    return [(a, b) for a, b in combinations(others, 2) if (signs[:, column] * signs[:, a] * signs[:, b]).sum() != 0]


def winners(landscape: Landscape, most: int) -> list[SingleChange]:
    """The changes worth combining, at most `most`, the most useful first.

    Every change that the incumbent holds, by what undoing it is expected to cost, and of the other factors the best
    value that was tried, where it is about as likely as not to be an improvement.
    """
    lattice, centre = landscape.lattice, landscape.incumbent
    tried = [{seen.point[axis] for seen in landscape.measured} for axis in range(len(centre))]
    found: list[tuple[float, int, int]] = []
    for index, axis in enumerate(lattice.axes):
        if axis.factor.requires:
            # What means something only beside another change cannot be switched on its own.
            continue
        if centre[index] != axis.baseline:
            cost, _ = landscape.gain(lattice.moved(centre, (index, axis.baseline)))
            found.append((max(0.0, -cost) + landscape.run_noise, index, centre[index]))
            continue
        others = (at for at in tried[index] if at != axis.baseline)
        moves = [(*landscape.gain(lattice.moved(centre, (index, at))), at) for at in others]
        gain, spread, at = max(moves, default=(-1.0, 1.0, 0))
        if gain > -NEAR_MISS * spread:
            found.append((gain, index, at))
    found.sort(key=lambda entry: (-entry[0], entry[1]))
    changes = [single_change(lattice, index, at) for _, index, at in found]
    return [change for change in changes if change.changed][:most]


def single_change(lattice: Lattice, index: int, position: int) -> SingleChange:
    """One axis of the lattice at one of its positions, all others as in the baseline."""
    axis = lattice.axes[index]
    changed = lattice.changed(lattice.moved(lattice.baseline, (index, position)))
    level = axis.level(position)
    if level is None:
        raise ValueError(f"{axis.factor.name}: the baseline's own value is no change")
    return SingleChange(axis.factor, level, changed)


def array_plan(study: Study, history: History) -> ArrayPlan | None:
    """The array for the winners of screening that the budget allows; None when there is nothing to combine.

    It depends only on what was planned before its first row, all of which had ended by then, so it stays the same
    while its rows come in.
    """
    if exploration_left(study, history) < FEWEST_TO_COMBINE and all(t.phase != Phase.COMBINE for t in history.trials):
        return None
    first = next((i for i, t in enumerate(history.trials) if t.phase == Phase.COMBINE), len(history.trials))
    before = [trial for trial in history.trials[:first] if trial.phase in (Phase.BASELINE, Phase.SCREEN)]
    since = [trial for trial in history.trials[first:] if trial.phase != Phase.CONFIRM]
    evidence, lattice = Evidence.of(study, before), Lattice.of(study, history.factors, history.forbidden)
    if not evidence.baseline.values:
        return None
    ranked = winners(Landscape.of(lattice, evidence), study.search.combine_factors)
    plans = [plan for count in range(len(ranked), 1, -1) for plan in _plans(ranked[:count])]
    plans = [plan for plan in plans if not _has_forbidden_row(study, history, plan)]
    affordable = _affordable(study, history, since)
    fitting = [plan for plan in plans if _new_rows(evidence, plan) <= affordable]
    planned = {trial.number: trial.changed for trial in since if trial.phase == Phase.COMBINE}
    if not planned:
        return next(iter(fitting), None)
    # A budget in hours makes "affordable" a moving estimate: what was begun decides then.
    seen = Evidence.of(study, history.trials)
    return next((plan for plan in (*fitting, *plans) if _begun(seen, plan, list(planned.values()))), None)


def _has_forbidden_row(study: Study, history: History, plan: ArrayPlan) -> bool:
    rows = ({**study.parameters, **plan.changed(row)} for row in range(len(plan.rows)))
    return bool(history.forbidden) and any(is_forbidden(history.forbidden, row) for row in rows)


def _affordable(study: Study, history: History, since: list[Trial]) -> int:
    """New rows that the rest of the budget bears: a third of it, where it is large enough to combine anything."""
    runs = exploration_left(study, history) + len(since)
    if history.experiments_left is not None:
        runs = min(runs, history.experiments_left + len({trial.number for trial in since}))
    return int(runs * ARRAY_SHARE) if runs >= FEWEST_TO_COMBINE else 0


def _new_rows(evidence: Evidence, plan: ArrayPlan) -> int:
    return sum(evidence.cell(plan.changed(row)) is None for row in range(len(plan.rows)))


def _begun(evidence: Evidence, plan: ArrayPlan, planned: list[dict[str, Scalar]]) -> bool:
    """Whether the planned combinations are rows of `plan`; after its last row the predicted best may stand outside."""
    outside = [changed for changed in planned if plan.row_of(changed) is None]
    return not outside or (outside == planned[-1:] and _new_rows(evidence, plan) == 0)


def _plans(changes: list[SingleChange]) -> list[ArrayPlan]:
    """Arrays for exactly these changes, the best first."""
    smallest = next(size for size in SIZES if size > len(changes))
    # Three changes: all eight combinations cost one new run more than L4, as screening ran the single changes.
    sizes = [8, 4] if len(changes) == 3 else [smallest]
    return [ArrayPlan(tuple(changes), two_level_array(size, len(changes))) for size in sizes]


def main_effects(study: Study, history: History) -> list[MainEffect]:
    """Main effects of the array that was run, in the order of its columns; empty when none was run."""
    if all(trial.phase != Phase.COMBINE for trial in history.trials):
        return []
    plan = array_plan(study, history)
    return _main_effects(Evidence.of(study, history.trials), plan) if plan else []


def _main_effects(evidence: Evidence, plan: ArrayPlan) -> list[MainEffect]:
    cells = [evidence.cell(plan.changed(row)) for row in range(len(plan.rows))]
    seen = [(row, cell) for row, cell in zip(plan.rows, cells, strict=True) if cell and cell.explored]
    design = np.array([[1, *row] for row, _ in seen], dtype=float).reshape(len(seen), 1 + len(plan.changes))
    if np.linalg.matrix_rank(design) < design.shape[1]:
        return []
    cells_seen = [cell for _, cell in seen]
    return [
        _main_effect(evidence, plan, column, _weighted(weights, cells_seen))
        for column, weights in enumerate(np.linalg.pinv(design)[1:])
    ]


def _main_effect(
    evidence: Evidence, plan: ArrayPlan, column: int, weighted: list[tuple[float, Sequence[float]]]
) -> MainEffect:
    names = [change.factor.name for change in plan.changes]
    return MainEffect(
        factor=names[column],
        level=plan.changes[column].level,
        effect=contrast_effect(evidence.study, weighted, evidence.noise),
        standard_error=contrast_error(weighted, evidence.noise),
        confounded_with=tuple(f"{names[a]} × {names[b]}" for a, b in confounded_pairs(plan.rows, column)),
        array=plan.name,
    )


def _weighted(weights: NDArray[np.float64], cells: list[Cell]) -> list[tuple[float, Sequence[float]]]:
    return [(float(weight), cell.explored) for weight, cell in zip(weights, cells, strict=True)]


def predicted_best(evidence: Evidence, plan: ArrayPlan) -> dict[str, Scalar]:
    """The changes whose main effect clears its standard error, together; failed combinations are stepped around.

    Empty when no two changes help together, or the array's rows do not determine the effects.
    """
    helping = [one for one in _main_effects(evidence, plan) if one.effect.delta > one.standard_error]
    helping.sort(key=lambda one: -one.effect.delta)
    changes = {change.factor.name: change.changed for change in plan.changes}
    for left_out in [None, *reversed([one.factor for one in helping])]:
        together = [changes[one.factor] for one in helping if one.factor != left_out]
        changed = {name: value for change in together for name, value in change.items()}
        cell = evidence.cell(changed)
        if len(together) > 1 and (cell is None or cell.pending or cell.sound):
            return changed
    return {}
