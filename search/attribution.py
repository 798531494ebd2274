"""Attribution: what each factor does, over all its levels and all believable runs, in whatever company they ran."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Verdict, VerdictKind
from nightlab.search.belief import BEHIND, describe, discard_label, judge_all
from nightlab.search.contrasts import direct_effect
from nightlab.search.history import Cell, History, RankedFactor
from nightlab.search.orthogonal import MainEffect, main_effects
from nightlab.search.run_model import Interaction, RunModel, Term, term_name
from nightlab.search.screening import screened
from nightlab.search.space import variable_slug

__all__ = ["FactorEffect", "Move", "factor_effects", "interactions", "move_of", "moves_of", "verdict_on_move"]


@dataclass(frozen=True)
class FactorEffect:
    """What a factor does at one level, or overall (`level` None: its best level speaks for it)."""

    factor: str
    level: Scalar | None
    label: str
    """`confirmed`, `promising`, `without effect`, `no worthwhile gain`, `worse`, `clearly behind` (ended early),
    `failed`, `unknown`, `not tried`."""
    effect: Effect | None = None
    """Against the baseline's level, everything else equal: from configurations that differ in nothing else where that
    is sharper, else from all runs; None where the runs do not determine it."""
    main_effect: MainEffect | None = None
    """The average over the rows of the array, where the level was in it."""
    runs: int = 0
    technique: str | None = None
    likely: float | None = None
    """The effect shrunk towards those of all levels: what the luck of the best leaves of it, in the metric's unit."""
    importance: float | None = None
    """Overall only: its share of the differences between the configurations that were tried, 0 to 1."""
    confounded_with: tuple[str, ...] = ()
    """What always changed together with it, `width 128`, so that nobody can tell which of them did it."""
    interactions: tuple[str, ...] = ()
    """Levels of other factors with which it does clearly more or less than the two add up to."""


@dataclass(frozen=True)
class Move:
    """The one variable by which a configuration differs from the one it started from."""

    factor: str
    before: Scalar | None
    """None: the baseline's level."""
    after: Scalar | None
    parent: int
    """Number of the configuration it started from."""
    changed: dict[str, Scalar]
    """The parameters that differ from it, with their values now."""
    replaced: dict[str, Scalar]
    """The same parameters with the values before."""
    effect: Effect | None
    """Of this variable alone, from all runs."""
    technique: str | None = None


def factor_effects(study: Study, history: History) -> list[FactorEffect]:
    """For every factor in ranked order: overall first, then each level.

    A factor is `without effect` only when every level was tried and has its whole interval inside ±min_effect, over
    all runs and, where it was in the array, in its main effect.
    """
    model = RunModel.of(study, history)
    kept = {number for number, verdict in judge_all(study, history).items() if verdict.kind == VerdictKind.KEEP}
    array = {(main.factor, main.level): main for main in main_effects(study, history)}
    found: list[FactorEffect] = []
    for factor in _shown(model, study, history):
        levels = [_level(model, kept, factor, level, array.get((factor.name, level))) for level in factor.levels]
        found += [_overall(model, factor, levels), *levels]
    return found


def _shown(model: RunModel, study: Study, history: History) -> list[RankedFactor]:
    """The factors that mean something at the baseline, or did in some configuration that ran."""
    at_baseline = {factor.name for factor in screened(history.factors, study)} | {name for name, _ in model.terms}
    return [factor for factor in history.factors if factor.name in at_baseline]


def interactions(study: Study, history: History) -> list[Interaction]:
    """The pairs of levels that clearly do not add up, the clearest first."""
    return list(RunModel.of(study, history).interactions)


def _level(
    model: RunModel, kept: Container[int], factor: RankedFactor, level: Scalar, main: MainEffect | None
) -> FactorEffect:
    term, evidence = (factor.name, level), model.evidence
    cells = [cell for cell in model.cells_with.get(term, ()) if cell.changed]
    if not any(cell.values or not cell.pending for cell in cells):
        return FactorEffect(factor.name, level, "not tried", main_effect=main, technique=factor.technique)
    effect = _sharpest(direct_effect(model, term), model.effect(term))
    alone = next((cell for cell in cells if len(model.terms_of(cell)) == 1), None)
    if alone and alone.number in kept:
        label = "confirmed"
    elif not any(cell.values or cell.rejected for cell in cells):
        label = "failed" if any(cell.failures for cell in cells) else BEHIND
    else:
        label = _label(effect, main, evidence.study.objective.min_effect)
    return FactorEffect(
        factor.name,
        level,
        label,
        effect,
        main,
        model.runs_of(term),
        factor.technique,
        likely=model.likely(term),
        confounded_with=model.confounded_with(term),
        interactions=_partners(model, term),
    )


def _sharpest(*effects: Effect | None) -> Effect | None:
    """The effect with the narrowest interval; the last one where none has any."""
    bounded = [(one.high - one.low, one) for one in effects if one and one.low is not None and one.high is not None]
    return min(bounded, key=lambda entry: entry[0])[1] if bounded else effects[-1]


def _partners(model: RunModel, term: Term) -> tuple[str, ...]:
    pairs = [(one.one, one.other) for one in model.interactions if term in (one.one, one.other)]
    return tuple(term_name(other if one == term else one) for one, other in pairs)


