"""A metric followed step by step in a growing file."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from nightlab.configs.study import MetricSource
from nightlab.tools.metrics.series import LONGEST_LINE, MOST_POINTS, SeriesTail, StepValue

LINES = MetricSource()


def read(
    tmp_path: Path, text: str, source: MetricSource = LINES, metric: str = "val_loss", step: str | None = None
) -> list[StepValue]:
    log = tmp_path / "log"
    log.write_text(text)
    return SeriesTail(log, source, metric, step).read()


@pytest.mark.parametrize(
    ("line", "point"),
    [
        ("step 120 | val_loss: 2.5", (120.0, 2.5)),
        ("step: 120/1000, val_loss=2.5", (120.0, 2.5)),
        ("{'val_loss': '2.5', 'step': 120}", (120.0, 2.5)),
        ("[iter=120] val_loss 2.5 val_loss = 2.5", (120.0, 2.5)),
        ("epoch 3 step 1,200 val_loss: 2.5", (1200.0, 2.5)),
        ("Epoch 3: val_loss: 2.5", (3.0, 2.5)),
        ("2026-01-01 INFO global_step=7 val_loss=2.5", (7.0, 2.5)),
        ("val_loss: 2.5", None),
        ("step 120 | loss: 2.5", None),
        ("step 120 | best val_loss: 2.5", None),
        ("step_time: 3 val_loss: 2.5", None),
        ("warmup_steps 3, multistep=4, val_loss: 2.5", None),
        ("step 50% val_loss: 2.5", None),
    ],
)
def test_a_point_is_a_line_with_both_a_step_and_the_value(
    tmp_path: Path, line: str, point: tuple[float, float] | None
) -> None:
    assert read(tmp_path, line + "\n") == ([point] if point else [])


def test_json_lines_csv_and_patterns_are_followed_too(tmp_path: Path) -> None:
    jsonl = '{"step": 1, "eval": {"loss": 2.5}}\nprose\n{"step": 2, "eval": {"loss": 2.0}}\n{"step": 3, "lr": 0.1}\n'
    assert read(tmp_path, jsonl, MetricSource(kind="jsonl", key="eval.loss")) == [(1.0, 2.5), (2.0, 2.0)]
    table = "epoch;lr;acc\n1;0.1;0.5\n2;0.1;\n3;0.1;0.7\n"
    assert read(tmp_path, table, MetricSource(kind="csv", path="log", key="acc")) == [(1.0, 0.5), (3.0, 0.7)]
    assert read(tmp_path, "lr,acc\n0.1,0.5\n", MetricSource(kind="csv", path="log", key="acc")) == []
    pattern = MetricSource(kind="regex", pattern=r"it (?P<step>\d+) L=(?P<value>\S+)")
    assert read(tmp_path, "it 5 L=0.25\nit 6 L=0.24\n", pattern) == [(5.0, 0.25), (6.0, 0.24)]
    assert read(tmp_path, "tick 5 val_loss: 1\n", LINES, step="tick") == [(5.0, 1.0)]


def test_what_is_not_finite_is_a_point_and_what_is_unreadable_is_none(tmp_path: Path) -> None:
    ((step, value),) = read(tmp_path, "step 1 val_loss: nan\nstep 2 val_loss: 0,95\n")
    assert step == 1.0 and math.isnan(value)


def test_a_growing_file_is_read_once_and_an_unfinished_line_later(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = SeriesTail(log, LINES, "val_loss")
    assert tail.read() == []
    log.write_text("step 1 val_loss: 3\nstep 2 val_loss: 2.")
    assert tail.read() == [(1.0, 3.0)]
    with log.open("a") as more:
        more.write("5\nstep 2 val_loss: 2.25\nstep 1 val_loss: 9\n")
    assert tail.read() == [(1.0, 3.0), (2.0, 2.25)], "the last report of a step, no way back"
    assert tail.offset == log.stat().st_size


def test_memory_stays_flat(tmp_path: Path) -> None:
    text = "".join(f"step {n} val_loss: {n}\n" for n in range(2 * MOST_POINTS))
    points = read(tmp_path, text + "x" * (3 * LONGEST_LINE) + " step 9999 val_loss: 1\n")
    assert len(points) <= MOST_POINTS
    assert points[-1] == (2 * MOST_POINTS - 1, 2 * MOST_POINTS - 1)
