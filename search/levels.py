"""What a factor's level sets, which level a configuration is at, and which configurations are forbidden.

A factor of one parameter sets that; a bundle sets several, and its own name is no parameter's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from nightlab.configs.levels import same_value
from nightlab.configs.study import Scalar, Study
from nightlab.search.history import History, RankedFactor

__all__ = ["baseline_setting", "changed_from", "held_back", "holds", "is_at", "is_forbidden", "setting"]

Parameters = dict[str, Scalar]


def setting(study: Study, factor: RankedFactor, level: Scalar) -> Parameters:
    """Every parameter that the factor sets at `level`, with its value; ValueError for a level it does not have."""
    index = next((i for i, one in enumerate(factor.levels) if same_value(one, level)), None)
    if index is None:
        raise ValueError(f"{factor.name} has no level {level!r}")
    own = {factor.name: factor.levels[index]} if factor.name in study.parameters else {}
    return own | (factor.also[index] if factor.also else {})


def baseline_setting(study: Study, factor: RankedFactor) -> Parameters:
    """Every parameter that the factor sets at any of its levels, with the baseline's value."""
    names = dict.fromkeys(name for level in factor.levels for name in setting(study, factor, level))
    return {name: study.parameters[name] for name in names}


def is_at(study: Study, factor: RankedFactor, level: Scalar | None, parameters: Mapping[str, Scalar]) -> bool:
    """Whether a configuration is at `level` of the factor; None: at the baseline's."""
    wanted = baseline_setting(study, factor) if level is None else setting(study, factor, level)
    return holds(wanted, parameters)


def holds(assignment: Mapping[str, Scalar], parameters: Mapping[str, Scalar]) -> bool:
    """Whether a configuration has every value of `assignment`."""
    return all(name in parameters and same_value(parameters[name], value) for name, value in assignment.items())


def is_forbidden(forbidden: Iterable[Mapping[str, Scalar]], parameters: Mapping[str, Scalar]) -> bool:
    """Whether a configuration holds one of the forbidden combinations wholly."""
    return any(holds(combination, parameters) for combination in forbidden)


def changed_from(study: Study, parameters: Mapping[str, Scalar]) -> Parameters:
    """Only what differs from the baseline: a bundle's setting may repeat some of its values."""
    return {name: value for name, value in parameters.items() if not holds({name: value}, study.parameters)}


def held_back(study: Study, history: History, names: Collection[str]) -> History:
    """The history where nothing new is to be tried of some factors: only those of their levels stay that ran well.

    So the incumbent keeps what it adopted of them; a factor of which nothing ran well goes.
    """
    good = [trial.parameters for trial in history.trials if trial.usable is not None]
    kept: list[RankedFactor] = []
    for factor in history.factors:
        if factor.name not in names:
            kept.append(factor)
            continue
        places = [
            place
            for place, level in enumerate(factor.levels)
            if any(is_at(study, factor, level, parameters) for parameters in good)
        ]
        if places:
            levels = tuple(factor.levels[place] for place in places)
            also = tuple(factor.also[place] for place in places) if factor.also else ()
            chances = tuple(factor.chances[place] for place in places) if factor.chances else ()
            kept.append(replace(factor, levels=levels, also=also, chances=chances))
    return replace(history, factors=tuple(kept))
