"""From what a run left behind to one number: sources, order, picks, refusals."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightlab.configs.study import MetricSource, Study
from nightlab.errors import MetricError
from nightlab.tools.metrics import Reading, RunFiles, read_metrics
from nightlab.tools.metrics.files import values_at
from nightlab.tools.metrics.picks import Tally
from nightlab.tools.metrics.reader import SourceReader

Write = Callable[..., RunFiles]


@pytest.fixture
def run(tmp_path: Path) -> Write:
    """Writes a run's traces: streams by keyword, files of the worktree and output folder by path."""

    def write(stdout: str = "", stderr: str = "", files: dict[str, str] | None = None) -> RunFiles:
        traces = RunFiles(
            stdout=tmp_path / "job/stdout.log",
            stderr=tmp_path / "job/stderr.log",
            worktree=tmp_path / "tree",
            output=tmp_path / "job/output",
        )
        for folder in (traces.worktree, traces.output):
            folder.mkdir(parents=True, exist_ok=True)
        traces.stdout.write_text(stdout, encoding="utf-8")
        traces.stderr.write_text(stderr, encoding="utf-8")
        for path, text in (files or {}).items():
            (tmp_path / path).write_text(text, encoding="utf-8")
        return traces

    return write


def read(traces: RunFiles, metric: str = "loss", *, maximize: bool = False, **source: Any) -> Reading:
    return SourceReader().read(traces, metric, MetricSource.model_validate(source), maximize=maximize)


def cause_of(traces: RunFiles, metric: str = "loss", **source: Any) -> str:
    with pytest.raises(MetricError) as caught:
        read(traces, metric, **source)
    assert str(caught.value).startswith(f"metric {metric}: ")
    assert "\n" not in str(caught.value)
    return caught.value.cause


def test_the_last_value_of_stdout_counts(run: Write) -> None:
    assert read(run("loss: 3\nloss: 1\nloss: 2\n", "loss: 9\n")) == Reading(2.0, "stdout.log")


def test_stderr_is_read_only_where_stdout_states_nothing(run: Write) -> None:
    assert read(run("best loss: 1\n", "loss: 9\n")) == Reading(9.0, "stderr.log")
    assert cause_of(run("loss: nan\n", "loss: 9\n")) == "metric-not-finite"
    assert cause_of(run("loss: 0,9\n", "loss: 9\n")) == "metric-ambiguous"


def test_absence_names_both_streams_and_the_look_alike(run: Write) -> None:
    with pytest.raises(MetricError, match=r"metric loss: stdout\.log: .*'best loss: 1'.*; stderr\.log: no line"):
        read(run("best loss: 1\n"))
    traces = run()
    traces.stdout.unlink()
    assert cause_of(traces) == "metric-absent"


def test_progress_bars_and_colours_are_seen_through(run: Write) -> None:
    assert read(run("\r 10% loss: 3\r\x1b[32m 90% loss: \x1b[1m1.5\x1b[0m\r")).value == 1.5


@pytest.mark.parametrize(
    ("pick", "maximize", "value"),
    [("last", False, 2.0), ("best", False, 1.0), ("best", True, 3.0), ("mean", False, 2.0)],
)
def test_pick_says_which_value_counts(run: Write, pick: str, maximize: bool, value: float) -> None:
    assert read(run("loss: 3\nloss: 1\nloss: 2\n"), pick=pick, maximize=maximize).value == value


@pytest.mark.parametrize("pick", ["last", "best", "mean"])
def test_lines_repeated_by_every_rank_change_nothing(run: Write, pick: str) -> None:
    once, thrice = "loss: 3\nloss: 1\nloss: 2\n", "loss: 3\n" * 3 + "loss: 1\n" * 3 + "loss: 2\n" * 3
    assert read(run(thrice), pick=pick).value == pytest.approx(read(run(once), pick=pick).value, rel=1e-15)


@pytest.mark.parametrize("bad", ["nan", "inf", "None", "0,5", "3/10"])
def test_a_bad_value_fails_when_it_counts(run: Write, bad: str) -> None:
    early, late = run(f"loss: {bad}\nloss: 2\n"), f"loss: 2\nloss: {bad}\n"
    assert read(early).value == 2.0
    for pick in ("best", "mean"):
        assert cause_of(early, pick=pick) in {"metric-not-finite", "metric-ambiguous"}
    assert cause_of(run(late)) in {"metric-not-finite", "metric-ambiguous"}


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_a_mean_is_finite_and_lies_between_its_values(values: list[float]) -> None:
    tally = Tally("mean", maximize=False)
    for value in values:
        tally.add(value)
    mean = tally.result()
    assert mean is not None
    slack = 1e-12 * max(map(abs, values))
    assert math.isfinite(mean)
    assert min(values) - slack <= mean <= max(values) + slack


