"""Saturation: tuning is used up and gains no more, so that what is left of the data comes first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from scipy.special import stdtrit

from nightlab.configs.code import is_idea
from nightlab.configs.study import Study
from nightlab.knowledge.records import Phase, Proposal
from nightlab.search.effects import standard_error
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice, Point
from nightlab.search.low_runs import is_low
from nightlab.search.space import configuration_key, variable_slug, with_changes

__all__ = ["SYMPTOM", "Plateau", "data_first", "data_moves", "plateau"]

SYMPTOM = "plateau_after_tuning"
TAIL = 3
"""Changes without gain in a row."""
LAST_TIER = 2
"""Of what is tuned before anything else: what directly affects the result, recipe and regularisation."""
EXPLORING = (Phase.SCREEN, Phase.COMBINE, Phase.REFINE)


@dataclass(frozen=True)
class Plateau:
    """What the last changes of the tuning gained over the best before them, in the metric's unit."""

    best_gain: float
    threshold: float
    """What that change would have had to gain, to be more than noise and worth having."""
    changes: int


def plateau(study: Study, history: History) -> Plateau | None:
    """Whether tuning is saturated, by the runs alone; None where it is not, or where the noise is not known.

    Every factor of the first two tiers, those of the data left out, was tried, and none of the last three changes that
    leave the data alone gained more over the best before them than noise gives one of them: a Student bound at the
    study's confidence, and at least `min_effect`. It is not corrected for the three, as a doubtful gain is a reason to
    go on; and what the best before gained is shrunk first, so that its luck alone makes no plateau.
    """
    evidence = _found(study, history)
    lattice = Lattice.of(study, history.factors, history.forbidden)
    of_data = {name for index in _axes(lattice, history.data, inside=True) for name in lattice.axes[index].names}
    measured = (cell for cell in evidence.changes if cell.explored and not cell.rejected)
    tuning = [cell for cell in measured if not of_data & cell.changed.keys()]
    if not evidence.noise.degrees or not evidence.baseline.explored or len(tuning) < TAIL:
        return None
    if not all(_was_tried(axis, lattice, evidence) for axis in _axes(lattice, history.data, inside=False)):
        return None
    known, runs = _best(evidence, tuning[:-TAIL])
    bound = float(stdtrit(evidence.noise.degrees, study.search.confidence))
    beyond, gain = -math.inf, 0.0
    for cell in tuning[-TAIL:]:
        gained = evidence.improvement(fmean(cell.explored)) - known
        noise = bound * standard_error(evidence.noise, len(cell.explored), runs)
        beyond, gain = max((beyond, gain), (gained - max(noise, study.objective.min_effect), gained))
    return None if beyond > 0 else Plateau(gain, gain - beyond, TAIL)


def _best(evidence: Evidence, cells: Sequence[Cell]) -> tuple[float, int]:
    """What the best of these, or the baseline, gains over the baseline, and on how many runs that rests."""
    if cells:
        best = max(cells, key=lambda cell: evidence.improvement(fmean(cell.explored)))
        likely = evidence.likely_gain(best) or 0.0
        if likely > 0:
            return likely, len(best.explored)
    return 0.0, len(evidence.baseline.explored)


