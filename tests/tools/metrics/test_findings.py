"""What predictions and results show to be wrong with a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nightlab.configs.metric_source import MetricSource
from nightlab.knowledge.catalog import load_catalog
from nightlab.tools.metrics.findings import Prediction, findings_of, read_predictions
from nightlab.tools.metrics.summary import findings_in, last_values
from tests.tools.metrics.recorded import printed, recorded

LABELS = [f"affordable running shoes in city {number}" for number in range(20)]
GOOD = [Prediction(label, label) for label in LABELS]


def answered(texts: Iterable[str], labels: Sequence[str] = LABELS) -> list[Prediction]:
    return [Prediction(text, label) for text, label in zip(texts, labels, strict=False)]


@pytest.mark.parametrize(
    ("predictions", "name", "symptom"),
    [
        (answered(f"<think>\nThe user wants {label}" for label in LABELS), "thinking-left-on", "think_tags"),
        (answered(f" <thinking>hm</thinking>{label}" for label in LABELS), "thinking-left-on", "think_tags"),
        (answered(f"{label}<|im_end|>\n<|im_start|>user" for label in LABELS), "template-mismatch", "format_errors"),
        (answered(f"[INST] {label} [/INST]" for label in LABELS), "template-mismatch", "format_errors"),
        (answered(f"{label}<end_of_turn>" for label in LABELS), "template-mismatch", "format_errors"),
        (answered("" for _ in LABELS), "empty-predictions", "format_errors"),
        (answered(f"{label[:9]} {'shoes ' * 40}" for label in LABELS), "repetition", "repetition"),
        (answered("best rated phone" for _ in LABELS), "one-answer-for-all", "underfit"),
        (answered(f"{label} {label.upper()} or {label[::-1]} anyway" for label in LABELS), "too-long", "verbose"),
        (answered(f"城市{n}平价跑步鞋推荐" for n, _ in enumerate(LABELS)), "other-language", "shift"),
    ],
)
def test_a_fault_of_the_predictions_is_named_with_its_remedy(
    predictions: list[Prediction], name: str, symptom: str
) -> None:
    found = {finding.name: finding for finding in findings_of({}, predictions)}
    assert name in found
    assert symptom in found[name].symptoms
    assert found[name].remedy in str(found[name])
    assert "\n" not in str(found[name])


@pytest.mark.parametrize(
    "predictions",
    [
        [],
        GOOD,
        answered(f"<think>\n\n</think>\n\n{label}" for label in LABELS),
        answered([f"<think>hm {label}" for label in LABELS], [f"<think>hm {label}" for label in LABELS]),
        [*GOOD, Prediction("<think>once", "x")],
        answered(["yes"] * 20, ["yes", "no"] * 10),
        answered(["a", "b"], ["one much longer label", "another"]),
        answered([f"{label} 北京" for label in LABELS]),
        answered(["ab" * 20] * 3, ["c"] * 3),
    ],
)
def test_good_predictions_have_no_finding(predictions: list[Prediction]) -> None:
    assert findings_of({"eval_loss": 0.9, "predict_bleu-4": 40.0}, predictions) == []


POOR = {"eval_loss": 0.05, "predict_bleu-4": 1.82, "predict_rouge-l": 5.12}


def test_an_excellent_loss_with_a_poor_bleu_is_explained_where_it_can_be() -> None:
    (finding,) = findings_of(POOR, answered(f"<think>\nhm, {label}" for label in LABELS))
    assert finding.name == "thinking-left-on"
    assert "eval_loss is excellent (0.05) while predict_bleu-4 is 1.82" in finding.evidence
    assert "enable_thinking: false" in finding.remedy
    assert finding.symptoms == ("think_tags", "low_loss_low_metric")


@pytest.mark.parametrize("predictions", [[], answered(label[::-1] for label in LABELS)])
def test_and_named_where_it_cannot(predictions: list[Prediction]) -> None:
    (finding,) = findings_of(POOR, predictions)
    assert (finding.name, finding.symptoms) == ("low-loss-low-metric", ("low_loss_low_metric",))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"eval_loss": 0.05},
        {"eval_loss": 0.05, "predict_bleu-4": 46.3},
        {"eval_loss": 2.5, "predict_bleu-4": 1.8},
        {"eval_loss": -1.0, "predict_bleu-4": 1.8},
        {"predict_bleu-4": 1.8},
        {"eval_loss": 0.05, "loss": 0.0},
    ],
)
def test_a_poor_bleu_alone_is_no_finding(values: dict[str, float]) -> None:
    assert findings_of(values, GOOD) == []


def test_rewards_that_teach_nothing_are_findings() -> None:
    found = findings_of({"frac_reward_zero_std": 0.95, "completions/clipped_ratio": 0.5, "reward": 1.0})
    assert [finding.name for finding in found] == ["no-reward-spread", "completions-cut-off"]
    assert findings_of({"frac_reward_zero_std": 0.2, "completions/clipped_ratio": 0.1}) == []


def test_every_symptom_is_one_of_the_catalogs() -> None:
    known = load_catalog().meta.symptoms
    faults = [
        *findings_of(POOR),
        *findings_of({"frac_reward_zero_std": 1.0, "completions/clipped_ratio": 1.0}),
        *findings_of(POOR, answered("" for _ in LABELS)),
        *findings_of(POOR, answered("<think>best <|im_end|> rated " + "x" * 400 for _ in LABELS)),
        *findings_of(POOR, answered(f"城市{n}平价跑步鞋推荐" for n, _ in enumerate(LABELS))),
    ]
    assert {symptom for finding in faults for symptom in finding.symptoms} <= known.keys()
    assert len({finding.name for finding in faults}) > 6


def test_recorded_runs_have_the_findings_they_earn(tmp_path: Path) -> None:
    source = MetricSource(kind="trainer")
    for name in ("sft", "full", "dpo", "div", "pred"):
        assert findings_in(recorded(f"llamafactory/{name}", tmp_path / name), source) == []
    (clipped,) = findings_in(recorded("trl/grpo", tmp_path / "grpo"), source)
    assert clipped.name == "completions-cut-off"
    predicted = recorded("llamafactory/pred", tmp_path / "pred")
    assert len(read_predictions(predicted.output / "generated_predictions.jsonl")) == 12
    assert last_values(predicted, predicted.output)["predict_bleu-4"] == 44.876065


def test_predictions_of_an_earlier_run_say_nothing_of_this_one(tmp_path: Path) -> None:
    rows = "".join(json.dumps({"predict": "<think>", "label": label}) + "\n" for label in LABELS)
    files = printed("", tmp_path, {"generated_predictions.jsonl": rows})
    assert [finding.name for finding in findings_in(files, MetricSource())] != []
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    os.utime(files.output / "generated_predictions.jsonl", (long_ago.timestamp(), long_ago.timestamp()))
    assert findings_in(replace(files, started_at=datetime.now(UTC)), MetricSource()) == []


def test_broken_predictions_are_passed_over(tmp_path: Path) -> None:
    rows = (
        '{"predict": "a", "label": 7}\n{"predict": \n[1]\nnull\n{"predict": "b", "label": "b"}\n{"predict": "c", "lab'
    )
    files = printed("", tmp_path, {"generated_predictions.jsonl": rows})
    assert read_predictions(files.output / "generated_predictions.jsonl") == [Prediction("b", "b")]
    assert read_predictions(files.output / "none.jsonl") == []
