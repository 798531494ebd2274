"""Every recorded run read in every way: from its files, from what it printed, at its best, at a step."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.metric_source import MetricSource
from nightlab.tools.metrics.reader import SourceReader
from nightlab.tools.metrics.series import tails_of
from tests.tools.metrics.recorded import printed, read, recorded

LF = "llamafactory"


@pytest.mark.parametrize(
    ("run", "metric", "source", "from_files", "from_output"),
    [
        (f"{LF}/sft", "eval_loss", {}, 5.504546165466309, 5.5045),
        (f"{LF}/sft", "eval_loss", {"at_step": 50}, 5.585877418518066, "metric-absent"),
        (f"{LF}/sft", "eval_loss", {"pick": "best"}, 5.504546165466309, 5.505),
        (f"{LF}/sft", "loss", {}, 5.514916229248047, 5.515),
        (f"{LF}/sft", "loss", {"pick": "best"}, 5.500278472900391, 5.5),
        (f"{LF}/sft", "loss", {"pick": "mean"}, 5.679931125640869, 5.6799),
        (f"{LF}/sft", "loss", {"at_step": 52}, "metric-absent", "metric-absent"),
        (f"{LF}/sft", "train_loss", {}, 5.679931125640869, 5.6799),
        (f"{LF}/sft", "total_flos", {}, 20175814656.0, 18 * 2**30),
        (f"{LF}/sft", "predict_bleu-4", {}, "metric-absent", "metric-absent"),
        (f"{LF}/full", "eval_loss", {}, 0.625749945640564, 0.6257),
        (f"{LF}/full", "loss", {"at_step": 1000}, 0.5166513061523438, "metric-absent"),
        (f"{LF}/full", "train_runtime", {}, 29.8119, 29.81),
        (f"{LF}/div", "train_loss", {}, 371677.8275, 371677.8275),
        (f"{LF}/div", "eval_loss", {}, 439352.59375, 439352.5938),
        (f"{LF}/pred", "predict_bleu-4", {}, 44.876065, 44.8761),
        (f"{LF}/pred", "predict_rouge-l", {}, 48.444590000000005, 48.4446),
        (f"{LF}/pred", "predict_runtime", {}, 0.8905, 0.89),
        (f"{LF}/dpo", "rewards/accuracies", {}, 1.0, 1.0),
        (f"{LF}/dpo", "rewards/accuracies", {"at_step": 50}, 0.949999988079071, "metric-absent"),
        (f"{LF}/dpo", "rewards/margins", {}, 1.584977149963379, 1.585),
        (f"{LF}/dpo", "logps/chosen", {"pick": "best"}, -4.392829, -4.393),
        (f"{LF}/bad", "eval_loss", {}, "metric-absent", "metric-absent"),
        ("trl/sft", "eval_loss", {}, 3.7832, 3.783),
        ("trl/sft", "loss", {"at_step": 4}, 3.8761, "metric-absent"),
        ("trl/sft", "train_loss", {}, 3.891, 3.891),
        ("trl/sft", "eval_mean_token_accuracy", {}, 0.4194, 0.4194),
        ("trl/grpo", "reward", {"at_step": 1}, -0.3125, "metric-absent"),
        ("trl/grpo", "rewards/length_reward/mean", {"at_step": 2}, -0.2292, "metric-absent"),
        ("trl/grpo", "completions/clipped_ratio", {"pick": "best"}, 0.75, 0.75),
        ("trl/grpo", "kl", {"at_step": 2}, 9.708e-05, "metric-absent"),
    ],
)
def test_a_recorded_run_is_read_from_its_files_and_from_its_output_alone(
    tmp_path: Path,
    run: str,
    metric: str,
    source: dict[str, Any],
    from_files: float | str,
    from_output: float | str,
) -> None:
    files = recorded(run, tmp_path)
    assert read(files, metric, **source) == _about(from_files)
    shutil.rmtree(files.output)
    assert read(files, metric, **source) == _about(from_output)


def _about(value: float | str) -> object:
    return value if isinstance(value, str) else pytest.approx(value, rel=3e-4)


def test_what_is_best_of_a_reward_is_its_largest_value(tmp_path: Path) -> None:
    files = recorded("trl/grpo", tmp_path)
    values = [read(files, "reward", at_step=step) for step in range(1, 7)]
    assert read(files, "reward", pick="best", maximize=True) == max(map(float, values))


def test_the_state_of_an_earlier_checkpoint_does_not_hide_what_came_after_it(tmp_path: Path) -> None:
    files = recorded("trl/sft", tmp_path)
    shutil.rmtree(files.output / "checkpoint-8")
    assert read(files, "eval_loss") == 3.783, "the printed end, not the exact middle"
    files.stdout.write_text("", encoding="utf-8")
    assert read(files, "eval_loss") == pytest.approx(3.8533, rel=1e-4), "where nothing else is left"


def test_a_trainers_folder_is_found_one_level_below_and_named_where_there_are_two(tmp_path: Path) -> None:
    files = recorded(f"{LF}/sft", tmp_path)
    (files.output.parent / "moved").mkdir()
    shutil.move(files.output, files.output.parent / "moved/out")
    files = replace(files, output=files.output.parent / "moved")
    assert read(files, "eval_loss") == 5.504546165466309
    shutil.copytree(files.output / "out", files.output / "second")
    assert read(files, "eval_loss") == "metric-ambiguous"
    assert read(files, "eval_loss", path="{output_dir}/second") == 5.504546165466309


def test_files_of_an_earlier_run_count_as_absent(tmp_path: Path) -> None:
    files = recorded(f"{LF}/sft", tmp_path)
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    for path in files.output.iterdir():
        os.utime(path, (long_ago.timestamp(), long_ago.timestamp()))
    fresh = replace(files, started_at=long_ago + timedelta(minutes=1))
    assert read(fresh, "eval_loss") == 5.5045, "from the output"
    files.stdout.write_text("", encoding="utf-8")
    assert read(fresh, "eval_loss") == "metric-absent"


def test_a_merged_file_says_nothing_of_a_split_whose_own_file_is_another_runs(tmp_path: Path) -> None:
    files = printed("", tmp_path, {"eval_results.json": '{"eval_loss": 1}', "all_results.json": '{"eval_loss": 1}'})
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    os.utime(files.output / "eval_results.json", (long_ago.timestamp(), long_ago.timestamp()))
    assert read(replace(files, started_at=long_ago + timedelta(minutes=1)), "eval_loss") == "metric-absent"


def test_a_folder_outside_of_the_run_is_refused(tmp_path: Path) -> None:
    files = recorded(f"{LF}/sft", tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "all_results.json").write_text('{"eval_loss": 0.1}', encoding="utf-8")
    assert read(files, "eval_loss", path="../elsewhere") == "metric-unreadable"
    (files.output / "eval_results.json").unlink()
    (files.output / "eval_results.json").symlink_to(elsewhere / "all_results.json")
    assert read(files, "eval_loss") == "metric-unreadable"


@pytest.mark.parametrize(
    ("metric", "source", "expected"),
    [
        ("val_correct/all/mean", {}, 0.42),
        ("val_correct/all/mean", {"at_step": 1}, 0.31),
        ("val_correct/gsm8k", {}, 0.35),
        ("critic/score/mean", {"pick": "mean"}, 0.25),
        ("critic/score/mean", {"at_step": 7}, "metric-absent"),
        ("critic/kl", {}, 0.005),
        ("actor/total_loss", {"pick": "best"}, -1.2e-07),
        ("actor/clipfrac", {}, 0.2),
        ("actor/clipfrac", {"at_step": 0}, "metric-not-finite"),
        ("actor/grad_norm", {}, "metric-absent"),
    ],
)
def test_roll_lines(tmp_path: Path, metric: str, source: dict[str, Any], expected: float | str) -> None:
    files = recorded("roll", tmp_path)
    assert read(files, metric, kind="roll", **source) == expected


def test_roll_without_its_tracker_is_read_from_the_loggers_own_lines(tmp_path: Path) -> None:
    files = recorded("roll", tmp_path)
    lines = files.stdout.read_text(encoding="utf-8").splitlines(keepends=True)
    files.stdout.write_text("".join(line for line in lines if "metrics_tag" not in line), encoding="utf-8")
    assert read(files, "critic/score/mean", kind="roll", pick="mean") == 0.25
    assert read(files, "critic/kl", kind="roll", at_step=1) == 0.002
    assert read(files, "val_correct/all/mean", kind="roll") == 0.42


def test_curves_count_steps_where_the_framework_does(tmp_path: Path) -> None:
    files = recorded(f"{LF}/sft", tmp_path)
    log, stdout, stderr = tails_of(files, "eval_loss", MetricSource(kind="trainer"))
    assert log.read()[-1] == (100.0, 5.504546165466309)
    assert [step for step, _ in log.points] == [25.0, 50.0, 75.0, 100.0]
    assert stdout.read()[-1] == (2.0, 5.505), "in epochs"
    assert stderr.read() == []
    accuracies = tails_of(recorded(f"{LF}/dpo", tmp_path / "dpo"), "rewards/accuracies", MetricSource(kind="trainer"))
    assert accuracies[0].read()[-1] == (100.0, 1.0)
    scores = tails_of(recorded("roll", tmp_path / "roll"), "critic/score/mean", MetricSource(kind="roll"))
    assert scores[0].read() == [(0.0, 0.21), (1.0, 0.25), (2.0, 0.29)]


def test_a_curve_is_found_in_a_folder_that_the_job_makes_later(tmp_path: Path) -> None:
    files = printed("", tmp_path)
    tail = tails_of(files, "loss", MetricSource(kind="trainer"))[0]
    assert tail.read() == []
    (files.output / "out").mkdir()
    log = files.output / "out/trainer_log.jsonl"
    log.write_text('{"current_steps": 5, "loss": 2.0}\n{"current_steps": 10, "lo', encoding="utf-8")
    assert tail.read() == [(5.0, 2.0)]
    with log.open("a", encoding="utf-8") as file:
        file.write('ss": 1.0}\n')
    assert tail.read() == [(5.0, 2.0), (10.0, 1.0)]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("lines", "step 10 | loss: 2.0\nstep 20 | loss: 1.0\nloss: 9\n"),
        ("jsonl", '{"step": 10, "loss": 2.0}\n{"step": 20, "loss": 1.0}\n{"loss": 9}\n'),
        ("regex", "it 10 L=2.0\nit 20 L=1.0\n"),
        ("csv", "step,loss\n10,2.0\n20,1.0\n"),
        ("trainer", "{'loss': 2.0, 'step': 10}\n{'loss': 1.0, 'step': 20}\n{'loss': 9, 'epoch': 1}\n"),
    ],
)
def test_one_step_of_every_kind_of_source(tmp_path: Path, kind: str, text: str) -> None:
    files = printed(text, tmp_path, {"log.csv": text})
    more: dict[str, Any] = {"pattern": r"it (?P<step>\d+) L=(?P<value>\S+)"} if kind == "regex" else {}
    more |= {"path": "{output_dir}/log.csv"} if kind == "csv" else {}
    assert read(files, "loss", kind=kind, at_step=10, **more) == 2.0
    assert read(files, "loss", kind=kind, at_step=20, **more) == 1.0
    assert read(files, "loss", kind=kind, at_step=15, **more) == "metric-absent"


def test_a_step_that_was_not_reported_names_its_neighbours(tmp_path: Path) -> None:
    source = MetricSource(kind="lines", at_step=15)
    files = printed("step 10 | loss: 2.0\nstep 20 | loss: 1.0\n", tmp_path)
    with pytest.raises(Exception, match="at step 15; the nearest are 10 and 20"):
        SourceReader().read(files, "loss", source, maximize=False)
