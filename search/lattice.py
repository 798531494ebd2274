"""The space as a lattice: a configuration is a tuple of level positions, one an axis; an axis is a factor."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from nightlab.configs.study import Scalar, Study
from nightlab.search.history import RankedFactor
from nightlab.search.levels import baseline_setting, changed_from, holds, is_forbidden, setting
from nightlab.search.space import is_number
from nightlab.search.surrogate import Geometry

__all__ = ["Axis", "Lattice", "Point"]

Parameters = dict[str, Scalar]
Point = tuple[int, ...]

FEWEST_SHARED = 3
"""Two axes with at least so many equal values are taken to be related; flags never are."""


@dataclass(frozen=True)
class Axis:
    """One factor: what it sets at each position. Ordered values ascend; of others the baseline's is the first."""

    factor: RankedFactor
    settings: tuple[Parameters, ...]
    baseline: int
    log_odds: tuple[float, ...]
    """ln of the odds that a position is better than the baseline's; 0 where nothing is known."""
    preferred: tuple[int, ...]
    """Positions in the order to try them, the baseline's not among them."""

    @classmethod
    def of(cls, study: Study, factor: RankedFactor) -> Axis:
        entries: list[tuple[Parameters, float, int]] = [(baseline_setting(study, factor), 0.0, -1)]
        for place, level in enumerate(factor.levels):
            odds = math.log(factor.chances[place] / (1 - factor.chances[place])) if factor.chances else 0.0
            entries.append((setting(study, factor, level), odds, place))
        if factor.ordered:
            entries.sort(key=lambda entry: float(entry[0][factor.name]))
        places = [place for *_, place in entries]
        ranked = sorted((place, position) for position, place in enumerate(places) if place >= 0)
        return cls(
            factor=factor,
            settings=tuple(entry[0] for entry in entries),
            baseline=places.index(-1),
            log_odds=tuple(entry[1] for entry in entries),
            preferred=tuple(position for _, position in ranked),
        )

    @cached_property
    def position_of(self) -> dict[tuple[str, ...], int]:
        return {_key(held, self.names): position for position, held in enumerate(self.settings)}

    def place_of(self, parameters: Mapping[str, Scalar]) -> int | None:
        """The position of a configuration; None where it has a value of no level."""
        # With the types: True and 1 are equal, and not the same level.
        held = tuple((type(parameters[name]), parameters[name]) for name in self.names)
        if held not in self._found:
            self._found[held] = self.position_of.get(_key(parameters, self.names))
        return self._found[held]

    @cached_property
    def _found(self) -> dict[tuple[object, ...], int | None]:
        """What `place_of` found, as most configurations of a long night hold the same few values."""
        return {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The parameters it sets."""
        return tuple(self.settings[self.baseline])

    def level(self, position: int) -> Scalar | None:
        """The factor's level there; None: the baseline's."""
        if position == self.baseline:
            return None
        return self.factor.levels[self.preferred.index(position)]

    @cached_property
    def alike(self) -> tuple[str, ...] | None:
        """What makes another axis a relative: the values of its one parameter; None for flags, bundles, few values."""
        values = [held[self.factor.name] for held in self.settings] if len(self.names) == 1 else []
        if len(values) < 2 or any(isinstance(value, bool) for value in values):
            return None
        if len(values) < FEWEST_SHARED and all(is_number(value) for value in values):
            return None
        return tuple(sorted(_text(value) for value in values))


def _text(value: Scalar) -> str:
    return f"{float(value):.9g}" if is_number(value) else repr(value)


def _key(parameters: Mapping[str, Scalar], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_text(parameters[name]) for name in names)


@dataclass(frozen=True)
class Lattice:
    """All configurations that may be tried."""

    study: Study
    axes: tuple[Axis, ...]
    forbidden: tuple[Parameters, ...] = ()

    @classmethod
    def of(cls, study: Study, factors: tuple[RankedFactor, ...], forbidden: tuple[Parameters, ...] = ()) -> Lattice:
        return cls(study, tuple(Axis.of(study, factor) for factor in factors), forbidden)

    @cached_property
    def baseline(self) -> Point:
        return tuple(axis.baseline for axis in self.axes)

    @cached_property
    def size(self) -> int:
        """How many points there are, constraints not looked at."""
        return math.prod(len(axis.settings) for axis in self.axes)

    @cached_property
    def geometry(self) -> Geometry:
        """The axes for the surrogate, with those grouped whose values are the same."""
        alike: dict[tuple[str, ...], list[int]] = {}
        for index, axis in enumerate(self.axes):
            if axis.alike is not None:
                alike.setdefault((str(axis.factor.ordered), *axis.alike), []).append(index)
        groups = tuple(tuple(group) for group in alike.values() if len(group) > 1)
        ordered = tuple(axis.factor.ordered for axis in self.axes)
        return Geometry(ordered, tuple(len(axis.settings) for axis in self.axes), groups)

    @cached_property
    def codes(self) -> tuple[tuple[int, ...], ...]:
        """Position → code for the surrogate: the same value has the same code on related categorical axes."""
        found: list[tuple[int, ...]] = []
        for axis in self.axes:
            places = range(len(axis.settings))
            if axis.factor.ordered or axis.alike is None:
                found.append(tuple(places))
            else:
                # The baseline's value comes first on each axis, and may be another one on a relative.
                texts = [_text(held[axis.factor.name]) for held in axis.settings]
                found.append(tuple(sorted(texts).index(text) for text in texts))
        return tuple(found)

    def point_of(self, parameters: Mapping[str, Scalar]) -> Point | None:
        """The point of a configuration; None where it has a value of no level, or changes what no axis stands for."""
        if any(_text(parameters.get(name, value)) != _text(value) for name, value in self._fixed):
            return None
        places = [axis.place_of(parameters) for axis in self.axes]
        found = tuple(place for place in places if place is not None)
        return self.canonical(found) if len(found) == len(self.axes) else None

    @cached_property
    def _fixed(self) -> tuple[tuple[str, Scalar], ...]:
        """The parameters that no axis sets, with the baseline's values."""
        moved = {name for axis in self.axes for name in axis.names}
        return tuple((name, value) for name, value in self.study.parameters.items() if name not in moved)

    def parameters(self, point: Point) -> Parameters:
        """The configuration at a point."""
        found = dict(self.study.parameters)
        for axis, position in zip(self.axes, point, strict=True):
            found |= axis.settings[position]
        return found

    def changed(self, point: Point) -> Parameters:
        """What differs from the baseline at a point."""
        return changed_from(self.study, self.parameters(point))

    @cached_property
    def _conditional(self) -> tuple[int, ...]:
        return tuple(index for index, axis in enumerate(self.axes) if axis.factor.requires)

    def active(self, point: Point, index: int) -> bool:
        """Whether a factor means something at a point."""
        requires = self.axes[index].factor.requires
        return not requires or holds(requires, self.parameters(point))

    def canonical(self, point: Point) -> Point:
        """The point with the factors that mean nothing there at the baseline's position, so that equals are equal."""
        for _ in self._conditional:
            idle = [index for index in self._conditional if not self.active(point, index)]
            reset = tuple(self.axes[i].baseline if i in idle else position for i, position in enumerate(point))
            if reset == point:
                break
            point = reset
        return point

    def allowed(self, point: Point) -> bool:
        """Whether no constraint and no conflict of techniques forbids it."""
        return not self.forbidden or not is_forbidden(self.forbidden, self.parameters(point))

    def moved(self, point: Point, *moves: tuple[int, int]) -> Point:
        """The point with other positions, `(axis, position)` each; canonical."""
        places = list(point)
        for axis, position in moves:
            places[axis] = position
        return self.canonical(tuple(places))
