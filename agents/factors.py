"""From the study's space, the catalog and the lessons to the ranked factors of the design."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nightlab.agents.context import Lab
from nightlab.configs.study import Factor, Scalar, Study, placeholders_in
from nightlab.knowledge.catalog import Technique, factor_levels, prior_effect
from nightlab.knowledge.lessons import current, read
from nightlab.knowledge.records import Lesson
from nightlab.search.history import RankedFactor
from nightlab.search.ranking import rank_factors

__all__ = ["lessons_for", "ranked", "space_of"]

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
            if name in space or not _is_free(study, name):
                continue
            baseline = study.parameters[name]
            levels = [v for v in factor_levels(technique, parameter, study.method) if _fits(v, baseline)]
            if levels:
                space[name] = _factor(technique, parameter, levels, baseline)
    return space


def _fits(level: Scalar, baseline: Scalar) -> bool:
    """Whether a value of the catalog is one for this parameter: of the baseline's sort, and no prose (`2-5x usual`)."""
    if isinstance(level, str) or isinstance(baseline, str):
        return isinstance(level, str) and isinstance(baseline, str) and " " not in level
    return isinstance(level, bool) is isinstance(baseline, bool)


def _is_free(study: Study, name: str) -> bool:
    """Whether an experiment may set the parameter, and the command would notice."""
    reaches = study.launcher.parameters.via != "template" or name in placeholders_in(study.launcher.command)
    return name in study.parameters and name not in study.locked and reaches


def _factor(technique: Technique, parameter: str, levels: list[Scalar], baseline: Scalar) -> Factor:
    values = (*levels, baseline)
    above_zero = all(isinstance(value, int | float) and value > 0 for value in values)
    scale = technique.params[parameter].scale if above_zero else "linear"
    return Factor(levels=levels, scale=scale, technique=technique.id)


def lessons_for(lab: Lab) -> list[Lesson]:
    """The lessons that speak to this study: not superseded, of its scenario and method."""
    told = current(read(lab.lessons_path).lessons)
    same = lab.study.scenario, lab.study.method
    return [lesson for lesson in told if (lesson.scenario, lesson.method) == same]


def ranked(lab: Lab, symptoms: Sequence[str], lessons: Sequence[Lesson]) -> tuple[RankedFactor, ...]:
    """The factors in the order they will be screened: tier, then prior with symptoms, then lessons."""
    space = space_of(lab)
    techniques = {name: lab.catalog.get(f.technique) for name, f in space.items() if f.technique}
    cures = {name: [s for s in symptoms if s in technique.symptoms] for name, technique in techniques.items()}
    factors = rank_factors(
        lab.study,
        space,
        tiers={name: technique.tier for name, technique in techniques.items()},
        priors={name: prior_effect(t) + SYMPTOM_BONUS * bool(cures[name]) for name, t in techniques.items()},
        lessons=lessons,
    )
    return tuple(_with_symptoms(factor, cures.get(factor.name, [])) for factor in factors)


def _with_symptoms(factor: RankedFactor, cures: list[str]) -> RankedFactor:
    return replace(factor, reason=f"{factor.reason}, against {' and '.join(cures)}") if cures else factor
