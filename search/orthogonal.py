"""Combination: the winners of screening in an orthogonal array, and the main effects it shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nightlab.configs.code import is_idea
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.arrays import TWO_LEVEL, confounded_pairs, mixed_array, two_level_array
from nightlab.search.confirmation import lendable
from nightlab.search.effects import contrast_effect, contrast_error
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History, RankedFactor, Trial
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice
from nightlab.search.levels import is_forbidden
from nightlab.search.screening import SingleChange

__all__ = [
    "ArrayPlan",
    "MainEffect",
    "array_plan",
    "main_effects",
    "predicted_best",
    "rows_by_promise",
    "second_levels",
    "winners",
]

NEAR_MISS = 0.25
"""Deviations by which a change that the incumbent does not hold may be expected to lose and still enter the array."""
ARRAY_SHARE = 1 / 3
"""Share of the exploration that is left which the rows of an array may take."""
THREE_LEVEL_SHARE = 1 / 10
"""The same for an array with three levels of a factor: more rows for what refinement, too, finds one by one."""
SECOND_DEVIATIONS = 1.0
"""Deviations by which another level of a winner may be expected to lose and still enter such an array."""
FEWEST_THREE_LEVEL = 2
"""Factors with a second level worth trying from which such an array is considered."""
FEWEST_TO_COMBINE = 12
"""Runs of exploration below which joint moves, one at a time, find more than an array."""


@dataclass(frozen=True)
class ArrayPlan:
    """An orthogonal array over changes of the baseline; row 0 is the baseline."""

    columns: tuple[tuple[SingleChange, ...], ...]
    """Of each factor the changes that its levels 1 and, in some arrays, 2 stand for."""
    rows: tuple[tuple[int, ...], ...]
    """The level of each factor; 0: as in the baseline."""

    @property
    def name(self) -> str:
        return f"L{len(self.rows)}"

    @property
    def has_three_levels(self) -> bool:
        return any(len(column) > 1 for column in self.columns)

    def made(self, row: int) -> list[SingleChange]:
        """The changes that a row makes."""
        levels = zip(self.columns, self.rows[row], strict=True)
        return [column[level - 1] for column, level in levels if level]

    def changed(self, row: int) -> dict[str, Scalar]:
        """What differs from the baseline in a row."""
        return {name: value for change in self.made(row) for name, value in change.changed.items()}

    def row_of(self, changed: dict[str, Scalar]) -> int | None:
        """The row with exactly these changes."""
        return next((row for row in range(len(self.rows)) if self.changed(row) == changed), None)


class _Level(NamedTuple):
    """One level of one factor of an array."""

    column: int
    change: SingleChange
    held: tuple[int, ...]
    """Of each row whether it has it, 0 or 1."""


def _levels(plan: ArrayPlan) -> list[_Level]:
    return [
        _Level(index, change, tuple(int(row[index] == level) for row in plan.rows))
        for index, column in enumerate(plan.columns)
        for level, change in enumerate(column, 1)
    ]


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


def winners(landscape: Landscape, most: int) -> list[SingleChange]:
    """The changes worth combining, at most `most`, the most useful first.

    Every change that the incumbent holds, by what undoing it is expected to cost, and of the other factors the best
    value that was tried, where it is about as likely as not to be an improvement.
    """
    lattice, centre = landscape.lattice, landscape.incumbent
    tried = [{seen.point[axis] for seen in landscape.measured} for axis in range(len(centre))]
    axes = list(enumerate(lattice.axes))
    told = _gains(landscape, [(index, at) for index, axis in axes for at in {axis.baseline, *tried[index]}])
    found: list[tuple[float, int, int]] = []
    for index, axis in axes:
        if axis.factor.requires:
            # What means something only beside another change cannot be switched on its own.
            continue
        if centre[index] != axis.baseline:
            cost, _ = told[index, axis.baseline]
            found.append((max(0.0, -cost) + landscape.run_noise, index, centre[index]))
            continue
        others = (at for at in tried[index] if at != axis.baseline)
        moves = [(*told[index, at], at) for at in others]
        gain, spread, at = max(moves, default=(-1.0, 1.0, 0))
        if gain > -NEAR_MISS * spread:
            found.append((gain, index, at))
    found.sort(key=lambda entry: (-entry[0], entry[1]))
    changes = [single_change(lattice, index, at) for _, index, at in found]
    return [change for change in changes if change.changed][:most]


def _gains(landscape: Landscape, moves: Sequence[tuple[int, int]]) -> dict[tuple[int, int], tuple[float, float]]:
    """Expected improvement and its deviation of each move `(axis, position)` of the incumbent, looked up together."""
    if not moves:
        return {}
    points = [landscape.lattice.moved(landscape.incumbent, move) for move in moves]
    gains, spreads = landscape.gains(points)
    return dict(zip(moves, zip(gains.tolist(), spreads.tolist(), strict=True), strict=True))


def second_levels(landscape: Landscape, changes: Sequence[SingleChange]) -> dict[str, SingleChange]:
    """Factor → another value of it that was tried and may be as good as that of its change; not of every factor."""
    lattice = landscape.lattice
    tried = [{seen.point[axis] for seen in landscape.measured} for axis in range(len(lattice.axes))]
    places = {axis.factor.name: index for index, axis in enumerate(lattice.axes)}
    found: dict[str, SingleChange] = {}
    for change in changes:
        index = places[change.factor.name]
        axis, held = lattice.axes[index], lattice.point_of({**lattice.study.parameters, **change.changed})
        others = [at for at in tried[index] if at != axis.baseline and held is not None and at != held[index]]
        told = _gains(landscape, [(index, at) for at in sorted(others)])
        moves = [(*gain, at) for (_, at), gain in told.items()]
        gain, spread, at = max(moves, default=(-1.0, 1.0, 0))
        if gain > -SECOND_DEVIATIONS * spread:
            found[change.factor.name] = single_change(lattice, index, at)
    return found


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
    if lendable(study, history) < FEWEST_TO_COMBINE and all(t.phase != Phase.COMBINE for t in history.trials):
        return None
    first = next((i for i, t in enumerate(history.trials) if t.phase == Phase.COMBINE), len(history.trials))
    before = [trial for trial in history.trials[:first] if trial.phase in (Phase.BASELINE, Phase.SCREEN)]
    since = [trial for trial in history.trials[first:] if trial.phase != Phase.CONFIRM]
    evidence, factors = Evidence.of(study, before), _known_then(history, before)
    lattice = Lattice.of(study, factors, history.forbidden)
    if not evidence.baseline.values:
        return None
    landscape = Landscape.of(lattice, evidence)
    ranked = winners(landscape, study.search.combine_factors)
    seconds = second_levels(landscape, ranked)
    plans = [plan for count in range(len(ranked), 1, -1) for plan in _plans(ranked[:count], seconds)]
    plans = [plan for plan in plans if not _has_forbidden_row(study, history, plan)]
    affordable = _affordable(study, history, first)
    fitting = [plan for plan in plans if _new_rows(evidence, plan) <= int(affordable * _share(plan))]
    planned = {trial.number: trial.changed for trial in since if trial.phase == Phase.COMBINE}
    if not planned:
        return next(iter(fitting), None)
    # A budget in hours makes "affordable" a moving estimate: what was begun decides then.
    seen = Evidence.of(study, history.trials)
    return next((plan for plan in (*fitting, *plans) if _begun(seen, plan, list(planned.values()))), None)


def _known_then(history: History, before: list[Trial]) -> tuple[RankedFactor, ...]:
    """The factors without the code ideas that nobody had tried: those that came later must not change the array."""
    tried = {name for trial in before for name, value in trial.parameters.items() if is_idea(name) and value is True}
    return tuple(factor for factor in history.factors if not is_idea(factor.name) or factor.name in tried)


def _has_forbidden_row(study: Study, history: History, plan: ArrayPlan) -> bool:
    rows = ({**study.parameters, **plan.changed(row)} for row in range(len(plan.rows)))
    return bool(history.forbidden) and any(is_forbidden(history.forbidden, row) for row in rows)


def _affordable(study: Study, history: History, first: int) -> int:
    """Runs that exploration had left before trial number `first`, where that was enough to combine anything.

    With those lent to slots that wait: they explore, too.
    """
    before, since = history.trials[:first], history.trials[first:]
    runs = lendable(study, replace(history, trials=before, runs_left=history.runs_left + len(since)))
    if history.experiments_left is not None:
        new = {trial.number for trial in since} - {trial.number for trial in before}
        runs = min(runs, history.experiments_left + len(new))
    return runs if runs >= FEWEST_TO_COMBINE else 0


def _share(plan: ArrayPlan) -> float:
    return THREE_LEVEL_SHARE if plan.has_three_levels else ARRAY_SHARE


def _new_rows(evidence: Evidence, plan: ArrayPlan) -> int:
    return sum(evidence.cell(plan.changed(row)) is None for row in range(len(plan.rows)))


def _begun(evidence: Evidence, plan: ArrayPlan, planned: list[dict[str, Scalar]]) -> bool:
    """Whether the planned combinations are rows of `plan`; after its last row the predicted best may stand outside."""
    outside = [changed for changed in planned if plan.row_of(changed) is None]
    return not outside or (outside == planned[-1:] and _new_rows(evidence, plan) == 0)


def _plans(changes: list[SingleChange], seconds: Mapping[str, SingleChange]) -> list[ArrayPlan]:
    """Arrays for exactly these changes, the best first."""
    smallest = next(size for size in TWO_LEVEL if size > len(changes))
    # Three changes: all eight combinations cost one new run more than L4, as screening ran the single changes.
    sizes = [8, 4] if len(changes) == 3 else [smallest]
    columns = tuple((change,) for change in changes)
    plans = [ArrayPlan(columns, two_level_array(size, len(changes))) for size in sizes]
    twos = [change for change in changes if change.factor.name not in seconds]
    threes = [(change, seconds[change.factor.name]) for change in changes if change.factor.name in seconds]
    rows = mixed_array(len(twos), len(threes)) if len(threes) >= FEWEST_THREE_LEVEL else None
    return [ArrayPlan((*((change,) for change in twos), *threes), rows), *plans] if rows else plans


def rows_by_promise(evidence: Evidence, landscape: Landscape, plan: ArrayPlan) -> list[int]:
    """Rows not yet run, those first whose single changes did best, so that a short budget sees the best ones."""
    rows = [row for row in range(len(plan.rows)) if evidence.cell(plan.changed(row)) is None]
    if not rows:
        return []
    lattice = landscape.lattice
    changes = [change for column in plan.columns for change in column]
    points = [lattice.point_of({**lattice.study.parameters, **change.changed}) for change in changes]
    known = [point for point in points if point]
    told = dict(zip(known, landscape.gains(known)[0].tolist(), strict=True)) if known else {}
    gains = {id(change): told.get(point, 0.0) if point else 0.0 for change, point in zip(changes, points, strict=True)}
    promise = {row: sum(gains[id(change)] for change in plan.made(row)) for row in rows}
    return sorted(rows, key=lambda row: -promise[row])


def main_effects(study: Study, history: History) -> list[MainEffect]:
    """Main effects of the array that was run, in the order of its columns; empty when none was run."""
    if all(trial.phase != Phase.COMBINE for trial in history.trials):
        return []
    plan = array_plan(study, history)
    return _main_effects(Evidence.of(study, history.trials), plan) if plan else []


def _main_effects(evidence: Evidence, plan: ArrayPlan) -> list[MainEffect]:
    cells = [(row, evidence.cell(plan.changed(row))) for row in range(len(plan.rows))]
    # Two rows may be the same configuration.
    seen = [
        (row, cell)
        for row, cell in {cell and cell.number: (row, cell) for row, cell in reversed(cells)}.values()
        if cell and cell.explored
    ]
    levels = _levels(plan)
    design = np.array([[1, *(level.held[row] for level in levels)] for row, _ in seen], dtype=float)
    if not seen or np.linalg.matrix_rank(design) < design.shape[1]:
        return []
    cells_seen = [cell for _, cell in seen]
    return [
        _main_effect(evidence, plan, level, _weighted(weights, cells_seen))
        for level, weights in zip(levels, np.linalg.pinv(design)[1:], strict=True)
    ]


def _main_effect(
    evidence: Evidence, plan: ArrayPlan, level: _Level, weighted: list[tuple[float, Sequence[float]]]
) -> MainEffect:
    names = [column[0].factor.name for column in plan.columns]
    return MainEffect(
        factor=names[level.column],
        level=level.change.level,
        effect=contrast_effect(evidence.study, weighted, evidence.noise),
        standard_error=contrast_error(weighted, evidence.noise),
        confounded_with=tuple(f"{names[a]} × {names[b]}" for a, b in confounded_pairs(plan.rows, level.column)),
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
    changes = {(level.change.factor.name, level.change.level): level.change.changed for level in _levels(plan)}
    # Of the levels of a factor the best.
    helping = [
        one for place, one in enumerate(helping) if one.factor not in {other.factor for other in helping[:place]}
    ]
    for left_out in [None, *reversed([one.factor for one in helping])]:
        together = [changes[one.factor, one.level] for one in helping if one.factor != left_out]
        changed = {name: value for change in together for name, value in change.items()}
        cell = evidence.cell(changed)
        if len(together) > 1 and (cell is None or cell.pending or cell.sound):
            return changed
    return {}
