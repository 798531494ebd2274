"""Which configuration to run next: that of the largest expected improvement among moves around the incumbent.

Priors from catalog and lessons weigh on the choice as in πBO (Hvarfner et al. 2022): divided by the number of values
seen, so that they rule the first choices and wash out. Runs in flight count as run with the value expected of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice, Point
from nightlab.search.moves import MOST_PAIRS, beyond, cliffs, is_near, joint_moves, jumps, single_moves

__all__ = ["MOST_REPEATS", "Choice", "Chooser", "recipe", "repeat_due", "trust", "worth_trying"]

PRIOR_WEIGHT = 4.0
"""πBO's β: how much ln of the prior odds counts at the first value."""
ORDER_WEIGHT = 0.5
"""How much the ranked order counts at the first value, from the first factor to the last."""
LEVEL_WEIGHT = 0.5
"""The same from a factor's first value to try to its last: without it the farthest values would always come first."""
GOOD_CHANCE = math.log(0.6 / 0.4)
"""Log-odds from which a level belongs to the recipe that catalog and lessons recommend."""
TRUST_LOST = 2.0
"""A level that was called good and turned out worse counts twice: good advice is right more often than not."""
REPEAT_SHARE = 0.3
"""The incumbent is repeated when what may be gained elsewhere is less than this share of its own uncertainty."""
MOST_REPEATS = 6
MANY = 64
"""Runs in flight and wanted beyond which not every candidate is looked at anew after each of them."""
FEWEST_LOOKED_AT = 512
LOOKED_AT_EACH = 3
"""Candidates looked at for each configuration that is wanted."""
HOPELESS_SHARE = 0.002
"""Share of the noise, or of the least worthwhile gain, below which an expected improvement is none."""


@dataclass(frozen=True)
class Choice:
    """A configuration to run next."""

    point: Point
    expected_improvement: float
    """In the metric's unit."""
    moved: tuple[int, ...]
    """Axes by which it differs from the incumbent."""


class Chooser:
    """Chooses configuration after configuration, each with those before it taken as run.

    `pending`: points in flight; `alone`: only moves of one variable. `most`: how many may be asked for. Where many are
    in flight or wanted, only those candidates are looked at that promised most before.
    """

    def __init__(
        self, landscape: Landscape, pending: Sequence[Point], seed: int, *, alone: bool, most: int = 1
    ) -> None:
        self._landscape = landscape
        found = _candidates(landscape, {*landscape.known, *pending}, seed, alone=alone)
        prior = _prior(landscape, found) / max(1, len(landscape.measured))
        if len(pending) + most > MANY and len(found) > (kept := max(FEWEST_LOOKED_AT, LOOKED_AT_EACH * most)):
            alike = landscape.fantasy(found)
            promise = landscape.log_improvement(alike.means, alike.deviations) + prior
            best = np.sort(np.argsort(-promise, kind="stable")[:kept])
            found, prior = [found[place] for place in best], prior[best]
        self._candidates, self._prior = found, prior
        self._places = {point: place for place, point in enumerate(found)}
        if found:
            self._fantasy = landscape.fantasy([*found, *pending])
            self._fantasy.add(*range(len(found), len(found) + len(pending)))

    def best(self) -> Choice | None:
        """The best of those not taken."""
        return self._best_of(np.isfinite(self._prior))

    def holding(self, levels: Iterable[tuple[int, int]]) -> Choice | None:
        """The best of those not taken that hold one of these levels, `(axis, position)`."""
        wanted = frozenset(levels)
        if not wanted:
            return None
        holds = np.array([any(point[axis] == at for axis, at in wanted) for point in self._candidates], dtype=bool)
        return self._best_of(holds & np.isfinite(self._prior))

    def nearest(self) -> Choice | None:
        """The best of the incumbent's neighbours that are not taken, by one level of one or two factors."""
        return self._best_of(self._near & np.isfinite(self._prior))

    @cached_property
    def _near(self) -> NDArray[np.bool_]:
        lattice, centre = self._landscape.lattice, self._landscape.incumbent
        return np.array([is_near(lattice, point, centre) for point in self._candidates], dtype=bool)

    def _best_of(self, fitting: NDArray[np.bool_]) -> Choice | None:
        if not fitting.any():
            return None
        size = len(self._candidates)
        improvements = self._landscape.log_improvement(self._fantasy.means[:size], self._fantasy.deviations[:size])
        scores = np.where(fitting, improvements + self._prior, -math.inf)
        # Rounded: of equals the first, in whatever order the runs in flight were added.
        at = int(np.argmax(np.round(scores, 9)))
        unit = self._landscape.scale.unit * math.exp(min(50.0, float(improvements[at])))
        return Choice(self._candidates[at], unit, _moved(self._candidates[at], self._landscape.incumbent))

    def take(self, choice: Choice) -> None:
        """That one is run."""
        place = self._places[choice.point]
        self._fantasy.add(place)
        self._prior[place] = -math.inf


