"""One score over one file of predictions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from nightlab.configs.scoring import PERCENT, ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.bad_cases import BadCase, Worst
from nightlab.tools.scoring.base import Indices, Mean, Scorer
from nightlab.tools.scoring.classes import Auc, MacroF1
from nightlab.tools.scoring.examples import Example, as_text, examples_of, key_of, names_between
from nightlab.tools.scoring.intervals import Interval, resampled
from nightlab.tools.scoring.overlap import is_valid_json, overlap_scorer
from nightlab.tools.scoring.ranking import ndcg_at, pass_at, reciprocal_rank
from nightlab.tools.scoring.rows import Rows
from nightlab.tools.scoring.texts import Language, TextRules, language_of

__all__ = ["Score", "Slice", "score_file"]

LOOKED_AT = 200
"""Examples by whose labels the language is told."""
MOST_SLICES = 20
OTHERS = "(others)"
ROUNDING = 1e-6
"""How far below the full score an example still counts as right."""


@dataclass(frozen=True)
class Slice:
    """A part of the examples with its own value; nan where none is defined."""

    name: str
    examples: int
    value: float
    interval: Interval | None


@dataclass
class Score:
    """A value with what it rests on."""

    settings: ScoringSettings
    scorer: Scorer
    language: Language
    rows: Rows
    keys: list[int | None] = field(default_factory=list)
    """What tells an example from others, as a digest: prompts are long."""
    own_values: list[float | None] = field(default_factory=list)
    """Of each example by itself, larger is better."""
    slice_of: list[str | None] = field(default_factory=list)
    bad_cases: list[BadCase] = field(default_factory=list)
    """Worst first."""

    @property
    def examples(self) -> int:
        return len(self.own_values)

    @property
    def _all(self) -> Indices:
        return np.arange(self.examples)

    @cached_property
    def value(self) -> float:
        """The score of all examples; finite."""
        return self.scorer.value(self._all)

    @cached_property
    def interval(self) -> Interval | None:
        """Over examples, not over seeds; None where there are too few."""
        return self._interval(self._all)

    def _interval(self, at: Indices) -> Interval | None:
        return resampled(self.scorer.value, at, resamples=self.scorer.resamples)

    @cached_property
    def slices(self) -> list[Slice]:
        """The largest slices, by name, and all others as one; none without `slice_by`."""
        if self.settings.slice_by is None:
            return []
        places: dict[str, list[int]] = {}
        for position, name in enumerate(self.slice_of):
            places.setdefault(name or "", []).append(position)
        largest = sorted(places, key=lambda name: -len(places[name]))
        rest = [position for name in largest[MOST_SLICES:] for position in places[name]]
        edges = self.settings.slice_edges
        shown = [name for name in names_between(edges) if name in places] if edges else sorted(largest[:MOST_SLICES])
        kept = {name: places[name] for name in shown} | ({OTHERS: rest} if rest else {})
        return [self._slice(name, np.array(positions)) for name, positions in kept.items()]

    def _slice(self, name: str, at: Indices) -> Slice:
        return Slice(name, len(at), self.scorer.value(at), self._interval(at))


def score_file(path: Path, settings: ScoringSettings) -> Score:
    """The score of the predictions in the JSONL file at `path`; texts are not kept, so memory grows slowly.

    Raises OSError, and MetricError with cause `metric-absent` (an empty file), `metric-unreadable` or
    `metric-not-finite` (a score that is not defined for these labels), without the file's name.
    """
    rows = Rows(path)
    examples = examples_of(rows, settings)
    first = list(islice(examples, LOOKED_AT))
    language = _language(settings, first)
    score = Score(settings, _scorer(settings, language), language, rows)
    _take_in(score, chain(first, examples))
    if not math.isfinite(score.value):
        raise MetricError(f"{settings.kind} is not defined: all labels are the same", cause="metric-not-finite")
    return score


def _take_in(score: Score, examples: Iterator[Example]) -> None:
    worst, full = Worst(score.settings.bad_cases), 100 if score.settings.kind in PERCENT else 1
    for example in examples:
        own = score.scorer.add(example)
        score.keys.append(None if example.name is None else key_of(example.name))
        score.own_values.append(own)
        score.slice_of.append(example.slice)
        if own is not None and own < full - ROUNDING:
            worst.add(own, example)
    score.bad_cases = worst.cases


def _language(settings: ScoringSettings, first: list[Example]) -> Language:
    if settings.language != "auto":
        return settings.language
    return language_of(as_text(example.label) for example in first)


def _scorer(settings: ScoringSettings, language: Language) -> Scorer:
    rules = TextRules.of(settings, language)
    match settings.kind:
        case "auc":
            return Auc()
        case "macro_f1":
            return MacroF1(rules)
        case "ndcg":
            return Mean(partial(ndcg_at, settings.k or 1))
        case "mrr":
            return Mean(reciprocal_rank)
        case "pass_at_k":
            return Mean(partial(pass_at, settings.k or 1))
        case "json_valid":
            return Mean(partial(is_valid_json, settings.required_keys, rules))
        case _:
            return overlap_scorer(settings, language)
