"""What is wrong with a run that ended well, seen in its own predictions and results: named findings with a remedy.

They explain and decide nothing. The best known: the evaluation loss is excellent and BLEU is poor, because the model
thinks aloud where the references do not.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from nightlab.tools.metrics.files import json_objects
from nightlab.tools.metrics.numbers import excerpt

__all__ = ["PREDICTIONS", "NamedFinding", "Prediction", "findings_of", "read_predictions"]

PREDICTIONS = "generated_predictions.jsonl"
MOST_PREDICTIONS, MOST_CHARACTERS = 500, 8192

LOW_LOSS_LOW_METRIC = "low_loss_low_metric"
EXCELLENT_LOSS = 0.5
"""Nats a token: the model is nearly sure of each token of the references, so it should write them."""
POOR = {"bleu-4": 10.0, "rouge-l": 15.0}
"""Out of 100."""
SHARE = 0.2
"""Of the predictions, from which on a fault is a finding."""
MOST_ZERO_SPREAD, MOST_CLIPPED = 0.8, 0.3

_THINKS = re.compile(r"\s*<(think|thinking|reasoning)>(?!\s*</\1>)", re.IGNORECASE)
_MARKUP = re.compile(
    r"<\|[a-z_]{2,30}\|>|</?s>|\[/?INST\]|<(?:start|end)_of_turn>|<\|?(?:eot|endoftext)\|?>|<｜[^｜]{1,30}｜>",
    re.IGNORECASE,
)
_EAST_ASIAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Prediction:
    predict: str
    label: str


@dataclass(frozen=True)
class NamedFinding:
    """One thing that is wrong, what shows it and what helps."""

    name: str
    evidence: str
    remedy: str
    symptoms: tuple[str, ...] = ()
    """Symptoms of the catalog."""

    def __str__(self) -> str:
        return f"{self.name}: {self.evidence} (remedy: {self.remedy})"


def read_predictions(path: Path) -> list[Prediction]:
    """The first 500 pairs of a file of predictions; none where it does not exist. Raises OSError."""
    if not path.is_file():
        return []
    return [*islice(_pairs(path), MOST_PREDICTIONS)]


def _pairs(path: Path) -> Iterator[Prediction]:
    for row in json_objects(path, "predict"):
        predict, label = row.get("predict", row.get("prediction")), row.get("label", row.get("reference"))
        if isinstance(predict, str) and isinstance(label, str):
            yield Prediction(predict[:MOST_CHARACTERS], label[:MOST_CHARACTERS])


def findings_of(values: Mapping[str, float], predictions: Sequence[Prediction] = ()) -> list[NamedFinding]:
    """What `values` (metric → value, by the trainer's names) and predictions show; without either nothing."""
    contrast = _low_metric(values)
    found = [finding for check in _CHECKS if (finding := check(predictions))] if predictions else []
    if contrast and not found:
        remedy = "look at the predictions before blaming hyperparameters: template, thinking, language, length"
        return [NamedFinding("low-loss-low-metric", contrast, remedy, (LOW_LOSS_LOW_METRIC,)), *_rewards(values)]
    if contrast:
        found = [_with_contrast(finding, contrast) for finding in found]
    return [*found, *_rewards(values)]


def _low_metric(values: Mapping[str, float]) -> str:
    """That a text metric is poor though the evaluation loss is excellent; '' where it is not so."""
    loss = values.get("eval_loss")
    if loss is None or not 0 <= loss <= EXCELLENT_LOSS:
        return ""
    for name, most in POOR.items():
        for split in ("predict", "eval", "test"):
            if (value := values.get(f"{split}_{name}")) is not None and value < most:
                return f"eval_loss is excellent ({loss:.3g}) while {split}_{name} is {value:.3g}"
    return ""


def _with_contrast(finding: NamedFinding, contrast: str) -> NamedFinding:
    symptoms = tuple(dict.fromkeys((*finding.symptoms, LOW_LOSS_LOW_METRIC)))
    return NamedFinding(finding.name, f"{contrast}: {finding.evidence}", finding.remedy, symptoms)


def _thinking(predictions: Sequence[Prediction]) -> NamedFinding | None:
    return _frequent(
        predictions,
        lambda one: bool(_THINKS.match(one.predict)) and not _THINKS.match(one.label),
        "thinking-left-on",
        "{} start with a thinking tag and no reference does",
        "enable_thinking: false for training, prediction and serving alike, or take the thoughts out before scoring",
        ("think_tags",),
    )


def _markup(predictions: Sequence[Prediction]) -> NamedFinding | None:
    return _frequent(
        predictions,
        lambda one: bool(_MARKUP.search(one.predict)) and not _MARKUP.search(one.label),
        "template-mismatch",
        "{} contain marks of a chat template that no reference has",
        "use the template of the model's family for training and prediction, and its end token as stop token",
        ("format_errors",),
    )


def _empty(predictions: Sequence[Prediction]) -> NamedFinding | None:
    return _frequent(
        predictions,
        lambda one: not one.predict.strip() and bool(one.label.strip()),
        "empty-predictions",
        "{} are empty",
        "check template and stop tokens, and that the prompt is not cut at cutoff_len",
        ("format_errors",),
    )


def _loops(predictions: Sequence[Prediction]) -> NamedFinding | None:
    return _frequent(
        predictions,
        lambda one: _repeats(one.predict) and not _repeats(one.label),
        "repetition",
        "{} end in a loop",
        "train on the end token (template, cutoff_len), lower learning rate or epochs; do not tune sampling first",
        ("repetition",),
    )


def _repeats(text: str) -> bool:
    """Whether the last half of a text is one short piece over and over."""
    tail = text.strip()[-240:]
    if len(tail) < 48:
        return False
    return any(tail[-48:] == (tail[-size:] * 48)[-48:] for size in range(1, 17))


def _same_answer(predictions: Sequence[Prediction]) -> NamedFinding | None:
    texts = [one.predict.strip() for one in predictions]
    common = max(set(texts), key=texts.count)
    labels = {one.label.strip() for one in predictions}
    count = texts.count(common)
    if len(predictions) < 10 or not common or count < 0.8 * len(texts) or len(labels) < 0.5 * len(texts):
        return None
    return NamedFinding(
        "one-answer-for-all",
        f"{count} of {len(texts)} predictions are the same, {excerpt(common)}, and the references differ",
        "lower the learning rate, and check that the prompt reaches the model (column names, cutoff_len)",
        ("underfit",),
    )


def _too_long(predictions: Sequence[Prediction]) -> NamedFinding | None:
    pairs = [(len(one.predict), len(one.label.strip())) for one in predictions if one.label.strip()]
    if len(pairs) < 10:
        return None
    ratio = statistics.median(predict / label for predict, label in pairs)
    if ratio < 3:
        return None
    return NamedFinding(
        "too-long",
        f"predictions are {ratio:.1f} times as long as the references (median)",
        "check that the end token is trained (template), and set max_new_tokens near the references' length",
        ("verbose",),
    )


def _other_script(predictions: Sequence[Prediction]) -> NamedFinding | None:
    return _frequent(
        predictions,
        lambda one: (
            _is_east_asian(one.predict) is not None
            and _is_east_asian(one.label) is not None
            and _is_east_asian(one.predict) != _is_east_asian(one.label)
        ),
        "other-language",
        "{} are in another script than their reference",
        "name the language in the prompt, and check the system prompt and the training data's language",
        ("shift",),
    )


def _is_east_asian(text: str) -> bool | None:
    """Whether most letters of a text are Chinese, Japanese or Korean; None for a text of few letters."""
    letters = len(_LETTER.findall(text))
    return None if letters < 4 else len(_EAST_ASIAN.findall(text)) * 2 > letters


def _frequent(
    predictions: Sequence[Prediction],
    is_faulty: Callable[[Prediction], bool],
    name: str,
    evidence: str,
    remedy: str,
    symptoms: tuple[str, ...],
) -> NamedFinding | None:
    faulty = [one for one in predictions if is_faulty(one)]
    if not faulty or len(faulty) < SHARE * len(predictions):
        return None
    said = evidence.format(f"{len(faulty)} of {len(predictions)} predictions")
    shown = f", e.g. {excerpt(faulty[0].predict.strip())}" if faulty[0].predict.strip() else ""
    return NamedFinding(name, said + shown, remedy, symptoms)


_CHECKS = (_thinking, _markup, _empty, _loops, _same_answer, _too_long, _other_script)


def _rewards(values: Mapping[str, float]) -> Iterator[NamedFinding]:
    """Of reinforcement learning: groups that teach nothing, answers that are cut off."""
    if (share := values.get("frac_reward_zero_std", 0.0)) >= MOST_ZERO_SPREAD:
        yield NamedFinding(
            "no-reward-spread",
            f"in {share:.0%} of the groups all answers have the same reward",
            "prompts of other difficulty, partial credit, larger groups, higher temperature",
            ("rl_zero_std",),
        )
    if (share := values.get("completions/clipped_ratio", 0.0)) > MOST_CLIPPED:
        yield NamedFinding(
            "completions-cut-off",
            f"{share:.0%} of the completions reach the length limit",
            "raise max_completion_length, or penalise length",
            ("rl_clipped",),
        )
