"""The space: which values a factor has, when two configurations are the same, how one is named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from nightlab.configs.code import is_idea
from nightlab.configs.levels import same_value
from nightlab.configs.study import Factor, Scalar, Study
from nightlab.errors import LockedError

__all__ = ["configuration_key", "is_ordered", "levels_of", "variable_slug", "with_changes"]

SLUG_LENGTH = 48


def is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_ordered(factor: Factor, baseline: Scalar) -> bool:
    """Whether the factor's values have an order: numbers do unless `categorical`; text and booleans never do."""
    values = [*(factor.levels or ()), baseline]
    return not factor.categorical and all(is_number(value) for value in values)


def levels_of(factor: Factor, baseline: Scalar) -> tuple[Scalar, ...]:
    """The values to try, without repeats and without the baseline's own, in the order given (a range ascends)."""
    found: list[Scalar] = []
    for value in factor.values:
        if not same_value(value, baseline) and not any(same_value(value, other) for other in found):
            found.append(value)
    return tuple(found)


def _canonical(value: Scalar) -> Scalar:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def configuration_key(parameters: Mapping[str, Scalar]) -> str:
    """Canonical text of a configuration: the same for any order of keys and for 1 and 1.0, different for True."""
    return json.dumps({name: _canonical(value) for name, value in parameters.items()}, sort_keys=True)


def with_changes(study: Study, changes: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The baseline's parameters with `changes`. Raises LockedError for a locked or an undeclared parameter."""
    for name in changes:
        if name in study.locked:
            raise LockedError(f"{name} is locked: no experiment may change it (take it out of locked in the study)")
        if name not in study.parameters:
            raise LockedError(f"{name} is not among the study's parameters: give its baseline value there")
    return {**study.parameters, **changes}


def variable_slug(name: str, value: Scalar) -> str:
    """`learning_rate`, 0.003 → `learning-rate-0-003`: lower-case letters, digits and single hyphens.

    A code idea is its name, and its name with `off` where it is taken back.
    """
    if is_idea(name) and isinstance(value, bool):
        value = "" if value else "off"
    sign = "minus-" if is_number(value) and float(value) < 0 else ""
    text = f"{name}-{sign}{_canonical(value)}".lower()
    return re.sub(r"[^a-z0-9]+", "-", text)[:SLUG_LENGTH].strip("-") or "change"