def test_nothing_added_is_nothing_found() -> None:
    assert Tally("last", maximize=False).result() is None


def test_json_lines_among_other_output(run: Write) -> None:
    lines = ["starting {", '{"step": 1, "eval": {"loss": 0.5}}', "[1]", '{"eval": {"loss": "0.25"}}', '{"eval": {"lo']
    traces = run("\n".join(lines))
    assert read(traces, kind="jsonl", key="eval.loss") == Reading(0.25, "stdout.log")
    assert read(traces, kind="jsonl", key="eval.loss", pick="best", maximize=True).value == 0.5
    assert cause_of(traces, kind="jsonl") == "metric-absent"


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("NaN", "metric-not-finite"),
        ("-Infinity", "metric-not-finite"),
        ("null", "metric-not-finite"),
        ('"nan"', "metric-not-finite"),
        ("1e999", "metric-not-finite"),
        ('"0,95"', "metric-ambiguous"),
        ('"low"', "metric-unreadable"),
        ("true", "metric-unreadable"),
        ('{"a": 1}', "metric-unreadable"),
        ("[]", "metric-absent"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_json_values_that_are_no_numbers(run: Write, kind: str, value: str, cause: str) -> None:
    traces = run(files={"tree/m.json": f'{{"loss": {value}}}'})
    assert cause_of(traces, kind=kind, path="m.json") == cause


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("a", [1]),
        ("b.c", [2]),
        ("d.e", [3]),
        ("log.loss", [5, 4]),
        ("log.-1.loss", [4]),
        ("log.0.loss", [5]),
        ("series", [7, 8]),
        ("series.1", [8]),
        ("log.9.loss", []),
        ("b.x", []),
        ("a.x", []),
        ("x", []),
    ],
)
def test_dotted_keys(key: str, values: list[int]) -> None:
    log = [{"loss": 5}, {"other": 0}, {"loss": 4}]
    document = {"a": 1, "b": {"c": 2}, "d.e": 3, "d": {"e": 0}, "log": log, "series": [7, 8]}
    assert list(values_at(document, key)) == values


def test_a_json_file_in_the_output_folder(run: Write) -> None:
    traces = run("loss: 9\n", files={"job/output/all_results.json": json.dumps({"eval_loss": 0.5})})
    source: dict[str, Any] = {"kind": "json", "path": "{output_dir}/all_results.json"}
    assert read(traces, key="eval_loss", **source) == Reading(0.5, "{output_dir}/all_results.json")
    with pytest.raises(MetricError, match="has no key loss; it has eval_loss"):
        read(traces, **source)


def test_a_broken_json_file_is_unreadable(run: Write) -> None:
    assert cause_of(run(files={"tree/m.json": '{"loss": 0.'}), kind="json", path="m.json") == "metric-unreadable"


@pytest.mark.parametrize(
    "text",
    [
        "step,loss\n1,0.75\n2,0.5\n",
        "\ufeffstep, loss \r\n1,0.75\r\n2, 0.5\r\n3,\r\n",
        "step\tloss\n1\t0.75\n2\t0.5\n",
        "step;loss\n1;0.75\n2;0.5\n",
        'note,"loss"\n"a, b",0.75\nc,"0.5"\nshort\n',
        "step,loss\n1,0.75\nstep,loss\n2,0.5",
    ],
)
def test_csv_files(run: Write, text: str) -> None:
    traces = run(files={"tree/m.csv": text})
    assert read(traces, kind="csv", path="m.csv") == Reading(0.5, "m.csv")
    assert read(traces, kind="csv", path="m.csv", pick="mean").value == 0.625


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", "metric-absent"),
        ("step,acc\n1,0.5\n", "metric-absent"),
        ("step,loss\n1,\n", "metric-absent"),
        ("step,loss\n1,nan\n", "metric-not-finite"),
        ("step;loss\n1;0,95\n", "metric-ambiguous"),
        ("step,loss\n1,low\n", "metric-unreadable"),
    ],
)
def test_csv_files_without_a_number(run: Write, text: str, cause: str) -> None:
    assert cause_of(run(files={"tree/m.csv": text}), kind="csv", path="m.csv") == cause


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        (r"Loss at end is (\S+)", 0.001),
        (r"(?P<value>[\d.e-]+) is the loss of (\d+)", 0.25),
        (r"acc (\d+)/100", 45.0),
        (r"^\d+,([\d.]+),", 0.75),
        (r"temp=(-?[\d.]+)", -0.5),
        (r"(?:x|y(\d))", 7.0),
    ],
)
def test_regular_expressions(run: Write, pattern: str, value: float) -> None:
    text = "Loss at end is 1e-3\n0.25 is the loss of 12\nacc 45/100\n5,0.75,0.5\ntemp=-0.5\nx y7\n"
    assert read(run(text), kind="regex", pattern=pattern).value == value


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"loss=([0-9.]+)", "loss=1e-3"),
        (r"loss=([0-9.]+)", "loss=0,95"),
        (r"loss=([0-9.]+)", "loss=1,000,000"),
        (r"loss.*?([0-9.]+)", "loss=-0.5"),
        (r"loss.*([0-9.]+)", "loss=0.345"),
        (r"loss=(\d+)", "loss=0.345"),
    ],
)
def test_a_pattern_that_captures_part_of_a_number_is_refused(run: Write, pattern: str, line: str) -> None:
    assert cause_of(run(line), kind="regex", pattern=pattern) == "metric-ambiguous"


