"""Statements in log lines: what states a value, and what only looks like it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from nightlab.errors import MetricError
from nightlab.tools.metrics.lines import line_outcomes, statements

STATED: list[tuple[str, str, list[float]]] = [
    ("val_bpb", "val_bpb:          2.345678", [2.345678]),
    ("val_bpb", "val_bpb = 2.3", [2.3]),
    ("val_bpb", "val_bpb=2.3", [2.3]),
    ("val_bpb", "  val_bpb\t:\t2.3", [2.3]),
    ("val_bpb", "step 100 | loss=0.5 | val_bpb: 2.3", [2.3]),
    ("val_bpb", "step 5/10 loss 0.4 val_bpb: 2.3, lr: 1e-3", [2.3]),
    ("val_bpb", "step10 val_bpb:2.3", [2.3]),
    ("val_bpb", "epoch=3 val_bpb=2.3", [2.3]),
    ("val_bpb", "12.5s val_bpb=2.3", [2.3]),
    ("val_bpb", "final val_bpb: 2.3", [2.3]),
    ("val_bpb", "loss: 0.5 and val_bpb: 2.3 at step 7", [2.3]),
    ("val_bpb", "loss: nan val_bpb: 2.3", [2.3]),
    ("val_bpb", "val_bpb: 2.3 (best)", [2.3]),
    ("val_bpb", "val_bpb: 2.3 ± 0.1", [2.3]),
    ("val_bpb", "val_bpb: 2.3.", [2.3]),
    ("val_bpb", "**val_bpb**: **2.3**", [2.3]),
    ("val_bpb", "New val_bpb (see below), val_bpb: 2.3; val_bpb: 2.4", [2.3, 2.4]),
    ("val_bpb", "best: 2.1 | val_bpb: 2.3", [2.3]),
    ("val_bpb", "best=2.1, val_bpb=2.3", [2.3]),
    ("val_bpb", "best 2.1 | val_bpb: 2.3", [2.3]),
    ("val_bpb", "max memory 5 GB, val_bpb: 2.3", [2.3]),
    ("val_bpb", "wandb: val_bpb: 2.3", [2.3]),
    ("loss", "10/10 - 1s - loss: 0.5 - val_loss: 0.4", [0.5]),
    ("loss", "100%|██████| 5/5 [00:00<00:00, 156.17it/s, loss=0.5]", [0.5]),
    ("loss", "INFO:root:loss=0.5", [0.5]),
    ("loss", "2026-01-01 12:00:00,123 INFO loss: 0.5", [0.5]),
    ("loss", "2026-01-01 12:00:00 | INFO | __main__:main:10 - loss: 0.5", [0.5]),
    ("loss", "I0101 12:00:00.0 123 train.py:45] loss: 0.5", [0.5]),
    ("loss", "[rank0]: loss: 0.5", [0.5]),
    ("loss", "[1,0]<stdout>:loss: 0.5", [0.5]),
    ("loss", "(RayTrainWorker pid=123) loss: 0.5", [0.5]),
    ("loss", "{'loss': 0.5, 'epoch': 1.0}", [0.5]),
    ("loss", "{'loss': '0.5', 'epoch': '1'}", [0.5]),
    ("epoch", "{'loss': '0.5', 'epoch': '1'}", [1.0]),
    ("loss", '{"loss":0.5,"acc":1}', [0.5]),
    ("loss", "metrics: {'loss': np.float64(0.5)}", [0.5]),
    ("loss", "loss: tensor(0.5, device='cuda:0')", [0.5]),
    ("loss", "loss: loss=0.5", [0.5]),
    ("loss", "loss: 0.5,acc: 0.9", [0.5]),
    ("val/loss", "val/loss: 0.5", [0.5]),
    ("eval.accuracy", "eval.accuracy = 45%", [45.0]),
    ("train loss", "step 3: train loss: 0.5, val loss: 0.6", [0.5]),
    ("ndcg@10", "ndcg@10: 0.5", [0.5]),
    ("trainable", "trainable: 1,234,567", [1234567.0]),
    ("f-1", "f-1: .5", [0.5]),
]

PASSED_OVER: list[tuple[str, str]] = [
    ("bpb", "val_bpb: 2.3"),
    ("loss", "val/loss: 0.5"),
    ("loss", "eval.loss: 0.5"),
    ("loss", "eval:loss=0.5"),
    ("loss", "--loss=0.5"),
    ("loss", "Δloss: 0.5"),
    ("loss", "loss_scale: 1024"),
    ("loss", "loss/train: 0.5"),
    ("recall", "recall@10: 0.5"),
    ("val_bpb", "best val_bpb so far: 2.1"),
    ("val_bpb", "val_bpb improved from 2.5 to 2.3"),
    ("val_bpb", "best val_bpb: 2.1"),
    ("val_bpb", "Best: epoch=5 val_bpb=2.1"),
    ("val_bpb", "Best model at step 500, val_bpb: 2.1"),
    ("val_bpb", "best (val_bpb: 2.1)"),
    ("val_bpb", "[best] val_bpb=2.1"),
    ("val_bpb", "previous val_bpb: 2.1"),
    ("val_bpb", "target: val_bpb=2.0"),
    ("val_bpb", "improvement in val_bpb: 0.2"),
    ("val_bpb", "delta: val_bpb=-0.2"),
    ("val_bpb", "val_bpb: 2.5 -> 2.3"),
    ("val_bpb", "val_bpb: 2.5 → 2.3"),
    ("val_bpb", "val_bpb: 2.5 to 2.3"),
    ("val_bpb", "val_bpb: improved from 2.5 to 2.3"),
    ("val_bpb", "val_bpb: lower is better"),
    ("val_bpb", "val_bpb == 2.0"),
    ("val_bpb", "val_bpb => 2.0"),
    ("val_bpb", "val_bpb < 2.0"),
    ("val_bpb", "val_bpb:"),
    ("loss", "step 3: train loss: 0.5, val loss: 0.6"),
    ("acc", "top1 acc: 0.5"),
    ("loss", "{'eval': {'loss': 0.5}, 'train': {'loss': 0.9}}"),
    ("loss", "loss: cross_entropy"),
    ("accuracy", "accuracy = evaluate(model, 0.5)"),
]


@pytest.mark.parametrize(("name", "line", "values"), STATED)
def test_a_statement_is_read(name: str, line: str, values: list[float]) -> None:
    assert [statement.outcome() for statement in statements(line, name)] == values


@pytest.mark.parametrize(("name", "line"), PASSED_OVER)
def test_a_look_alike_is_passed_over(name: str, line: str) -> None:
    assert statements(line, name) == []


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("loss: 0,95", "metric-ambiguous"),
        ("loss: 0,95, acc: 0,5", "metric-ambiguous"),
        ("loss: 0.5,0.6", "metric-ambiguous"),
        ("loss: 3/10", "metric-ambiguous"),
        ("loss: 3 / 10", "metric-ambiguous"),
        ("loss: [0.5, 0.6]", "metric-ambiguous"),
        ("loss: (0.5, 0.6)", "metric-ambiguous"),
        ("loss: 1 000 000", "metric-ambiguous"),
        ("loss: 1\u00a0000", "metric-ambiguous"),
        ("loss: ~0.5", "metric-ambiguous"),
        ("loss: <0.01", "metric-ambiguous"),
        ("loss: 2.3s", "metric-ambiguous"),
        ("loss: 0:00:09", "metric-ambiguous"),
        ("loss: 2.3loss: 2.3", "metric-ambiguous"),
        ("loss: nan", "metric-not-finite"),
        ("{'loss': nan}", "metric-not-finite"),
        ("loss: -inf, x: 1", "metric-not-finite"),
        ("loss=None", "metric-not-finite"),
        ("loss: n/a", "metric-not-finite"),
    ],
)
def test_what_starts_like_a_number_is_read_or_refused(line: str, cause: str) -> None:
    outcome = statements(line, "loss")[0].outcome()
    assert isinstance(outcome, MetricError)
    assert outcome.cause == cause


@pytest.fixture
def log(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "stdout.log"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_look_alike_is_named_when_nothing_else_is_there(log: Callable[[str], Path]) -> None:
    with pytest.raises(MetricError, match=r"'best loss: 0\.5' was passed over") as caught:
        list(line_outcomes(log("best loss: 0.5\n"), "loss"))
    assert caught.value.cause == "metric-absent"


def test_a_name_stated_for_several_splits_is_ambiguous(log: Callable[[str], Path]) -> None:
    text = "train: loss=0.9\neval: loss=0.5\n"
    with pytest.raises(MetricError, match="eval loss, train loss") as caught:
        list(line_outcomes(log(text), "loss"))
    assert caught.value.cause == "metric-ambiguous"


def test_a_name_with_its_split_may_stand_behind_another(log: Callable[[str], Path]) -> None:
    assert list(line_outcomes(log("eval: val_loss=0.9\ntest: val_loss=0.5\n"), "val_loss")) == [0.9, 0.5]


def test_a_line_of_thousands_of_statements_is_judged_throughout() -> None:
    many = ", ".join(f'{{"step": {n}, "loss": {n}}}' for n in range(4000))
    assert [statement.text for statement in statements(many, "loss")] == [str(n) for n in range(4000)]
    assert len(statements("loss=1 " * 30_000, "loss")) == 30_000
    assert len(statements("loss=1 " * 20_000 + "best was before, loss=1 " * 20_000, "loss")) == 20_000
    assert statements("target then" + " x" * 300 + ": loss=1 loss=1; loss=2", "loss")[0].text == "2"
    last = statements("train: loss=1 | " + "x " * 600 + "eval: " + "x " * 600 + "| loss=2", "loss")[-1]
    assert (last.text, last.scope) == ("2", "eval")
