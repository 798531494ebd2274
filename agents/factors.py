"""From the study's space, the catalog and the lessons to the ranked factors of the design."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nightlab.agents.brain import Advice
from nightlab.agents.context import Lab
from nightlab.agents.design import Design
from nightlab.agents.space import fits, forbidden_in, own_name, space_of
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.catalog import Technique, factor_levels, prior_effect
from nightlab.knowledge.lessons import current, read
from nightlab.knowledge.records import Lesson
from nightlab.search.history import RankedFactor
from nightlab.search.ranking import rank_factors

__all__ = ["design_of", "lessons_for", "ranked"]

# What a matching symptom adds to a technique's prior, once: it moves a technique within its tier, never across.
SYMPTOM_BONUS = 0.2
# What a model's first choice gets at most, likewise: less than what any measured symptom says.
ADVICE_BONUS = 0.1


def design_of(lab: Lab, symptoms: Sequence[str], lessons: Sequence[Lesson], *, advice: Advice | None = None) -> Design:
    """The design that study, catalog, symptoms and lessons make; a model's advice orders within a tier."""
    return Design(ranked(lab, symptoms, lessons, advice=advice), forbidden_in(lab, space_of(lab)), advice)


def lessons_for(lab: Lab) -> list[Lesson]:
    """The lessons that speak to this study: not superseded, of its method; those of other scenarios weigh less.

    What it learned itself is no lesson to it: its own runs say that already.
    """
    begun = lab.ledger.study_row().started_at
    known = (one for one in current(read(lab.lessons_path).lessons) if one.method == lab.study.method)
    return [one for one in known if one.study != lab.study.study or begun is None or one.time < begun]


def ranked(
    lab: Lab, symptoms: Sequence[str], lessons: Sequence[Lesson], *, advice: Advice | None = None
) -> tuple[RankedFactor, ...]:
    """The factors in the order they will be screened: tier, then prior with symptoms and advice, then lessons."""
    space = space_of(lab)
    techniques = {name: lab.catalog.get(f.technique) for name, f in space.items() if f.technique}
    cures = {name: [s for s in symptoms if s in technique.symptoms] for name, technique in techniques.items()}
    places = _places(techniques, advice)
    factors = rank_factors(
        lab.study,
        space,
        tiers={name: technique.tier for name, technique in techniques.items()},
        priors={
            name: prior_effect(t) + SYMPTOM_BONUS * bool(cures[name]) + ADVICE_BONUS * places.get(name, 0.0)
            for name, t in techniques.items()
        },
        typical={name: _usual(lab.study, name, technique) for name, technique in techniques.items()},
        lessons=lessons,
    )
    told = (_with_symptoms(factor, cures.get(factor.name, [])) for factor in factors)
    return tuple(_with_advice(factor, advice, factor.name in places) for factor in told)


def _places(techniques: Mapping[str, Technique], advice: Advice | None) -> dict[str, float]:
    """Factor → 1 for the technique a model ranks first of those in the space, falling to near 0 for its last."""
    used = {technique.id for technique in techniques.values()}
    ranking = [one.technique for one in (advice.ranking if advice else ()) if one.technique in used]
    shares = {name: 1 - place / len(ranking) for place, name in enumerate(ranking)}
    return {name: shares[technique.id] for name, technique in techniques.items() if technique.id in shares}


def _usual(study: Study, name: str, technique: Technique) -> list[Scalar]:
    """The catalog's values for a factor; none for a bundle, and where the technique has no such parameter."""
    named = [one for one in technique.params if own_name(study, one) == name]
    # A factor may have a name of its own where the technique has but one parameter.
    parameter = next(iter(named or (technique.params if len(technique.params) == 1 else ())), None)
    if parameter is None or name not in study.parameters:
        return []
    return [v for v in factor_levels(technique, parameter, study.method) if fits(v, study.parameters[name])]


def _with_symptoms(factor: RankedFactor, cures: list[str]) -> RankedFactor:
    return replace(factor, reason=f"{factor.reason}, against {' and '.join(cures)}") if cures else factor


def _with_advice(factor: RankedFactor, advice: Advice | None, is_ranked: bool) -> RankedFactor:
    return replace(factor, reason=f"{factor.reason}, ranked by {advice.model}") if advice and is_ranked else factor
