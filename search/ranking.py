"""Which factor is tried first, and which of its values: tier, then expected usefulness, then chances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nightlab.configs.levels import same_value
from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.level_priors import LevelPrior, LevelPriors, prior_from
from nightlab.knowledge.records import Lesson
from nightlab.search.chances import BY_LAW, EVEN, catalog_chance, nearest_to, posterior_chance
from nightlab.search.history import RankedFactor
from nightlab.search.levels import changed_from
from nightlab.search.scaling import law_values
from nightlab.search.space import is_ordered, levels_of

__all__ = ["rank_factors"]

DEFAULT_TIER = 3
DEFAULT_PRIOR = 0.5


def rank_factors(
    study: Study,
    space: Mapping[str, Factor],
    *,
    tiers: Mapping[str, int],
    priors: Mapping[str, float],
    typical: Mapping[str, Sequence[Scalar]] | None = None,
    lessons: Sequence[Lesson] = (),
) -> tuple[RankedFactor, ...]:
    """The factors of `space` in the order to screen them, each with its values in the order to try them.

    `tiers` (1 to 6), `priors` (expected usefulness 0 to 1: evidence and symptoms) and `typical` (values usual for this
    method) go by factor name and come from the catalog; a tier in the study file overrides. Factors that would change a
    locked or unknown parameter, and those without a value to try, are left out.
    """
    known = _Known(study, tiers, priors, typical or {}, prior_from(lessons, study), law_values(study))
    ranked = [known.ranked(name, factor) for name, factor in space.items() if _is_open(study, name, factor)]
    return tuple(sorted((one for one in ranked if one.levels), key=lambda factor: (factor.tier, -factor.score)))


def _is_open(study: Study, name: str, factor: Factor) -> bool:
    parameters = [name] if factor.settings is None else factor.parameters_set
    return all(one in study.parameters and one not in study.locked for one in parameters)


@dataclass(frozen=True)
class _Level:
    """One value of a factor, or one setting of a bundle."""

    value: Scalar
    sets: dict[str, Scalar]
    """What it changes of the baseline."""
    told: LevelPrior
    chance: float


@dataclass(frozen=True)
class _Known:
    """All that is known before the first run, by factor name."""

    study: Study
    tiers: Mapping[str, int]
    priors: Mapping[str, float]
    typical: Mapping[str, Sequence[Scalar]]
    lessons: LevelPriors
    laws: Mapping[str, float]

    def ranked(self, name: str, factor: Factor) -> RankedFactor:
        levels = self._levels(name, factor)
        levels = sorted(levels, key=lambda level: -level.chance)
        tier = factor.tier or self.tiers.get(name) or DEFAULT_TIER
        prior = self.priors.get(name, DEFAULT_PRIOR)
        best = max((level.chance for level in levels), default=EVEN)
        told = any(level.chance != EVEN for level in levels)
        return RankedFactor(
            name=name,
            levels=tuple(level.value for level in levels),
            ordered=factor.settings is None and is_ordered(factor, self.study.parameters[name]),
            log=factor.scale == "log",
            technique=factor.technique,
            tier=tier,
            score=prior + best - EVEN,
            requires=self.study.plain(factor.requires),
            also=() if factor.settings is None else tuple(level.sets for level in levels),
            chances=tuple(level.chance for level in levels) if told else (),
            reason=self._reason(name, tier, prior, levels),
        )

    def _levels(self, name: str, factor: Factor) -> list[_Level]:
        if factor.settings is not None:
            return self._settings(name, factor)
        baseline = self.study.parameters[name]
        values = levels_of(factor, baseline)
        if is_ordered(factor, baseline):
            values = _nearest_first(values, float(baseline))
        by_law = nearest_to(self.laws[name], values, baseline) if name in self.laws else None
        found = []
        for value in values:
            told = self.lessons.of({name: value})
            prior = self._by_catalog(name, factor, value, baseline)
            prior = BY_LAW if by_law is not None and same_value(value, by_law) else prior
            found.append(_Level(value, {name: value}, told, posterior_chance(prior, told)))
        return found

    def _settings(self, name: str, factor: Factor) -> list[_Level]:
        """The settings that change something, each once, with every parameter the bundle sets."""
        parameters = self.study.parameters
        whole = {label: factor.setting(label, parameters) for label in factor.settings or {}}
        # A technique's setting is what the technique is; the baseline is without it.
        prior = catalog_chance(True, False, [True], self.priors.get(name, 0.0))
        found: list[_Level] = []
        for label, sets in whole.items():
            changed = changed_from(self.study, sets)
            if changed and all(changed_from(self.study, one.sets) != changed for one in found):
                told = self.lessons.of(changed)
                found.append(_Level(label, sets, told, posterior_chance(prior, told)))
        return found

    def _by_catalog(self, name: str, factor: Factor, value: Scalar, baseline: Scalar) -> float:
        usual = self.typical.get(name, ())
        usefulness = self.priors.get(name, DEFAULT_PRIOR)
        return catalog_chance(value, baseline, usual, usefulness, log=factor.scale == "log") if usual else EVEN

    def _reason(self, name: str, tier: int, prior: float, levels: Sequence[_Level]) -> str:
        parts = [f"tier {tier}", f"prior {prior:.2f}"]
        if name in self.laws:
            parts.append(f"the scaling law says {self.laws[name]:.2g}")
        if confirmed := sum(level.told.kept > 0 for level in levels):
            parts.append(f"lessons confirmed {confirmed} of its values")
        if worse := sum(level.told.losses > level.told.wins for level in levels):
            parts.append(f"lessons found {worse} of its values no better")
        return ", ".join(parts)


def _nearest_first(levels: Sequence[Scalar], baseline: float) -> tuple[Scalar, ...]:
    """The next value above, the next below, then the farther ones in the same way."""
    above = sorted((level for level in levels if float(level) > baseline), key=float)
    below = sorted((level for level in levels if float(level) < baseline), key=float, reverse=True)
    steps = max(len(above), len(below))
    return tuple(side[step] for step in range(steps) for side in (above, below) if step < len(side))
