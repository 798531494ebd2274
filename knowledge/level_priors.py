"""What the lessons of all studies say of a level: how often it was better than the value it replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nightlab.configs.levels import same_value
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.lessons import current
from nightlab.knowledge.model_size import model_size
from nightlab.knowledge.records import Lesson, VerdictKind, configuration_key

__all__ = ["LevelPrior", "LevelPriors", "prior_from"]

OTHER_SCENARIO = 0.25
"""Weight of a lesson of the same method in another scenario."""
OTHER_SIZE = 0.5
"""Weight where the base model was another one, not known to be of about the same size."""
OTHER_BASELINE = 0.5
"""Weight where the level replaced another value than it would now."""
SHARED_WIN = 0.5
"""What a confirmed combination says for each of its parts."""
HALF_LIFE_DAYS = 180.0
SIZE_RATIO = 2.0


@dataclass(frozen=True)
class LevelPrior:
    """Weighted counts for one level; a lesson of this scenario, this base model and lately weighs 1."""

    wins: float = 0.0
    """It was confirmed to be better."""
    losses: float = 0.0
    """It was worse, failed, or, for half, was without effect."""
    kept: int = 0
    """Lessons that confirmed it, whatever their weight."""


@dataclass(frozen=True)
class LevelPriors:
    """What lessons say of every change they tell of."""

    _by_change: dict[str, LevelPrior] = field(default_factory=dict)

    def of(self, change: Mapping[str, Scalar]) -> LevelPrior:
        """What is known of changing exactly these parameters to these values."""
        return self._by_change.get(configuration_key(change), LevelPrior())


def prior_from(lessons: Iterable[Lesson], study: Study) -> LevelPriors:
    """What the lessons of the study's method say; superseded ones, and those of other methods, say nothing.

    A bad combination blames none of its parts; a lesson whose winner is today's baseline speaks against going back.
    """
    told = [lesson for lesson in current(lessons) if lesson.method == study.method]
    newest = max((lesson.time for lesson in told), default=None)
    found: dict[str, LevelPrior] = {}
    for lesson in told:
        age_days = (newest - lesson.time).total_seconds() / 86400 if newest else 0.0
        weight = _likeness(lesson, study) * 0.5 ** (age_days / HALF_LIFE_DAYS)
        for change, win, loss in _says(lesson, study):
            key = configuration_key(change)
            old, confirms = found.get(key, LevelPrior()), lesson.verdict is VerdictKind.KEEP and win > loss
            found[key] = LevelPrior(old.wins + weight * win, old.losses + weight * loss, old.kept + confirms)
    return LevelPriors(found)


def _likeness(lesson: Lesson, study: Study) -> float:
    scenario = 1.0 if lesson.scenario == study.scenario else OTHER_SCENARIO
    return scenario * (1.0 if _alike(lesson, study) else OTHER_SIZE)


def _alike(lesson: Lesson, study: Study) -> bool:
    """Whether the base model was the same, or one of about the same size."""
    if lesson.base_model == study.base_model:
        return True
    here = study.sizes.model_parameters or model_size(study.base_model)
    there = model_size(lesson.base_model_size or lesson.base_model)
    return bool(here and there) and 1 / SIZE_RATIO <= (here or 0.0) / (there or 1.0) <= SIZE_RATIO


def _says(lesson: Lesson, study: Study) -> list[tuple[Mapping[str, Scalar], float, float]]:
    """Each change the lesson speaks of, with its share of a win and of a loss."""
    win, loss = _outcome(lesson)
    before = {name: lesson.baseline[name] for name in lesson.parameters if name in lesson.baseline}
    if len(before) == len(lesson.parameters) and _agree(lesson.parameters, study.parameters):
        # It tells of the way back: what was worse is better undone, what was without effect is so both ways.
        return [(before, loss if lesson.label == "worse" else 0.0, win)]
    share = 1.0 if _agree(before, study.parameters) else OTHER_BASELINE
    parts = [({name: value}, SHARED_WIN * share * win, 0.0) for name, value in lesson.parameters.items()]
    return [(lesson.parameters, share * win, share * loss), *(parts if len(parts) > 1 and win else [])]


def _agree(some: Mapping[str, Scalar], parameters: Mapping[str, Scalar]) -> bool:
    return all(name in parameters and same_value(parameters[name], value) for name, value in some.items())


def _outcome(lesson: Lesson) -> tuple[float, float]:
    """Shares of a win and of a loss."""
    match lesson.verdict:
        case VerdictKind.KEEP:
            return 1.0, 0.0
        case VerdictKind.DISCARD:
            return 0.0, 0.5 if lesson.label == "without effect" else 1.0
        case VerdictKind.PRUNED | VerdictKind.FAILED:
            return 0.0, 1.0
    low = lesson.effect.low if lesson.effect else None
    promising = lesson.verdict is VerdictKind.INCONCLUSIVE and low is not None and low > 0
    return (0.5 if promising else 0.0), 0.0
