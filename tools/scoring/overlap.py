"""How much a prediction's text has in common with the right answer's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.base import Column, Indices, Mean, Scorer
from nightlab.tools.scoring.examples import Example, as_text
from nightlab.tools.scoring.libraries import library
from nightlab.tools.scoring.texts import Language, TextRules

__all__ = ["Corpus", "is_valid_json", "labels_of", "overlap_scorer"]

MOST_WORDS = 2000
"""The longest common subsequence takes time and memory by the product of both lengths."""

TextScore = Callable[[str, list[str]], float]
"""Of a prediction and the right answers, cleaned."""


def labels_of(example: Example) -> list[str]:
    """The right answers. Raises MetricError for an empty list."""
    labels = example.label if isinstance(example.label, list) else [example.label]
    if not labels:
        raise MetricError(f"line {example.line}: the label is an empty list", cause="metric-unreadable")
    return [as_text(label) for label in labels]


def overlap_scorer(settings: ScoringSettings, language: Language) -> Scorer:
    """The scorer for a kind that compares text. Raises MetricError when its library is missing."""
    rules = TextRules.of(settings, language)
    if settings.kind in ("bleu", "chrf"):
        return Corpus(*_sacrebleu(settings.kind, language), rules)
    of = _text_score(settings.kind, rules)

    def compared(example: Example) -> float:
        return of(rules.clean(as_text(example.prediction)), [rules.clean(label) for label in labels_of(example)])

    return Mean(compared)


def _text_score(kind: str, rules: TextRules) -> TextScore:
    match kind:
        case "f1":
            return partial(_word_f1, rules)
        case "bleu_4":
            return _character_bleu()
        case "rouge_1" | "rouge_2" | "rouge_l":
            return _rouge(kind.replace("_l", "_L").replace("_", ""), rules)
        case _:
            return lambda prediction, labels: float(prediction in labels)


def _word_f1(rules: TextRules, prediction: str, labels: list[str]) -> float:
    """F1 of two bags of words (Rajpurkar et al. 2016, "SQuAD", section 6.1), for the label it suits best."""
    given = Counter(rules.words(prediction))
    return max(_f1(given, Counter(rules.words(label))) for label in labels)


def _f1(given: Counter[str], wanted: Counter[str]) -> float:
    total = given.total() + wanted.total()
    return 2 * (given & wanted).total() / total if total else 1.0


def _rouge(kind: str, rules: TextRules) -> TextScore:
    class Words:
        def tokenize(self, text: str) -> list[str]:
            return rules.words(text)[:MOST_WORDS]

    scorer = library("rouge_score.rouge_scorer").RougeScorer([kind], tokenizer=Words())

    def score(prediction: str, labels: list[str]) -> float:
        return 100 * float(scorer.score_multi(labels, prediction)[kind].fmeasure)

    return score


def _character_bleu() -> TextScore:
    """BLEU-4 over characters with NLTK's third smoothing, rounded to four digits: LLaMA-Factory's `bleu-4`."""
    bleu = library("nltk.translate.bleu_score")
    smoothing = bleu.SmoothingFunction().method3

    def score(prediction: str, labels: list[str]) -> float:
        value = bleu.sentence_bleu([list(label) for label in labels], list(prediction), smoothing_function=smoothing)
        return round(100 * float(value), 4)

    return score


def _sacrebleu(kind: str, language: Language) -> tuple[Any, Any]:
    """The metric for a corpus, and the one for a sentence alone."""
    module = library("sacrebleu.metrics")
    if kind == "chrf":
        return module.CHRF(), module.CHRF()
    tokenizer = "zh" if language == "zh" else "13a"
    # Without effective order a sentence below four words would have no value, however right it is.
    return module.BLEU(tokenize=tokenizer), module.BLEU(tokenize=tokenizer, effective_order=True)


class Corpus:
    """A score of sacrebleu over a whole corpus: counts of the examples are added up, then it is computed once."""

    resamples = 1000

    def __init__(self, metric: Any, of_sentence: Any, rules: TextRules) -> None:
        self._metric = metric
        self._of_sentence = of_sentence
        self._rules = rules
        self._counts = Column()

    def add(self, example: Example) -> float:
        prediction = self._rules.clean(as_text(example.prediction))
        references = [[self._rules.clean(label)] for label in labels_of(example)]
        # Not public, but what the library's own resampling works with: one list of counts a sentence.
        (counts,) = self._metric._extract_corpus_statistics([prediction], references)
        self._counts.add(counts)
        return float(self._of_sentence._compute_score_from_stats(list(counts)).score)

    def value(self, at: Indices) -> float:
        return float(self._metric._compute_score_from_stats(self._counts.at(at).sum(axis=0).tolist()).score)


def is_valid_json(required_keys: list[str], rules: TextRules, example: Example) -> float:
    """1.0 where the prediction is JSON as the standard has it, with required keys an object that has them."""
    try:
        value = json.loads(rules.clean(as_text(example.prediction)), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return 0.0
    return float(not required_keys or (isinstance(value, dict) and all(key in value for key in required_keys)))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