def _moved(point: Point, centre: Point) -> tuple[int, ...]:
    return tuple(axis for axis in range(len(point)) if point[axis] != centre[axis])


def _candidates(landscape: Landscape, taken: set[Point], seed: int, *, alone: bool) -> list[Point]:
    lattice, centre = landscape.lattice, landscape.incumbent
    points = dict.fromkeys(single_moves(lattice, centre))
    if not alone:
        random = np.random.default_rng([abs(seed), len(landscape.measured)])
        points |= dict.fromkeys(_pairs(lattice, centre, random))
        points |= dict.fromkeys(jumps(lattice, centre, random))
    walls = cliffs(landscape)
    return [
        point
        for point in points
        if point not in taken and not any(beyond(point, wall) for wall in walls) and lattice.allowed(point)
    ]


def _pairs(lattice: Lattice, centre: Point, random: np.random.Generator) -> list[Point]:
    pairs = list(islice(joint_moves(lattice, centre), 20 * MOST_PAIRS))
    if len(pairs) <= MOST_PAIRS:
        return pairs
    return [pairs[index] for index in random.choice(len(pairs), size=MOST_PAIRS, replace=False)]


def _prior(landscape: Landscape, points: Sequence[Point]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """ln of how much rather catalog, lessons and the ranked order would see each point run than the incumbent."""
    lattice, centre = landscape.lattice, landscape.incumbent
    count = max(1, len(lattice.axes) - 1)
    gains = [[odds - axis.log_odds[centre[i]] for odds in axis.log_odds] for i, axis in enumerate(lattice.axes)]
    places = [{at: place / len(axis.preferred) for place, at in enumerate(axis.preferred)} for axis in lattice.axes]
    trusted = trust(landscape)
    prior = np.zeros(len(points))
    for place, point in enumerate(points):
        moved = [axis for axis in range(len(point)) if point[axis] != centre[axis]]
        odds = sum(gains[axis][point[axis]] for axis in moved)
        late = min(moved, default=0) / count
        far = max((places[axis].get(point[axis], 0.0) for axis in moved), default=0.0)
        prior[place] = PRIOR_WEIGHT * trusted * odds - ORDER_WEIGHT * late - LEVEL_WEIGHT * far
    return prior


def trust(landscape: Landscape) -> float:
    """How far catalog and lessons are to be believed here, 0 to 1: 1 before they were put to the test.

    Each configuration that they call better or worse than the baseline, and that was measured, speaks for or against.
    """
    lattice = landscape.lattice
    known = landscape.known.get(lattice.baseline)
    if known is None or known.value is None:
        return 1.0
    right = wrong = 0.0
    for seen in landscape.measured:
        odds = sum(axis.log_odds[at] for axis, at in zip(lattice.axes, seen.point, strict=True))
        better = (known.value - (seen.value or 0.0)) / landscape.run_noise
        weight = min(1.0, abs(odds)) * min(1.0, abs(better))
        if odds * better > 0:
            right += weight
        else:
            wrong += weight
    return max(0.0, (1.0 + right - TRUST_LOST * wrong) / (1.0 + right + TRUST_LOST * wrong))


def recipe(lattice: Lattice) -> Point | None:
    """Everything that catalog and lessons recommend, together; None where that is less than two changes."""
    point = lattice.baseline
    for index, axis in enumerate(lattice.axes):
        best = max(axis.preferred, key=lambda position: axis.log_odds[position])
        if axis.log_odds[best] >= GOOD_CHANCE:
            moved = lattice.moved(point, (index, best))
            point = moved if lattice.allowed(moved) else point
    return point if sum(at != base for at, base in zip(point, lattice.baseline, strict=True)) > 1 else None


def worth_trying(landscape: Landscape, choice: Choice, min_effect: float) -> bool:
    """Whether a configuration may still gain anything that counts beside the noise and the least worthwhile gain."""
    return choice.expected_improvement > HOPELESS_SHARE * max(landscape.run_noise, min_effect)


def repeat_due(landscape: Landscape, improvement: float) -> bool:
    """Whether the incumbent's own value is less certain than what another run could find (`improvement`)."""
    runs = landscape.known[landscape.incumbent].runs
    return runs < MOST_REPEATS and improvement < REPEAT_SHARE * landscape.run_noise / math.sqrt(max(1, runs))
