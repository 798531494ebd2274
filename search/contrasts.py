"""What one level does, from configurations that differ in nothing else: the sharpest answer where there is one."""

from __future__ import annotations

from collections import defaultdict

from scipy.special import chdtri

from nightlab.knowledge.records import Effect
from nightlab.search.effects import contrast_effect, standard_error
from nightlab.search.history import Cell
from nightlab.search.run_model import RunModel, Term

__all__ = ["direct_effect"]

AT_ODDS = 0.01
"""Chance that pairs of configurations with one common effect look so different."""


def direct_effect(model: RunModel, term: Term) -> Effect | None:
    """Improvement by a level over the baseline's, over all pairs of configurations that differ in it alone.

    Pairs count by the runs behind them. None without a pair, without knowledge of the noise, and where pairs in
    different company are at odds: then there is no one effect, and the mixed model tells what there is.
    """
    evidence, noise = model.evidence, model.evidence.noise
    by_terms = model.by_terms
    having = {
        terms: by_terms[terms]
        for terms in map(frozenset, map(model.terms_of, model.cells_with.get(term, ())))
        if terms in by_terms
    }
    pairs = [(cell, by_terms[terms - {term}]) for terms, cell in having.items() if terms - {term} in by_terms]
    if not pairs or not noise.degrees or noise.sd == 0:
        return None
    shares = [1 / standard_error(noise, len(ours.values), len(theirs.values)) ** 2 for ours, theirs in pairs]
    weights: dict[int, float] = defaultdict(float)
    cells: dict[int, Cell] = {}
    for share, (ours, theirs) in zip(shares, pairs, strict=True):
        weights[ours.number] += share / sum(shares)
        weights[theirs.number] -= share / sum(shares)
        cells |= {ours.number: ours, theirs.number: theirs}
    effect = contrast_effect(evidence.study, [(weights[number], cells[number].values) for number in cells], noise)
    gains = [_mean(ours) - _mean(theirs) for ours, theirs in pairs]
    middle = sum(share * gain for share, gain in zip(shares, gains, strict=True)) / sum(shares)
    spread = sum(share * (gain - middle) ** 2 for share, gain in zip(shares, gains, strict=True))
    at_odds = len(pairs) > 1 and spread > float(chdtri(len(pairs) - 1, AT_ODDS))
    return None if at_odds else effect


def _mean(cell: Cell) -> float:
    return sum(cell.values) / len(cell.values)