def _label(effect: Effect | None, main: MainEffect | None, line: float) -> str:
    if effect is None or effect.low is None:
        return "unknown"
    label = discard_label(effect, line) or ("promising" if effect.low > 0 else "unknown")
    if label == "without effect" and main and discard_label(main.effect, line) != label:
        return "unknown"
    return label


def _overall(model: RunModel, factor: RankedFactor, levels: Sequence[FactorEffect]) -> FactorEffect:
    labels = {level.label for level in levels}
    tried = [level for level in levels if level.effect]
    runs = sum(level.runs for level in levels)
    if not tried:
        label = labels.pop() if len(labels) == 1 and labels <= {"failed", "not tried", BEHIND} else "unknown"
        return FactorEffect(factor.name, None, label, runs=runs, technique=factor.technique)
    best = max(tried, key=lambda level: level.effect.delta if level.effect else 0.0)
    if better := labels & {"confirmed", "promising"}:
        label = min(better)
    elif len(labels) == 1:
        label = labels.pop()
    else:
        label = "no worthwhile gain" if not labels & {"unknown", "not tried"} else "unknown"
    return FactorEffect(
        factor.name,
        None,
        label,
        best.effect,
        best.main_effect,
        runs,
        factor.technique,
        likely=best.likely,
        importance=model.importances.get(factor.name),
        confounded_with=best.confounded_with,
        interactions=tuple(dict.fromkeys(name for level in levels for name in level.interactions)),
    )


def move_of(study: Study, history: History, number: int, variable: str = "") -> Move | None:
    """By which one variable a configuration left an earlier one, and what that variable does.

    Of several earlier ones that whose step is `variable` (the slug of what was under test), then the one with the best
    mean: the incumbent of the time, by all that is known now. None for the baseline, and where no earlier configuration
    differs in one factor only.
    """
    model = RunModel.of(study, history)
    return _move(model, _terms_by_cell(model), number, variable)


def moves_of(study: Study, history: History, variables: Mapping[int, str]) -> dict[int, Move]:
    """`move_of` for each of `variables` (number → slug) where more than one factor differs from the baseline."""
    model = RunModel.of(study, history)
    terms = _terms_by_cell(model)
    several = {cell.number for cell, levels in terms if len(levels) > 1}
    found = {number: _move(model, terms, number, variables[number]) for number in variables if number in several}
    return {number: move for number, move in found.items() if move}


def _terms_by_cell(model: RunModel) -> list[tuple[Cell, dict[str, Scalar]]]:
    return [(cell, dict(model.terms_of(cell))) for cell in model.evidence.cells]


def _move(model: RunModel, terms: list[tuple[Cell, dict[str, Scalar]]], number: int, variable: str) -> Move | None:
    study = model.evidence.study
    place = next((i for i, (cell, _) in enumerate(terms) if cell.number == number), None)
    if place is None:
        return None
    cell_here, here = terms[place]
    steps = [(cell, _step(here, there)) for cell, there in terms[:place] if cell.values]
    near = [(cell, step) for cell, step in steps if step]
    if not near:
        return None
    named = [(cell, step) for cell, step in near if _slug(study, step) == variable]
    parent, (factor, before, after) = max(named or near, key=lambda entry: _sign(study) * fmean(entry[0].values))
    effect = model.effect(_term(factor, after), _term(factor, before))
    was, now = parent.parameters, cell_here.parameters
    changed = {name: value for name, value in now.items() if name not in was or value != was[name]}
    replaced = {name: was[name] for name in changed if name in was}
    technique = next((one.technique for one in model.factors if one.name == factor), None)
    return Move(factor, before, after, parent.number, changed, replaced, effect, technique)


def _slug(study: Study, step: tuple[str, Scalar | None, Scalar | None]) -> str:
    factor, _, after = step
    return variable_slug(factor, study.parameters.get(factor, "off") if after is None else after)


def verdict_on_move(study: Study, verdict: Verdict, move: Move) -> Verdict:
    """What an experiment's verdict comes to for the one variable it moved; never a win, which is the whole's."""
    if verdict.kind in (VerdictKind.FAILED, VerdictKind.REJECTED, VerdictKind.PRUNED):
        return verdict
    kind, label, effect = VerdictKind.INCONCLUSIVE, "unknown", move.effect
    if effect and effect.low is not None:
        worthless = discard_label(effect, study.objective.min_effect)
        kind = VerdictKind.DISCARD if worthless else kind
        label = worthless or ("promising" if effect.low > 0 else "too close to call")
    reason = f"{describe(effect)} for this variable alone, from all runs" if effect else "nobody can tell it apart"
    return verdict.model_copy(update={"kind": kind, "label": label, "effect": effect, "reason": reason})


def _step(here: dict[str, Scalar], there: dict[str, Scalar]) -> tuple[str, Scalar | None, Scalar | None] | None:
    """The factor, and its levels there and here, where exactly one differs."""
    if abs(len(here) - len(there)) > 1:
        return None
    differing = [name for name in {**there, **here} if here.get(name) != there.get(name)]
    return (differing[0], there.get(differing[0]), here.get(differing[0])) if len(differing) == 1 else None


def _term(factor: str, level: Scalar | None) -> Term | None:
    return None if level is None else (factor, level)


def _sign(study: Study) -> float:
    return 1.0 if study.maximize else -1.0
