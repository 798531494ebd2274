"""Scores of classes: a prediction is one of a few labels, or a number that tells two classes apart."""

from __future__ import annotations

import numpy as np

from nightlab.errors import MetricError
from nightlab.tools.metrics.numbers import excerpt
from nightlab.tools.scoring.base import Column, Indices
from nightlab.tools.scoring.examples import Example, as_text
from nightlab.tools.scoring.libraries import library
from nightlab.tools.scoring.texts import TextRules

__all__ = ["Auc", "MacroF1", "as_number", "as_truth"]

TRUTHS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}


def as_number(example: Example, value: object) -> float:
    """The finite number that a row states. Raises MetricError with cause `metric-unreadable`."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else np.nan
    except (ValueError, OverflowError):
        number = np.nan
    if not np.isfinite(number):
        raise _unreadable(example, value, "a finite number")
    return number


def as_truth(example: Example, value: object) -> int:
    """0 or 1. Raises MetricError with cause `metric-unreadable`."""
    truth = TRUTHS.get(as_text(value).strip().lower())
    if truth is None:
        raise _unreadable(example, value, "0, 1, true or false")
    return truth


def _unreadable(example: Example, value: object, wanted: str) -> MetricError:
    return MetricError(f"line {example.line}: {excerpt(as_text(value))} is not {wanted}", cause="metric-unreadable")


class Auc:
    """Area under the ROC curve."""

    resamples = 200

    def __init__(self) -> None:
        self._metrics = library("sklearn.metrics")
        self._truths = Column()
        self._scores = Column()

    def add(self, example: Example) -> None:
        self._truths.add(as_truth(example, example.label))
        self._scores.add(as_number(example, example.prediction))

    def value(self, at: Indices) -> float:
        truths, scores = self._truths.at(at), self._scores.at(at)
        return float(self._metrics.roc_auc_score(truths, scores)) if 0 < truths.sum() < len(truths) else np.nan


class MacroF1:
    """Mean over the classes among the labels of each one's F1; any other prediction is simply wrong."""

    resamples = 200

    def __init__(self, rules: TextRules) -> None:
        self._metrics = library("sklearn.metrics")
        self._rules = rules
        self._codes: dict[str, int] = {}
        self._labels = Column()
        self._predictions = Column()

    def add(self, example: Example) -> float:
        if isinstance(example.label, list):
            raise _unreadable(example, example.label, "one class")
        label, prediction = self._code(example.label), self._code(example.prediction)
        self._labels.add(label)
        self._predictions.add(prediction)
        return float(label == prediction)

    def _code(self, value: object) -> int:
        return self._codes.setdefault(self._rules.clean(as_text(value)), len(self._codes))

    def value(self, at: Indices) -> float:
        labels, predictions = self._labels.at(at), self._predictions.at(at)
        classes = np.unique(labels)
        score = self._metrics.f1_score(labels, predictions, labels=classes, average="macro", zero_division=0)
        return float(score)
