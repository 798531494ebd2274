"""Scores of groups: candidates ranked for a query, samples drawn for a problem."""

from __future__ import annotations

from math import comb

import numpy as np

from nightlab.errors import MetricError
from nightlab.tools.scoring.classes import as_number, as_truth
from nightlab.tools.scoring.examples import Example
from nightlab.tools.scoring.libraries import library

__all__ = ["ndcg_at", "pass_at", "reciprocal_rank"]


def _ranked(example: Example) -> tuple[list[float], list[float]]:
    """How relevant each candidate is, and its score."""
    labels, scores = _listed(example, example.label, "label"), _listed(example, example.prediction, "prediction")
    if len(labels) != len(scores):
        raise MetricError(
            f"line {example.line}: {len(labels)} labels and {len(scores)} predictions are no pairs",
            cause="metric-unreadable",
        )
    return [as_number(example, label) for label in map(_counted, labels)], [as_number(example, s) for s in scores]


def _counted(label: object) -> object:
    return int(label) if isinstance(label, bool) else label


def _listed(example: Example, value: object, what: str) -> list[object]:
    if not isinstance(value, list) or not value:
        mend = "name the query's field in group_by, or write one row a query with lists"
        raise MetricError(f"line {example.line}: the {what} is no list ({mend})", cause="metric-unreadable")
    return value


def ndcg_at(k: int, example: Example) -> float:
    """Normalised discounted cumulative gain of the first `k` candidates; ties share their ranks."""
    labels, scores = _ranked(example)
    if len(labels) < 2:
        raise MetricError(
            f"line {example.line}: one candidate alone is no ranking ({example.name or 'its query'})",
            cause="metric-unreadable",
        )
    return float(library("sklearn.metrics").ndcg_score([labels], [scores], k=k))


def reciprocal_rank(example: Example) -> float:
    """1 ÷ rank of the first relevant candidate, 0 without one; among equal scores it stands last."""
    labels, scores = map(np.array, _ranked(example))
    relevant = scores[labels > 0]
    return float(1 / (scores >= relevant.max()).sum()) if len(relevant) else 0.0


def pass_at(k: int, example: Example) -> float:
    """Chance that at least one of `k` samples passes, from all samples of the problem, without bias.

    1 − C(n − c, k) ÷ C(n, k) (Chen et al. 2021, "Evaluating large language models trained on code").
    """
    samples = [as_truth(example, sample) for sample in _listed(example, example.prediction, "prediction")]
    if len(samples) < k:
        raise MetricError(
            f"line {example.line}: {len(samples)} samples are fewer than k = {k}", cause="metric-unreadable"
        )
    return 1 - comb(len(samples) - sum(samples), k) / comb(len(samples), k)