def data_first(study: Study, history: History, proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals, those that explore behind what is left to try of the data where tuning is saturated.

    As many as there were, and no more new configurations than the budget allows.
    """
    exploring = [one for one in proposals if _is_exploring(study, one)]
    is_confirming = any(trial.phase is Phase.CONFIRM and trial.changed for trial in history.trials)
    if not exploring or not history.data or is_confirming or plateau(study, history) is None:
        return list(proposals)
    moves = data_moves(study, history)
    keys = {configuration_key(one.changed) for one in moves}
    behind = [one for one in exploring if configuration_key(one.changed) not in keys]
    others = [one for one in proposals if one not in exploring]
    return [*others, *_affordable(history, [*moves, *behind])[: len(exploring)]]


def _is_exploring(study: Study, proposal: Proposal) -> bool:
    """Whether it looks for something new at full fidelity."""
    return proposal.phase in EXPLORING and bool(proposal.changed) and not is_low(study, proposal.changed)


def _affordable(history: History, proposals: Sequence[Proposal]) -> list[Proposal]:
    """The proposals without the configurations that the budget has no room for."""
    known = {configuration_key(trial.changed) for trial in history.trials}
    new = [one for one in proposals if configuration_key(one.changed) not in known]
    beyond = [] if history.experiments_left is None else new[max(0, history.experiments_left) :]
    return [one for one in proposals if one not in beyond]


def data_moves(study: Study, history: History) -> list[Proposal]:
    """Each value of the data's factors that no run has held yet, as the one change of the incumbent.

    Those that no constraint forbids there and that mean something there, each factor's best guess first.
    """
    evidence = _found(study, history)
    lattice = Lattice.of(study, history.factors, history.forbidden)
    held = [point for cell in evidence.cells if (point := lattice.point_of(cell.parameters))]
    untried = [
        (place, index, position)
        for index in _axes(lattice, history.data, inside=True)
        for place, position in enumerate(lattice.axes[index].preferred)
        if all(point[index] != position for point in held)
    ]
    # The landscape is fitted, which takes a while after many runs.
    landscape = Landscape.of(lattice, evidence) if untried else None
    if landscape is None or not landscape.measured:
        return []
    centre, phase = landscape.incumbent, Phase.SCREEN
    if any(trial.phase == Phase.COMBINE for trial in history.trials):
        phase = Phase.REFINE
    points = [(index, position, lattice.moved(centre, (index, position))) for _, index, position in sorted(untried)]
    fitting = [(index, at) for index, position, at in points if at[index] == position and lattice.allowed(at)]
    return [_proposal(lattice, point, centre, index, phase) for index, point in fitting]


def _proposal(lattice: Lattice, point: Point, centre: Point, index: int, phase: Phase) -> Proposal:
    study, axis = lattice.study, lattice.axes[index]
    own = study.parameters.get(axis.factor.name, "as in the baseline")
    levels = [axis.level(at[index]) for at in (centre, point)]
    before, after = (own if level is None else level for level in levels)
    company = lattice.changed(lattice.moved(centre, (index, axis.baseline)))
    beside = f", beside {', '.join(f'{name} {value}' for name, value in company.items())}" if company else ""
    changed = lattice.changed(point)
    return Proposal(
        parameters=with_changes(study, changed),
        changed=changed,
        variable=variable_slug(axis.factor.name, after),
        technique=axis.factor.technique,
        phase=phase,
        seed=0,
        reason=f"single change: {axis.factor.name} {before} → {after}{beside} "
        f"(the data, against {SYMPTOM}: tuning gains no more)",
    )


def _found(study: Study, history: History) -> Evidence:
    return Evidence.of(study, [trial for trial in history.trials if trial.phase != Phase.CONFIRM])


def _axes(lattice: Lattice, data: Collection[str], *, inside: bool) -> Iterator[int]:
    """The axes of the data's factors, or those of the others; code ideas are neither."""
    for index, axis in enumerate(lattice.axes):
        if not is_idea(axis.factor.name) and (axis.factor.name in data) is inside:
            yield index


def _was_tried(index: int, lattice: Lattice, evidence: Evidence) -> bool:
    """Whether a value of a factor has ended, well or not; one of a late tier, or idle at the baseline, need not."""
    axis = lattice.axes[index]
    if axis.factor.tier > LAST_TIER or not lattice.active(lattice.baseline, index):
        return True
    ended = [cell for cell in evidence.cells if any(trial.state != "pending" for trial in cell.trials)]
    return any(axis.place_of(cell.parameters) not in (None, axis.baseline) for cell in ended)
