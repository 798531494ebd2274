"""A cheaper kind of run to look at single changes with: fewer steps, less data, a smaller model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from nightlab.configs.levels import same_value
from nightlab.configs.problems import Location, Problem
from nightlab.configs.section import Section
from nightlab.configs.values import Scalar

if TYPE_CHECKING:
    from nightlab.configs.study import Study

__all__ = ["FidelitySettings", "problems_of_fidelity"]


class FidelitySettings(Section):
    """Runs at low fidelity: single changes are first looked at by a cheaper run, beside the baseline run likewise."""

    parameter: str
    """Parameter that makes a run cheaper: steps, share of the data, size of the model. It is no factor, and may be
    locked: nothing but these runs changes it."""
    low: Scalar
    """Its value in a run at low fidelity; all others have the value under `parameters`."""
    cost: Annotated[float, Field(gt=0, lt=1)] | None = None
    """What a run at low fidelity takes, as a share of a whole one: so much of a run it counts in `budget.runs`. Without
    it the ratio of the two values."""

    def cost_of(self, parameters: Mapping[str, Scalar]) -> float | None:
        """The share of a whole run, from 0 to 1; None where neither it nor the ratio says."""
        full = parameters.get(self.parameter)
        numbers = [
            value for value in (self.low, full) if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        if self.cost is not None or len(numbers) < 2:
            return self.cost
        return numbers[0] / numbers[1] if 0 < numbers[0] < numbers[1] else None


def problems_of_fidelity(study: Study) -> Iterator[Problem]:
    """What is wrong with `search.fidelity` beside the rest of the study."""
    fidelity, at = study.search.fidelity, ("search", "fidelity")
    if fidelity is None:
        return
    name, at_name = fidelity.parameter, (*at, "parameter")
    if name not in study.parameters:
        yield Problem("is not among parameters", at_name, "add it to parameters or correct the name", name)
        return
    yield from _of_name(study, name, at_name)
    if same_value(fidelity.low, study.parameters[name]):
        yield Problem("is the baseline's own value", (*at, "low"), "give a cheaper one", fidelity.low)
    elif fidelity.cost_of(study.parameters) is None:
        mend = "set search.fidelity.cost to what such a run takes of a whole one, e.g. 0.25"
        yield Problem(f"does not say what it saves beside {study.parameters[name]}", (*at, "low"), mend, fidelity.low)


def _of_name(study: Study, name: str, at: Location) -> Iterator[Problem]:
    factors = [key for key, one in study.space.items() if name in (one.parameters_set if one.settings else [key])]
    if factors:
        yield Problem(f"is changed by the factor {factors[0]} too", at, "take one of the two out", name)
    if not study.reaches_runs(name):
        mend = f"write {{{name}}} where its value belongs in launcher.command"
        yield Problem("the command has no place for it", at, mend, name)
