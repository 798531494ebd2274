"""What the runs say together: the mixed model of a history, by factor and level."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect
from nightlab.search.additive import Fit, fit_additive, next_interaction
from nightlab.search.effects import shrunk
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History, RankedFactor
from nightlab.search.levels import holds, setting

__all__ = ["Interaction", "RunModel", "Term", "term_name"]

MOST_INTERACTIONS = 3
CLEAR = 2.0
"""Standard errors of a level's own effect from which its interactions are looked for."""

Matrix = NDArray[np.float64]
Term = tuple[str, Scalar]
"""A factor at one of its levels, or a parameter that no factor stands for at one of its values."""


@dataclass(frozen=True)
class Interaction:
    """Two levels that together do clearly more (above 0) or less than their effects add up to."""

    one: Term
    other: Term
    effect: Effect


def _terms(cell: Cell, levels: Sequence[tuple[Term, Mapping[str, Scalar]]]) -> tuple[Term, ...]:
    """The levels a configuration is at, and its changes that belong to none of them."""
    found = [(term, wanted) for term, wanted in levels if any(name in cell.changed for name in wanted)]
    found = [(term, wanted) for term, wanted in found if holds(wanted, cell.parameters)]
    covered = {name for _, wanted in found for name in wanted}
    return (*(term for term, _ in found), *((n, value) for n, value in cell.changed.items() if n not in covered))


def term_name(term: Term) -> str:
    """`width 128`."""
    return f"{term[0]} {term[1]}"


