"""From the study's space, the catalog and the lessons to the ranked factors of the design."""

from __future__ import annotations

from collections.abc import Sequence

from nightlab.agents.context import Lab
from nightlab.configs.study import Factor
from nightlab.knowledge.catalog import Technique, factor_levels, prior_effect
from nightlab.knowledge.lessons import current, read
from nightlab.search.history import RankedFactor
from nightlab.search.ranking import rank_factors

__all__ = ["ranked", "space_of"]

# What a matching symptom adds to a technique's prior, once: it moves a technique within its tier, never across.
SYMPTOM_BONUS = 0.2


def space_of(lab: Lab) -> dict[str, Factor]:
    """The study's own factors, then those the catalog adds: parameters the baseline names and the study leaves free."""
    study, selection = lab.study, lab.study.catalog
    space = dict(study.space)
    wanted = [lab.catalog.get(name) for name in selection.include]
    if selection.match:
        wanted += lab.catalog.match(method=study.method)
    for technique in wanted:
        if technique.locked or technique.id in selection.exclude:
            continue
        for parameter in technique.params:
            name = selection.parameters.get(parameter, parameter)
            levels = factor_levels(technique, parameter, study.method)
            if name in study.parameters and name not in space and name not in study.locked and levels:
                space[name] = Factor(levels=list(levels), technique=technique.id)
    return space


def ranked(lab: Lab, symptoms: Sequence[str]) -> tuple[RankedFactor, ...]:
    """The factors in the order they will be screened: tier, then prior with symptoms, then lessons."""
    space = space_of(lab)
    techniques = {name: lab.catalog.get(f.technique) for name, f in space.items() if f.technique}
    return rank_factors(
        lab.study,
        space,
        tiers={name: technique.tier for name, technique in techniques.items()},
        priors={name: _prior(technique, symptoms) for name, technique in techniques.items()},
        lessons=current(read(lab.lessons_path).lessons),
    )


def _prior(technique: Technique, symptoms: Sequence[str]) -> float:
    return prior_effect(technique) + (SYMPTOM_BONUS if set(symptoms) & set(technique.symptoms) else 0.0)
