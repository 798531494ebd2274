"""Techniques whose values follow from the study's own: the batch times k, the learning rate times a power of k."""

from __future__ import annotations

from collections.abc import Iterator

from nightlab.agents.context import Lab
from nightlab.agents.naming import own_name
from nightlab.configs.study import Scalar
from nightlab.knowledge.catalog import Technique
from nightlab.tools.launchers.names import EFFECTIVE_BATCH
from nightlab.tools.sizing.batch import effective_batch, names_of_batch
from nightlab.tools.sizing.configuration import configuration_of

__all__ = ["scaled_settings"]

Parameters = dict[str, Scalar]


def scaled_settings(lab: Lab, technique: Technique) -> list[Parameters]:
    """One setting for each multiple of the first of `together`, by the study's names; empty where it lacks one.

    A multiple that is no whole number where the baseline is one is left out, and so is an effective batch that
    processes × per-device batch does not divide.
    """
    parameters, (first, *others) = lab.study.parameters, technique.together
    name = _name(lab, first)
    powers = {own_name(lab.study, one): technique.params[one].power or 0.0 for one in others}
    if name is None or not all(_is_number(parameters.get(one)) for one in (name, *powers)):
        return []
    part = _part(lab, name) if first == EFFECTIVE_BATCH else 1
    found: list[Parameters] = []
    for times in technique.params[first].times or ():
        value = _times(parameters[name], times)
        if value is None or value % part:
            continue
        followed = {one: _followed(parameters[one], times**power) for one, power in powers.items()}
        found.append({name: value, **followed})
    return found


def _name(lab: Lab, parameter: str) -> str | None:
    """The study's name; of the effective batch also that of the accumulation or of the batch alone."""
    own = own_name(lab.study, parameter)
    if own in lab.study.parameters:
        return own
    usual = _names_of_batch(lab) if parameter == EFFECTIVE_BATCH else ()
    return next((name for name in usual if name in lab.study.parameters), None)


def _names_of_batch(lab: Lab) -> Iterator[str]:
    """What multiplies the effective batch, at best without more memory."""
    names = names_of_batch(configuration_of(lab.study, lab.paths.root))
    if names is not None:
        yield from (name for name in (names.total, names.accumulation, names.per_device) if name)


def _part(lab: Lab, name: str) -> int:
    """What a batch of this name must be a multiple of: the examples of one forward pass of all processes."""
    configuration = configuration_of(lab.study, lab.paths.root)
    names, batch = names_of_batch(configuration), effective_batch(configuration)
    if names is None or batch is None or name in (names.accumulation, names.per_device):
        return 1
    return batch.world_size * batch.per_device


def _is_number(value: Scalar | None) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _times(value: Scalar, times: float) -> int | float | None:
    """The multiple, of the baseline's own sort; None where a whole number has none."""
    product = float(value) * times
    if isinstance(value, int):
        return int(product) if product.is_integer() else None
    return _rounded(product)


def _followed(value: Scalar, factor: float) -> int | float:
    """What follows a multiple: the nearest whole number above 0 where the baseline is one."""
    product = float(value) * factor
    return max(1, round(product)) if isinstance(value, int) else _rounded(product)


def _rounded(value: float) -> float:
    """To four digits: what stands in a branch's name and a table can be read."""
    return float(f"{value:.4g}")