@dataclass(frozen=True)
class RunModel:
    """The mixed model of a history's runs."""

    evidence: Evidence
    factors: tuple[RankedFactor, ...]

    @classmethod
    def of(cls, study: Study, history: History) -> RunModel:
        return cls(Evidence.of(study, history.trials), history.factors)

    @cached_property
    def _cells(self) -> list[Cell]:
        return [cell for cell in self.evidence.cells if cell.values and not cell.rejected]

    def terms_of(self, cell: Cell) -> tuple[Term, ...]:
        """What a configuration changes, by factor and level."""
        return self._terms_by_number[cell.number]

    @cached_property
    def _terms_by_number(self) -> dict[int, tuple[Term, ...]]:
        study = self.evidence.study
        levels = [((one.name, level), setting(study, one, level)) for one in self.factors for level in one.levels]
        return {cell.number: _terms(cell, levels) for cell in self.evidence.cells}

    @cached_property
    def cells_with(self) -> Mapping[Term, list[Cell]]:
        """The configurations with each term, those without a value among them, in the order they were planned."""
        found: dict[Term, list[Cell]] = defaultdict(list)
        for cell in self.evidence.cells:
            for term in self.terms_of(cell):
                found[term].append(cell)
        return found

    @cached_property
    def by_terms(self) -> dict[frozenset[Term], Cell]:
        """The configurations with a value by all their terms."""
        return {frozenset(self.terms_of(cell)): cell for cell in self._cells}

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """Every term of a configuration with a value, in the order they first ran."""
        return tuple(dict.fromkeys(term for cell in self._cells for term in self.terms_of(cell)))

    @cached_property
    def _by_cell(self) -> Matrix:
        """One row a configuration, 1 where it has the term."""
        places = {term: place for place, term in enumerate(self.terms)}
        found = np.zeros((len(self._cells), len(places)))
        for row, cell in enumerate(self._cells):
            found[row, [places[term] for term in self.terms_of(cell)]] = 1.0
        return found

    @cached_property
    def _rows(self) -> list[int]:
        return [index for index, cell in enumerate(self._cells) for _ in cell.values]

    @cached_property
    def _fitted(self) -> tuple[Fit, tuple[tuple[int, int], ...]]:
        """The model and the pairs of terms that interact in it, in the order of its last columns."""
        sign = 1.0 if self.evidence.study.maximize else -1.0
        runs = [trial for cell in self._cells for trial in cell.trials if trial.usable is not None]
        values = np.array([sign * (trial.usable or 0.0) for trial in runs])
        values -= values.mean()
        plain = self._by_cell[self._rows]
        pairs: list[tuple[int, int]] = []
        while True:
            together = [plain[:, a] * plain[:, b] for a, b in pairs]
            design = np.column_stack([np.ones(len(values)), plain, *together])
            fit = fit_additive(values, design, self._rows, [trial.seed for trial in runs])
            candidates = [pair for pair in self._candidates(fit) if pair not in pairs]
            columns = (
                np.array([plain[:, a] * plain[:, b] for a, b in candidates]).reshape(len(candidates), len(values)).T
            )
            best = next_interaction(fit, columns) if len(pairs) < MOST_INTERACTIONS else None
            if best is None:
                return fit, tuple(pairs)
            pairs.append(candidates[best])

    def _candidates(self, fit: Fit) -> list[tuple[int, int]]:
        """Pairs of terms that ran together, one of which has a clear effect of its own (weak heredity)."""
        clear = [i for i, _ in enumerate(self.terms) if self._is_clear(fit, i + 1)]
        both = self._by_cell.T @ self._by_cell
        return [
            (a, b)
            for a in range(len(self.terms))
            for b in range(a + 1, len(self.terms))
            if both[a, b] and (a in clear or b in clear) and self.terms[a][0] != self.terms[b][0]
        ]

    @staticmethod
    def _is_clear(fit: Fit, column: int) -> bool:
        contrast = np.eye(len(fit.coefficients))[column]
        return fit.is_determined(contrast) and abs(fit.coefficients[column]) > CLEAR * fit.error(contrast)

    def effect(self, after: Term | None, before: Term | None = None) -> Effect | None:
        """What going from one term to another does (None: the baseline's level); None where nobody can tell."""
        if not self._cells or any(term is not None and term not in self.terms for term in (after, before)):
            return None
        fit, _ = self._fitted
        contrast = np.zeros(len(fit.coefficients))
        for term, weight in ((after, 1.0), (before, -1.0)):
            if term is not None:
                contrast[1 + self.terms.index(term)] += weight
        return self._effect(contrast, self.runs_of(after), self.runs_of(before))

    def runs_of(self, term: Term | None) -> int:
        """Believable runs with a term; None: of the baseline itself."""
        if term is None:
            return len(self.evidence.baseline.values)
        return sum(len(cell.values) for cell in self.cells_with.get(term, ()) if not cell.rejected)

    def _effect(self, contrast: Matrix, runs: int, baseline_runs: int) -> Effect | None:
        fit, _ = self._fitted
        study = self.evidence.study
        if not fit.is_determined(contrast):
            return None
        delta, error = float(contrast @ fit.coefficients), fit.error(contrast)
        if abs(delta) < 1e-12 * max(1.0, float(np.abs(fit.coefficients).max())):
            delta = 0.0
        confidence = study.search.confidence
        half = float(stdtrit(fit.degrees, 0.5 + confidence / 2)) * error if fit.degrees else None
        return Effect(
            delta=delta,
            low=None if half is None else delta - half,
            high=None if half is None else delta + half,
            confidence=confidence,
            unit=study.objective.unit,
            runs=runs,
            baseline_runs=baseline_runs,
        )

    @cached_property
    def _tried(self) -> dict[Term, tuple[float, float]]:
        """Coefficient and standard error of every term that the runs determine."""
        fit, _ = self._fitted
        unit = np.eye(len(fit.coefficients))
        return {
            term: (float(fit.coefficients[i]), fit.error(unit[i]))
            for i, term in enumerate(self.terms, 1)
            if fit.is_determined(unit[i])
        }

    def likely(self, term: Term) -> float | None:
        """The effect of a term shrunk towards those of all terms; None where nobody can tell."""
        if not self._cells or term not in self._tried or not self._fitted[0].degrees:
            return None
        return shrunk(*self._tried[term], list(self._tried.values()))

    def confounded_with(self, term: Term) -> tuple[str, ...]:
        """The terms that always changed together with it."""
        if not self._cells or term not in self.terms or term in self._tried:
            return ()
        columns = self._fitted[0].mixed_with(1 + self.terms.index(term))
        return tuple(term_name(self.terms[i - 1]) for i in columns if i <= len(self.terms))

    @cached_property
    def interactions(self) -> tuple[Interaction, ...]:
        """The pairs of terms that clearly do not add up, the clearest first."""
        if not self._cells:
            return ()
        fit, pairs = self._fitted
        found = []
        for column, (a, b) in enumerate(pairs, 1 + len(self.terms)):
            runs = int((self._by_cell[self._rows][:, a] * self._by_cell[self._rows][:, b]).sum())
            effect = self._effect(np.eye(len(fit.coefficients))[column], runs, self.runs_of(None))
            if effect:
                found.append(Interaction(self.terms[a], self.terms[b], effect))
        return tuple(found)

    @cached_property
    def importances(self) -> dict[str, float]:
        """Factor → its share of the modelled differences between configurations (permutation importance).

        In an additive model, permuting one factor over the configurations costs twice the variance of its part.
        """
        if not self._cells or len(self._cells) < 3:
            return {}
        likely = np.array([self.likely(term) or 0.0 for term in self.terms])
        parts = self._by_cell * likely
        names = dict.fromkeys(term[0] for term in self.terms)
        spread = {
            name: float(parts[:, [i for i, term in enumerate(self.terms) if term[0] == name]].sum(axis=1).var())
            for name in names
        }
        total = sum(spread.values())
        return {name: part / total for name, part in spread.items()} if total > 0 else {}