def test_a_pattern_without_a_match_is_absence(run: Write) -> None:
    assert cause_of(run("nothing"), kind="regex", pattern="loss=(.*)") == "metric-absent"
    assert cause_of(run("loss=nan"), kind="regex", pattern="loss=(.*)") == "metric-not-finite"


def test_lines_may_be_read_from_a_file(run: Write) -> None:
    assert read(run("loss: 9\n", files={"tree/log.txt": "loss: 1\n"}), path="log.txt") == Reading(1.0, "log.txt")
    assert cause_of(run("loss: 9\n"), path="log.txt.missing") == "metric-absent"


@pytest.mark.parametrize("path", ["../job/stdout.log", "/etc/hostname", "link", "{output_dir}/../stdout.log"])
def test_a_path_that_leads_out_is_refused(run: Write, path: str) -> None:
    traces = run("loss: 1\n")
    (traces.worktree / "link").symlink_to(traces.stdout)
    assert cause_of(traces, path=path) == "metric-unreadable"


def test_a_folder_and_a_pipe_are_unreadable(run: Write) -> None:
    traces = run()
    (traces.worktree / "folder").mkdir()
    os.mkfifo(traces.worktree / "pipe")
    assert cause_of(traces, path="folder") == cause_of(traces, path="pipe") == "metric-unreadable"


def test_a_file_from_before_the_run_is_not_its_own(run: Write) -> None:
    traces = run(files={"tree/m.txt": "loss: 1\n"})
    written_at = datetime.fromtimestamp((traces.worktree / "m.txt").stat().st_mtime, UTC)
    later, earlier = (
        RunFiles(traces.stdout, traces.stderr, traces.worktree, traces.output, written_at + timedelta(seconds=sign))
        for sign in (1, -1)
    )
    assert cause_of(later, path="m.txt") == "metric-absent"
    assert read(earlier, path="m.txt").value == 1.0


def study(**changes: Any) -> Study:
    return Study.model_validate(
        {
            "study": "s",
            "scenario": "s",
            "method": "m",
            "base_model": "b",
            "objective": {"metric": "acc", "direction": "maximize", "min_effect": 0.1},
            "parameters": {"lr": 0.1},
            "launcher": {"command": "true"},
            "budget": {"runs": 3},
            **changes,
        }
    )


def test_all_metrics_of_a_study(run: Write) -> None:
    the_study = study(
        guardrails=[{"metric": "latency_ms", "max": 10}, {"metric": "recall", "min": 0.1}],
        metrics={name: {"pick": "best"} for name in ("acc", "latency_ms", "recall", "extra", "absent", "broken")},
    )
    lines = ["acc: 1", "acc: 2", "latency_ms: 5", "latency_ms: 4", "recall: 0.3", "recall: 0.2", "extra: 1", "extra: 3"]
    readings = read_metrics(the_study, run("\n".join([*lines, "broken: nan"])))
    assert {name: reading.value for name, reading in readings.items()} == {
        "acc": 2.0,
        "latency_ms": 4.0,
        "recall": 0.3,
        "extra": 3.0,
    }
    assert next(iter(readings)) == "acc"


@pytest.mark.parametrize("text", ["acc: 1\n", "latency_ms: 1\n", "acc: 1\nlatency_ms: inf\n"])
def test_objective_and_guardrails_must_be_there(run: Write, text: str) -> None:
    with pytest.raises(MetricError):
        read_metrics(study(guardrails=[{"metric": "latency_ms", "max": 10}]), run(text))
