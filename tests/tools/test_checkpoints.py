"""Checkpoints of a run: the best is found, the policy is followed, nothing else is touched."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from nightlab.tools.checkpoints import best_of, find_checkpoints, find_weights, remove, to_remove


def checkpoint(folder: Path, step: int, *, size: int = 10_000, history: list[dict[str, Any]] | None = None) -> Path:
    made = folder / f"checkpoint-{step}"
    (made / f"global_step{step}").mkdir(parents=True)
    (made / "model.safetensors").write_bytes(b"x" * size)
    (made / f"global_step{step}" / "optimizer.pt").write_bytes(b"x" * size)
    (made / "trainer_state.json").write_text(json.dumps({"log_history": history or []}), encoding="utf-8")
    return made


def steps(output: Path) -> list[int]:
    return [one.step for one in find_checkpoints(output)]


@pytest.fixture
def output(tmp_path: Path) -> Path:
    made = tmp_path / "output"
    for step in (100, 20, 3):
        checkpoint(made, step)
    return made


def state(output: Path, **content: Any) -> None:
    (output / "trainer_state.json").write_text(json.dumps(content), encoding="utf-8")


def best(output: Path, metric: str = "loss", *, maximize: bool = False) -> int | None:
    found = best_of(find_checkpoints(output), metric, maximize=maximize)
    return found.step if found else None


def test_they_are_found_by_step_wherever_the_framework_puts_them(output: Path) -> None:
    checkpoint(output / "checkpoints" / "20260101-000000", 7)
    (output / "checkpoint-x").mkdir()
    (output / "checkpoint-9").write_text("a file", encoding="utf-8")
    assert steps(output) == [3, 7, 20, 100]
    assert steps(output / "missing") == []


def test_the_trainers_choice_counts_first(output: Path) -> None:
    history = [{"step": 100, "eval_loss": 0.1}, {"step": 20, "eval_loss": 0.9}]
    state(output, best_model_checkpoint="/moved/since/checkpoint-20", log_history=history)
    assert best(output) == 20


def test_then_the_metric_that_was_logged(output: Path) -> None:
    history = [
        {"step": 3, "eval_accuracy": 0.9, "eval_loss": 0.3},
        {"step": 20, "eval_accuracy": 0.7, "eval_loss": 0.1},
        {"step": 50, "eval_accuracy": 1.0, "eval_loss": 0.0},
        {"step": 100, "eval_accuracy": 0.9, "eval_loss": float("nan")},
    ]
    state(output, best_model_checkpoint=None, log_history=history)
    assert best(output, "eval_accuracy", maximize=True) == 3, "of equals the earlier one; step 50 has no checkpoint"
    assert best(output, "accuracy", maximize=False) == 20
    assert best(output, "bleu", maximize=True) == 20, "eval_loss where the metric was not logged"


def test_else_the_last(output: Path) -> None:
    assert best(output) == 100
    (output / "trainer_state.json").write_text("{", encoding="utf-8")
    assert best(output) == 100


def test_a_trainer_that_writes_its_log_into_checkpoints_only(tmp_path: Path) -> None:
    history = [{"step": 5, "eval_loss": 0.1}, {"step": 9, "eval_loss": 0.2}]
    checkpoint(tmp_path, 5, history=history[:1])
    checkpoint(tmp_path, 9, history=history)
    assert best(tmp_path) == 5
    assert best(tmp_path / "none") is None


def test_each_policy(output: Path) -> None:
    found = find_checkpoints(output)
    middle = found[1]
    assert to_remove(found, middle, "all") == []
    assert to_remove(found, middle, "none") == found
    assert to_remove(found, middle, "last") == found[:-1]
    assert to_remove(found, middle, "best") == [found[0], found[2]]


def test_what_is_removed_is_counted_and_the_log_stays(output: Path) -> None:
    freed = remove(output, find_checkpoints(output)[1:])
    assert freed >= 40_000
    assert steps(output) == [3]
    assert [path.name for path in (output / "checkpoint-100").iterdir()] == ["trainer_state.json"]
    assert not (output / "checkpoint-20").exists()
    assert remove(output, find_checkpoints(output)[1:]) == 0


def test_a_log_beside_the_checkpoints_is_enough(output: Path) -> None:
    state(output, log_history=[])
    remove(output, find_checkpoints(output))
    assert [path.name for path in output.iterdir()] == ["trainer_state.json"]


def test_no_link_is_followed(output: Path, tmp_path: Path) -> None:
    elsewhere = checkpoint(tmp_path / "mine", 50)
    (output / "checkpoint-50").symlink_to(elsewhere)
    (output / "others").symlink_to(tmp_path / "mine")
    (output / "checkpoint-3" / "shared").symlink_to(elsewhere)
    (output / "checkpoint-3" / "base.safetensors").symlink_to(elsewhere / "model.safetensors")
    assert steps(output) == [3, 20, 100]
    remove(output, find_checkpoints(output))
    assert (elsewhere / "model.safetensors").is_file()
    assert (elsewhere / "global_step50" / "optimizer.pt").is_file()
    linked = tmp_path / "linked"
    linked.symlink_to(tmp_path / "mine")
    assert steps(linked) == []


def test_nothing_outside_the_output_is_touched(output: Path, tmp_path: Path) -> None:
    checkpoint(tmp_path / "mine", 50)
    (outside,) = find_checkpoints(tmp_path / "mine")
    assert remove(output, [outside], [outside.folder / "model.safetensors"]) == 0
    assert (outside.folder / "model.safetensors").is_file()


def test_final_weights(output: Path, tmp_path: Path) -> None:
    for name in (
        "model-00001-of-00002.safetensors",
        "adapter_model.safetensors",
        "training_args.bin",
        "all_results.json",
    ):
        (output / name).write_bytes(b"x" * 5000)
    (tmp_path / "base.bin").write_bytes(b"x")
    (output / "linked.bin").symlink_to(tmp_path / "base.bin")
    os.link(tmp_path / "base.bin", output / "hard.bin")
    found = find_weights(output)
    assert [file.name for file in found] == [
        "adapter_model.safetensors",
        "hard.bin",
        "model-00001-of-00002.safetensors",
    ]
    assert 10_000 <= remove(output, [], found) < 30_000, "what has another name frees nothing"
    assert (tmp_path / "base.bin").is_file()
    assert find_weights(output) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"log_history": 5}',
        '{"log_history": [{"step": [3], "loss": 0.1}, {"step": {}, "loss": 0.2}, {"step": "3", "loss": 1e999}]}',
        '{"log_history": [{"step": 3, "loss": 1%s}]}' % ("0" * 400),
        "[" * 100_000,
    ],
)
def test_a_state_of_nonsense_tells_nothing(output: Path, text: str) -> None:
    (output / "trainer_state.json").write_text(text, encoding="utf-8")
    assert best(output) == 100


def test_a_state_that_is_no_file_is_not_waited_for(output: Path) -> None:
    os.mkfifo(output / "trainer_state.json")
    assert best(output) == 100
