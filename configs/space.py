"""What the factors, bundles and constraints of a study must agree on with its parameters and with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nightlab.configs.levels import same_value
from nightlab.configs.problems import Location, Problem
from nightlab.configs.wording import show

if TYPE_CHECKING:
    from nightlab.configs.study import Factor, Scalar, Study

__all__ = ["problems_of_space"]

SHOWN = 6


def problems_of_space(study: Study) -> list[Problem]:
    """Every disagreement; empty when there is none."""
    problems = []
    for name, factor in study.space.items():
        at = ("space", name)
        problems += _of_bundle(study, name, factor) if factor.settings is not None else _of_factor(study, name, factor)
        problems += _of_assignment(study, (*at, "requires"), factor.requires, itself=name)
    return [*problems, *_of_constraints(study)]


def _of_factor(study: Study, name: str, factor: Factor) -> list[Problem]:
    at: Location = ("space", name)
    problems = []
    if name not in study.parameters:
        problems.append(Problem("is not among parameters", at, "give its baseline value there"))
    if name in study.locked:
        problems.append(Problem("is locked", at, "take it out of locked or out of space"))
    problems += _of_reach(study, at, name)
    if factor.scale == "log":
        values = [*(factor.levels or []), study.parameters.get(name)]
        problems += [
            Problem(f"a log scale needs values above 0, not {value}", at, "use scale: linear")
            for value in values
            if isinstance(value, int | float) and value <= 0
        ]
    return problems


def _of_bundle(study: Study, name: str, factor: Factor) -> list[Problem]:
    problems = []
    if name in study.parameters:
        problems.append(Problem("is the name of a parameter", ("space", name), "give the bundle a name of its own"))
    for label, setting in (factor.settings or {}).items():
        at = ("space", name, "settings", label)
        for parameter in setting:
            problems += _of_member(study, name, (*at, parameter))
        whole = factor.setting(label, study.parameters)
        problems += [
            Problem(f"is forbidden by forbid[{index}]", at, "take one of the two out")
            for index, forbidden in enumerate(study.forbid)
            if _is_sound(study, forbidden) and _holds(study, forbidden, whole)
        ]
    return problems


def _of_member(study: Study, bundle: str, at: Location) -> Iterator[Problem]:
    parameter = str(at[-1])
    if parameter not in study.parameters:
        yield Problem("is not among parameters", at, "give its baseline value there")
    if parameter in study.locked:
        yield Problem("is locked", at, "take it out of locked or out of the setting")
    yield from _of_reach(study, at, parameter)
    for other, factor in study.space.items():
        if other != bundle and (other == parameter or parameter in factor.parameters_set):
            yield Problem(f"is changed by the factor {other} as well", at, "leave it to one of the two")
            return


def _of_reach(study: Study, at: Location, parameter: str) -> Iterator[Problem]:
    if not study.reaches_runs(parameter):
        mend = f"write {{{parameter}}} where its value belongs in launcher.command"
        yield Problem("the command has no place for it", at, mend)


def _of_constraints(study: Study) -> Iterator[Problem]:
    for index, forbidden in enumerate(study.forbid):
        at: Location = ("forbid", index)
        found = list(_of_assignment(study, at, forbidden))
        yield from found
        if not forbidden:
            yield Problem("names no value", at, "write for example {precision: fp16, optimizer: adam8bit}")
        elif not found and _holds(study, forbidden, study.parameters):
            yield Problem("forbids the baseline itself", at, "correct it, or the values under parameters")


def _is_sound(study: Study, assignment: Mapping[str, Scalar]) -> bool:
    return bool(assignment) and not any(_of_assignment(study, (), assignment))


def _of_assignment(
    study: Study, at: Location, assignment: Mapping[str, Scalar], *, itself: str | None = None
) -> Iterator[Problem]:
    """Names nobody knows, and values that no configuration ever has."""
    for name, value in assignment.items():
        if name not in study.parameters and name not in study.space:
            yield Problem("is not among parameters", (*at, name), "name a parameter of this study", name)
        elif name == itself:
            yield Problem("is the factor itself", (*at, name), "name another parameter", name)
        elif (known := _values_of(study, name)) is not None and not any(same_value(value, one) for one in known):
            values = ", ".join(show(one) for one in known[:SHOWN])
            mend = f"it may be {values}{' …' if len(known) > SHOWN else ''}"
            yield Problem(f"is no value that {name} can have", (*at, name), mend, value)


def _values_of(study: Study, name: str) -> list[Scalar] | None:
    """Every value a parameter or bundle can have; None where the catalog may add some."""
    factor = study.space.get(name)
    if factor and factor.settings is not None:
        return list(factor.settings)
    bundled = [
        setting[name] for one in study.space.values() for setting in (one.settings or {}).values() if name in setting
    ]
    if name not in study.parameters or (not factor and not bundled and (study.catalog.match or study.catalog.include)):
        return None
    return [study.parameters[name], *(factor.values if factor else ()), *bundled]


def _holds(study: Study, assignment: Mapping[str, Scalar], parameters: Mapping[str, Scalar]) -> bool:
    """Whether `parameters` has every value of the assignment."""
    wanted = study.plain(assignment)
    return all(name in parameters and same_value(parameters[name], value) for name, value in wanted.items())
