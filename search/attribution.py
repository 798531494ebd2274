"""Attribution: what each factor does, over all its levels and all believable runs."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, VerdictKind
from nightlab.search.belief import discard_label, judge_all
from nightlab.search.evidence import Evidence
from nightlab.search.history import History, RankedFactor
from nightlab.search.orthogonal import MainEffect, main_effects
from nightlab.search.screening import screened

__all__ = ["FactorEffect", "factor_effects"]


@dataclass(frozen=True)
class FactorEffect:
    """What a factor does at one level, or overall (`level` None: its best level speaks for it)."""

    factor: str
    level: Scalar | None
    label: str
    """`confirmed`, `promising`, `without effect`, `no worthwhile gain`, `worse`, `failed`, `unknown`, `not tried`."""
    effect: Effect | None = None
    """Against the baseline with everything else as in the baseline."""
    main_effect: MainEffect | None = None
    """The average over the rows of the array, where the level was in it."""
    runs: int = 0
    technique: str | None = None


def factor_effects(study: Study, history: History) -> list[FactorEffect]:
    """For every factor in ranked order: overall first, then each level.

    A factor is `without effect` only when every level was tried and has its whole interval inside ±min_effect, in the
    single-change runs and, where it was in the array, in its main effect.
    """
    evidence = Evidence.of(study, history.trials)
    kept = {number for number, verdict in judge_all(study, history).items() if verdict.kind == VerdictKind.KEEP}
    array = {(main.factor, main.level): main for main in main_effects(study, history)}
    found: list[FactorEffect] = []
    for factor in screened(history.factors, study):
        levels = [_level(evidence, kept, factor, level, array.get((factor.name, level))) for level in factor.levels]
        found += [_overall(factor, levels), *levels]
    return found


def _level(
    evidence: Evidence, kept: Container[int], factor: RankedFactor, level: Scalar, main: MainEffect | None
) -> FactorEffect:
    cell = evidence.cell({factor.name: level})
    if cell is None or (cell.pending and not cell.values):
        return FactorEffect(factor.name, level, "not tried", main_effect=main, technique=factor.technique)
    effect = None if cell.rejected else evidence.effect(cell)
    if cell.number in kept:
        label = "confirmed"
    elif not cell.values and not cell.rejected:
        label = "failed"
    else:
        label = _label(effect, main, evidence.study.objective.min_effect)
    return FactorEffect(factor.name, level, label, effect, main, len(cell.values), factor.technique)


def _label(effect: Effect | None, main: MainEffect | None, line: float) -> str:
    if effect is None or effect.low is None:
        return "unknown"
    label = discard_label(effect, line) or ("promising" if effect.low > 0 else "unknown")
    if label == "without effect" and main and discard_label(main.effect, line) != label:
        return "unknown"
    return label


def _overall(factor: RankedFactor, levels: Sequence[FactorEffect]) -> FactorEffect:
    labels = {level.label for level in levels}
    tried = [level for level in levels if level.effect]
    runs = sum(level.runs for level in levels)
    if not tried:
        label = "failed" if labels == {"failed"} else "not tried" if labels == {"not tried"} else "unknown"
        return FactorEffect(factor.name, None, label, runs=runs, technique=factor.technique)
    best = max(tried, key=lambda level: level.effect.delta if level.effect else 0.0)
    if better := labels & {"confirmed", "promising"}:
        label = min(better)
    elif len(labels) == 1:
        label = labels.pop()
    else:
        label = "no worthwhile gain" if not labels & {"unknown", "not tried"} else "unknown"
    return FactorEffect(factor.name, None, label, best.effect, best.main_effect, runs, factor.technique)
