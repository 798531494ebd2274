"""The space of the night: the study's own factors, those the catalog adds, and what must not stand together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Literal

from nightlab.agents.context import Lab
from nightlab.agents.naming import own_name
from nightlab.agents.rules_of_scale import scaled_settings
from nightlab.configs.levels import same_value
from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.catalog import Technique, factor_levels
from nightlab.search.levels import holds

__all__ = ["fits", "forbidden_in", "own_name", "space_of"]

Parameters = dict[str, Scalar]

OFF: tuple[Scalar, ...] = (False, 0, "none", "off", "no")
"""Values that mean a technique is not used."""


def space_of(lab: Lab) -> dict[str, Factor]:
    """The study's own factors, then those the catalog adds: parameters the baseline names and the study leaves free.

    A technique whose parameters belong together becomes one bundle under the technique's id; values that follow from
    the study's own are computed here. What a technique needs becomes a condition; where the study can never meet it,
    the technique is left out.
    """
    study, selection = lab.study, lab.study.catalog
    space = dict(study.space)
    wanted = [lab.catalog.get(name) for name in selection.include]
    if selection.match:
        wanted += lab.catalog.match(method=study.method)
    for technique in wanted:
        if not technique.locked and technique.id not in selection.exclude:
            space |= _Adding(lab, space, technique).factors()
    return _possible(study, space)


def fits(level: Scalar, baseline: Scalar) -> bool:
    """Whether a value of the catalog is one for this parameter: of the baseline's sort, and no prose (`2-5x usual`)."""
    if isinstance(level, str) or isinstance(baseline, str):
        return isinstance(level, str) and isinstance(baseline, str) and " " not in level
    return isinstance(level, bool) is isinstance(baseline, bool)


class _Adding:
    """One technique on its way into the space."""

    def __init__(self, lab: Lab, space: Mapping[str, Factor], technique: Technique) -> None:
        self.lab, self.study, self.space, self.technique = lab, lab.study, space, technique
        self.taken = {*space, *(name for factor in space.values() for name in factor.parameters_set)}

    def factors(self) -> dict[str, Factor]:
        if self.technique.is_rule:
            return self._by_rule()
        bundle = self._bundle()
        companions = self.technique.together[1:]
        if bundle is not None:
            return {self.technique.id: bundle} | self._singles([*companions, self.technique.together[0]])
        # Without the first of those that belong together, the others are no technique.
        return self._singles(companions)

    def _singles(self, left_out: list[str]) -> dict[str, Factor]:
        found: dict[str, Factor] = {}
        for parameter in self.technique.params:
            name = own_name(self.study, parameter)
            if parameter in left_out or name in self.taken or name in found or not self._is_free(name):
                continue
            if levels := self._values(parameter):
                found[name] = Factor(
                    levels=levels,
                    scale=self._scale(parameter, levels),
                    technique=self.technique.id,
                    requires=self._needs(parameter),
                )
        return found

    def _bundle(self) -> Factor | None:
        """The parameters that belong together as one variable; None where the study leaves too few of them free."""
        together = {one: own_name(self.study, one) for one in self.technique.together}
        named = {one: name for one, name in together.items() if name in self.study.parameters}
        first = next(iter(together), None)
        clash = self.technique.id in self.taken or self.technique.id in self.study.parameters
        if first is None or first not in named or len(named) < 2 or clash:
            return None
        fixed: Parameters = {}
        for parameter, name in named.items():
            values = self._values(parameter)
            if not values or name in self.taken or not self._is_free(name):
                return None
            if parameter != first:
                fixed[name] = values[0]
        settings = {_label(first, value): {named[first]: value, **fixed} for value in self._values(first)}
        return Factor(settings=settings, technique=self.technique.id, requires=self._needs(first))

    def _by_rule(self) -> dict[str, Factor]:
        """One variable of what follows from the study's own values; nothing where not all of it may be set."""
        found = scaled_settings(self.lab, self.technique)
        names = next(iter(found), {})
        clash = self.technique.id in self.taken or self.technique.id in self.study.parameters
        if not found or clash or any(name in self.taken or not self._is_free(name) for name in names):
            return {}
        first = next(iter(names))
        settings = {_label(first, setting[first]): setting for setting in found}
        return {self.technique.id: Factor(settings=settings, technique=self.technique.id)}

    def _values(self, parameter: str) -> list[Scalar]:
        baseline = self.study.parameters[own_name(self.study, parameter)]
        return [v for v in factor_levels(self.technique, parameter, self.study.method) if fits(v, baseline)]

    def _scale(self, parameter: str, levels: list[Scalar]) -> Literal["linear", "log"]:
        values = (*levels, self.study.parameters[own_name(self.study, parameter)])
        above_zero = all(isinstance(value, int | float) and value > 0 for value in values)
        return self.technique.params[parameter].scale if above_zero else "linear"

    def _needs(self, parameter: str) -> Parameters:
        needs = {own_name(self.study, name): value for name, value in self.technique.needs_of(parameter).items()}
        own = own_name(self.study, parameter)
        return {name: value for name, value in needs.items() if name in self.study.parameters and name != own}

    def _is_free(self, name: str) -> bool:
        """Whether an experiment may set the parameter, and the command would notice."""
        return name in self.study.parameters and name not in self.study.locked and self.study.reaches_runs(name)


def _label(parameter: str, value: Scalar) -> str:
    """A setting's name: `epsilon_high-0.28`."""
    return re.sub(r"[^A-Za-z0-9_.\-/]+", "-", f"{parameter}-{value}")


def _possible(study: Study, space: dict[str, Factor]) -> dict[str, Factor]:
    """The space without the catalog's factors whose condition no configuration meets."""
    while True:
        kept = {
            name: factor
            for name, factor in space.items()
            if name in study.space or all(_can_be(study, space, *need) for need in factor.requires.items())
        }
        if len(kept) == len(space):
            return kept
        space = kept


def _can_be(study: Study, space: Mapping[str, Factor], name: str, value: Scalar) -> bool:
    found = [study.parameters[name], *(space[name].values if name in space else ())]
    found += [setting[name] for f in space.values() for setting in (f.settings or {}).values() if name in setting]
    return any(same_value(value, one) for one in found)


def forbidden_in(lab: Lab, space: Mapping[str, Factor]) -> tuple[Parameters, ...]:
    """Combinations of values no configuration may hold: the study's own, and conflicts of techniques in the space."""
    study = lab.study
    found = [study.plain(one) for one in study.forbid]
    used = sorted({factor.technique for factor in space.values() if factor.technique})
    for one in used:
        for other in lab.catalog.get(one).conflicts:
            if one < other and other in used:
                pairs = product(_in_use(study, space, one), _in_use(study, space, other))
                found += [first | second for first, second in pairs if _can_clash(study, first, second)]
    return tuple(one for index, one in enumerate(found) if one not in found[:index])


def _in_use(study: Study, space: Mapping[str, Factor], technique: str) -> Iterator[Parameters]:
    """The values that mean the technique is used: those of its factors that switch nothing off."""
    for name, factor in space.items():
        if factor.technique != technique:
            continue
        for label in factor.settings or {}:
            yield factor.setting(label, study.parameters)
        for value in factor.values:
            if not any(same_value(value, off) for off in OFF) and not same_value(value, study.parameters[name]):
                yield {name: value}
        if factor.settings is None and study.parameters[name] is True:
            yield {name: True}


def _can_clash(study: Study, first: Parameters, second: Parameters) -> bool:
    """Whether both can be set at once, and the baseline itself is not both."""
    both = first | second
    return holds(first, both) and not holds(both, study.parameters)
