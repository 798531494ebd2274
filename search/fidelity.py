"""Low fidelity: single changes looked at by cheaper runs, which say where a whole run is worth while.

Like is compared with like: a change's cheap run with the baseline's cheap runs. What that difference tells of the whole
run's is learnt from the changes that were run both ways, and enters the surrogate as evidence with a doubt of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from nightlab.configs.code import is_idea
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase, Proposal
from nightlab.search.effects import estimate_effect
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History, cells_of
from nightlab.search.landscape import Seen
from nightlab.search.lattice import Lattice, Point
from nightlab.search.low_runs import at_low, low_cost, whole_changes
from nightlab.search.noise import pooled_noise
from nightlab.search.screening import opening_moves
from nightlab.search.space import configuration_key, variable_slug, with_changes

__all__ = ["due_at_low", "guesses", "low_effect", "screened_at_low"]

LOW_SHARE = 0.3
"""Share of what there is to explore that runs at low fidelity take at most."""
LEVELS_LOOKED_AT = 2
"""Levels of each factor, the likeliest first."""
SURVIVING_SHARE = 1 / 3
"""Of the changes looked at so many are screened by a whole run."""
SLOPE_WEIGHT = 2.0
"""How many pairs the expectation is worth that a whole run shows the same difference as a cheap one."""
DOUBT_SHARE = 0.5
"""Expected deviation of a whole run's difference from that, as a share of the usual difference."""
DOUBT_WEIGHT = 3.0
"""How many pairs that expectation is worth."""
LARGEST = 3.0
"""Usual differences beyond which a worse run says no more of the slope: one that diverged must not rule it."""

Array = NDArray[np.float64]


def due_at_low(study: Study, history: History, lattice: Lattice, free: int) -> list[Proposal]:
    """The runs at low fidelity still to be made: the baseline's, then single changes in the order of screening.

    `free`: whole runs that exploration has, those made already among them.
    """
    if study.search.fidelity is None:
        return []
    known = {configuration_key(trial.changed) for trial in history.low}
    own = {trial.seed for trial in history.low if trial.changed == at_low(study, {})}
    replicates = study.search.baseline_replicates
    most = int(LOW_SHARE * free / low_cost(study)) - replicates
    if most <= 0:
        return []
    due = [
        _proposal(
            study, {}, seed, Phase.BASELINE, f"baseline at low fidelity, seed {seed}: what cheap runs compare with"
        )
        for seed in range(replicates)
        if seed not in own
    ]
    for point in _looked_at(lattice)[: min(most, int(LEVELS_LOOKED_AT * len(lattice.axes)))]:
        changed = lattice.changed(point)
        if configuration_key(at_low(study, changed)) not in known:
            reason = f"a first, cheap look at {', '.join(f'{name} {value}' for name, value in changed.items())}"
            due.append(_proposal(study, changed, 0, Phase.SCREEN, reason))
    return due


def _looked_at(lattice: Lattice) -> list[Point]:
    """Single changes; a code idea is run whole in any case."""
    ideas = [index for index, axis in enumerate(lattice.axes) if is_idea(axis.factor.name)]
    return [p for p in opening_moves(lattice) if all(p[index] == lattice.baseline[index] for index in ideas)]


def _proposal(study: Study, changed: Mapping[str, Scalar], seed: int, phase: Phase, reason: str) -> Proposal:
    low = at_low(study, changed)
    what = variable_slug(*next(iter(changed.items()))) if changed else "baseline"
    return Proposal(
        parameters={**with_changes(study, changed), **low},
        changed=low,
        variable=variable_slug("low", what),
        phase=phase,
        seed=seed,
        reason=reason,
    )


def screened_at_low(history: History) -> int:
    """How many whole runs screening makes of what was looked at; 0 without a look at anything."""
    looked_at = len({trial.number for trial in history.low if len(trial.changed) > 1})
    return math.ceil(SURVIVING_SHARE * looked_at)


def low_effect(study: Study, history: History, number: int) -> Effect | None:
    """The difference of an experiment at low fidelity from the baseline run likewise; None without both."""
    cells = cells_of(history.low)
    base = next((cell for cell in cells if cell.changed == at_low(study, {})), None)
    cell = next((cell for cell in cells if cell.number == number), None)
    if base is None or cell is None or not base.values or not cell.values:
        return None
    noise = pooled_noise(study, base.values, [one.values for one in cells if one is not base])
    return estimate_effect(study, cell.values, base.values, noise)


def guesses(study: Study, history: History, lattice: Lattice, found: Evidence) -> tuple[Seen, ...]:
    """What a whole run is expected to give where only a cheap one was made; none before the baseline has both."""
    cells = cells_of(history.low)
    base = next((cell for cell in cells if cell.changed == at_low(study, {})), None)
    if base is None or not base.values or not found.baseline.explored:
        return ()
    differences = _differences(study, [cell for cell in cells if cell is not base], fmean(base.values))
    points = {
        cell.number: lattice.point_of({**study.parameters, **whole_changes(study, cell.changed)}) for cell in cells
    }
    whole = {cell.number: found.cell(whole_changes(study, cell.changed)) for cell in cells}
    level = fmean(found.baseline.explored)
    pairs = [
        (cheap, one)
        for n, cheap in differences.items()
        if (one := _whole_difference(study, whole[n], level)) is not None
    ]
    slope, doubt = _relation(np.array(list(differences.values())), np.array(pairs).reshape(-1, 2))
    sign = -1.0 if study.maximize else 1.0
    values: dict[int, float | None] = {n: sign * level + slope * cheap for n, cheap in differences.items()}
    # What fails cheaply fails whole.
    values |= {cell.number: None for cell in cells if cell.failures and not cell.values and not cell.rejected}
    return tuple(
        Seen(point, value, 1, sound=False, pending=False, doubt=doubt)
        for number, value in values.items()
        if (point := points[number]) is not None and _whole_difference(study, whole[number], level) is None
    )


def _differences(study: Study, cells: Iterable[Cell], base: float) -> dict[int, float]:
    """Number → how much worse than the baseline's `base` it was."""
    sign = -1.0 if study.maximize else 1.0
    return {cell.number: sign * (fmean(cell.values) - base) for cell in cells if cell.values and not cell.rejected}


def _whole_difference(study: Study, cell: Cell | None, level: float) -> float | None:
    if cell is None or not cell.explored:
        return None
    return (-1.0 if study.maximize else 1.0) * (fmean(cell.explored) - level)


def _relation(cheap: Array, pairs: Array) -> tuple[float, float]:
    """Slope from cheap to whole differences, and the variance about it; `pairs` (n, 2): those known both ways."""
    if not cheap.size:
        return 1.0, 0.0
    bound = max(LARGEST * float(np.quantile(np.abs(cheap), 0.75)), -float(cheap.min()))
    usual = float((np.minimum(cheap, bound) ** 2).mean())
    near = np.minimum(pairs, bound)
    squares = float((near[:, 0] ** 2).sum()) + SLOPE_WEIGHT * usual
    slope = (float((near[:, 0] * near[:, 1]).sum()) + SLOPE_WEIGHT * usual) / squares if squares else 1.0
    apart = float(((near[:, 1] - slope * near[:, 0]) ** 2).sum())
    return slope, (DOUBT_WEIGHT * DOUBT_SHARE**2 * usual + apart) / (DOUBT_WEIGHT + len(pairs))
