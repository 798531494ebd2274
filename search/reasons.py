"""Why a configuration is proposed, in one line, and what its branch is called after."""

from __future__ import annotations

from collections.abc import Mapping

from nightlab.configs.study import Scalar, Study
from nightlab.search.lattice import Lattice, Point
from nightlab.search.refinement import Choice, recipe
from nightlab.search.space import SLUG_LENGTH, variable_slug

__all__ = ["change_text", "choice_reason", "choice_variable"]


def change_text(changed: Mapping[str, Scalar], study: Study) -> str:
    """`lr 0.001 → 0.003, layers 1 → 2`."""
    return ", ".join(f"{name} {study.parameters[name]} → {value}" for name, value in changed.items())


def choice_variable(lattice: Lattice, choice: Choice) -> str | None:
    """What a choice moves, `lr-0-003-layers-2`; None where it moves nothing."""
    slugs = (_slug(lattice, axis, choice.point) for axis in choice.moved)
    return "-".join(slugs)[:SLUG_LENGTH].strip("-") or None


def _slug(lattice: Lattice, index: int, point: Point) -> str:
    factor, level = lattice.axes[index].factor, lattice.axes[index].level(point[index])
    return variable_slug(factor.name, lattice.study.parameters.get(factor.name, "off") if level is None else level)


def choice_reason(lattice: Lattice, choice: Choice, centre: Point) -> str:
    """What is moved from `centre`, what stands beside it, and what is expected of it."""
    moves = ", ".join(_move(lattice, axis, centre, choice.point) for axis in choice.moved)
    base = lattice.changed(lattice.moved(centre, *((a, lattice.axes[a].baseline) for a in choice.moved)))
    beside = f", beside {', '.join(f'{name} {value}' for name, value in base.items())}" if base else ""
    if len(choice.moved) == 1:
        factor = lattice.axes[choice.moved[0]].factor
        return f"single change: {moves}{beside} ({factor.reason or 'next in order'})"
    if choice.point == recipe(lattice):
        return f"what catalog and lessons recommend, together: {moves}"
    if choice.expected_improvement == 0.0:
        return f"joint move: {moves}{beside} (before the baseline's value tells more)"
    unit = f" {lattice.study.objective.unit}" if lattice.study.objective.unit else ""
    return f"joint move: {moves}{beside} (the surrogate expects {choice.expected_improvement:.2g}{unit} of it)"


def _move(lattice: Lattice, index: int, centre: Point, point: Point) -> str:
    factor = lattice.axes[index].factor
    names = [lattice.axes[index].level(at) for at in (centre[index], point[index])]
    own = lattice.study.parameters.get(factor.name, "as in the baseline")
    before, after = (own if name is None else name for name in names)
    return f"{factor.name} {before} → {after}"
