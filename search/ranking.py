"""Which factor is tried first, and which of its values: tier, then expected usefulness, then what lessons say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.records import Lesson, VerdictKind
from nightlab.search.history import RankedFactor
from nightlab.search.space import is_ordered, levels_of, same_value

__all__ = ["rank_factors"]

DEFAULT_TIER = 3
DEFAULT_PRIOR = 0.5
LESSON_WEIGHT = 0.25


@dataclass(frozen=True)
class _Told:
    """What lessons of the same scenario and method say of one factor's values."""

    confirmed: tuple[Scalar, ...] = ()
    no_better: tuple[Scalar, ...] = ()

    def place(self, level: Scalar) -> int:
        """0: confirmed before, try first; 1: nothing known; 2: found worse, useless or failing, try last."""
        if any(same_value(level, value) for value in self.confirmed):
            return 0
        return 2 if any(same_value(level, value) for value in self.no_better) else 1


def rank_factors(
    study: Study,
    space: Mapping[str, Factor],
    *,
    tiers: Mapping[str, int],
    priors: Mapping[str, float],
    lessons: Sequence[Lesson] = (),
) -> tuple[RankedFactor, ...]:
    """The factors of `space` in the order to screen them, each with its values in the order to try them.

    `tiers` (1 to 6) and `priors` (expected usefulness 0 to 1: evidence and symptoms) go by factor name and come from
    the catalog; a tier in the study file overrides. Locked parameters and factors without a value to try are left out.
    """
    current = _current(study, lessons)
    ranked = [
        _rank(study, name, factor, tiers.get(name), priors.get(name, DEFAULT_PRIOR), _told(current, name))
        for name, factor in space.items()
        if name not in study.locked and name in study.parameters
    ]
    tryable = [factor for factor in ranked if factor.levels]
    return tuple(sorted(tryable, key=lambda factor: (factor.tier, -factor.score)))


def _current(study: Study, lessons: Sequence[Lesson]) -> list[Lesson]:
    superseded = {old for lesson in lessons for old in lesson.supersedes}
    same = (study.scenario, study.method)
    return [one for one in lessons if one.id not in superseded and (one.scenario, one.method) == same]


def _told(lessons: Sequence[Lesson], name: str) -> _Told:
    kept = [one for one in lessons if name in one.parameters and one.verdict == VerdictKind.KEEP]
    # A bad combination does not say which of its changes was bad; a bad single change does.
    alone = [one for one in lessons if list(one.parameters) == [name]]
    bad = [one for one in alone if one.verdict in (VerdictKind.DISCARD, VerdictKind.FAILED)]
    return _Told(tuple(one.parameters[name] for one in kept), tuple(one.parameters[name] for one in bad))


def _rank(study: Study, name: str, factor: Factor, tier: int | None, prior: float, told: _Told) -> RankedFactor:
    baseline = study.parameters[name]
    ordered = is_ordered(factor, baseline)
    levels = levels_of(factor, baseline)
    if ordered:
        levels = _nearest_first(levels, float(baseline))
    places = [told.place(level) for level in levels]
    confirmed = places.count(0)
    useless = bool(levels) and all(place == 2 for place in places)
    tier = factor.tier or tier or DEFAULT_TIER
    return RankedFactor(
        name=name,
        levels=tuple(sorted(levels, key=told.place)),
        ordered=ordered,
        log=factor.scale == "log",
        technique=factor.technique,
        tier=tier,
        score=prior + LESSON_WEIGHT * (min(confirmed, 2) - useless),
        requires=dict(factor.requires),
        reason=_reason(tier, prior, confirmed, places.count(2)),
    )


def _nearest_first(levels: Sequence[Scalar], baseline: float) -> tuple[Scalar, ...]:
    """The next value above, the next below, then the farther ones in the same way."""
    above = sorted((level for level in levels if float(level) > baseline), key=float)
    below = sorted((level for level in levels if float(level) < baseline), key=float, reverse=True)
    steps = max(len(above), len(below))
    return tuple(side[step] for step in range(steps) for side in (above, below) if step < len(side))


def _reason(tier: int, prior: float, confirmed: int, no_better: int) -> str:
    parts = [f"tier {tier}", f"prior {prior:.2f}"]
    if confirmed:
        parts.append(f"lessons confirmed {confirmed} of its values")
    if no_better:
        parts.append(f"lessons found {no_better} of its values no better")
    return ", ".join(parts)
