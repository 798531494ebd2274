"""The configuration a run had, against the one it was asked for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import yaml

from nightlab.configs.metric_source import MetricSource
from nightlab.tools.metrics.effective import Seen, effective_mismatches, read_seen
from tests.tools.metrics.recorded import FIXTURES, printed, recorded

SOURCE = MetricSource(kind="trainer")
STEPS = 100


def cosine(peak: float, warmup: int = 10) -> Seen:
    """What a trainer logs every tenth step of a cosine schedule."""

    def rate(step: int) -> float:
        share = (step - warmup) / (STEPS - warmup)
        return peak * step / warmup if step < warmup else peak * 0.5 * (1 + math.cos(math.pi * share))

    return Seen({"max_steps": STEPS}, [(step / STEPS, rate(step)) for step in range(0, STEPS + 1, 10)])


@pytest.mark.parametrize("run", ["sft", "dpo", "full", "div", "pred"])
def test_a_recorded_run_had_what_it_was_asked_for(tmp_path: Path, run: str) -> None:
    requested = yaml.safe_load((FIXTURES / f"llamafactory/{run}/train.yaml").read_text(encoding="utf-8"))
    seen = read_seen(recorded(f"llamafactory/{run}", tmp_path), SOURCE)
    assert effective_mismatches(requested, seen) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"learning_rate": 1e-2},
            "learning_rate 0.01 was asked for, early in training the run logged at most",
        ),
        ({"learning_rate": 1e-3}, "learning_rate 0.001 was asked for, the run logged 0.004978"),
        ({"learning_rate": "1.0e-3"}, "learning_rate 0.001 was asked for, the run logged 0.004978"),
        ({"per_device_train_batch_size": 8}, "per_device_train_batch_size 8 was asked for, the run had 4"),
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps 2 was asked for, the run had 1"),
        ({"num_train_epochs": 3.0}, "num_train_epochs 3 was asked for, the run had 2"),
        ({"max_steps": 50}, "max_steps 50 was asked for, the run had 100"),
    ],
)
def test_another_value_is_named(tmp_path: Path, change: dict[str, object], said: str) -> None:
    requested = yaml.safe_load((FIXTURES / "llamafactory/sft/train.yaml").read_text(encoding="utf-8"))
    seen = read_seen(recorded("llamafactory/sft", tmp_path), SOURCE)
    (reason,) = effective_mismatches({**requested, **change}, seen)
    assert reason.startswith(said)


@pytest.mark.parametrize(
    ("requested", "seen", "count"),
    [
        ({"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1}, cosine(1e-4), 0),
        ({"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_ratio": 0.1}, cosine(5e-5), 1),
        ({"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_steps": 10}, cosine(5e-5), 1),
        ({"learning_rate": 5e-5}, cosine(1e-4), 1),
        # What may be the schedule's doing is nobody's fault.
        ({"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_ratio": 0.5}, cosine(1e-4, 50), 0),
        ({"learning_rate": 1e-4, "lr_scheduler_type": "cosine", "warmup_steps": 50}, cosine(5e-5), 0),
        ({"learning_rate": 1e-4, "lr_scheduler_type": "inverse_sqrt"}, cosine(5e-5), 0),
        ({"learning_rate": 1e-4}, Seen({}, [(1.0, 1e-7)]), 0),
        ({"learning_rate": 1e-4}, Seen({}, [(None, 1e-7)]), 0),
        ({"learning_rate": 1e-4}, Seen({}, [(0.05, 1e-7)]), 0),
        ({"learning_rate": 1e-4}, Seen(), 0),
        ({"learning_rate": "auto"}, cosine(1e-4), 0),
        ({"learning_rate": 1e-4, "optim": "galore_adamw_layerwise"}, cosine(1e-3), 0),
        ({"learning_rate": 1e-4, "apollo_layerwise": True}, cosine(1e-3), 0),
        ({"lr": 1e-4}, cosine(1e-3), 0),
        ({}, Seen({"max_steps": 3}), 0),
        ({"num_train_epochs": 1.5}, Seen({"num_train_epochs": 2}), 0),
        ({"num_train_epochs": 0.1}, Seen({"num_train_epochs": 1}), 0),
        ({"num_train_epochs": 3, "max_steps": 10}, Seen({"num_train_epochs": 1, "max_steps": 10}), 0),
        ({"num_train_epochs": 3, "max_steps": -1}, Seen({"num_train_epochs": 3, "max_steps": 300}), 0),
        ({"per_device_train_batch_size": 8, "auto_find_batch_size": True}, Seen({"per_device_train_batch_size": 4}), 0),
        ({"per_device_train_batch_size": "auto"}, Seen({"per_device_train_batch_size": 4}), 0),
        ({"lora_rank": 8}, Seen({"lora_rank": 16}), 1),
        ({"lora_rank": 8, "pissa_convert": True}, Seen({"lora_rank": 16}), 0),
        ({"lora_rank": 8, "adapter_name_or_path": "old"}, Seen({"lora_rank": 16}), 0),
        ({"lora_dropout": 0.05}, Seen({"lora_dropout": 0.05}), 0),
    ],
)
def test_only_what_is_certain_counts(requested: dict[str, object], seen: Seen, count: int) -> None:
    assert len(effective_mismatches(requested, seen)) == count


def test_the_adapters_own_file_is_a_witness(tmp_path: Path) -> None:
    files = printed("", tmp_path, {"adapter_config.json": '{"r": 16, "lora_alpha": 32, "lora_dropout": 0.0}'})
    (reason,) = effective_mismatches({"lora_rank": 8, "lora_alpha": 32, "lora_dropout": 0}, read_seen(files, SOURCE))
    assert reason == "lora_rank 8 was asked for, the run had 16"


def test_what_is_announced_twice_with_different_values_is_no_witness(tmp_path: Path) -> None:
    text = "  Gradient Accumulation steps = 1\n  Gradient Accumulation steps = 2\n  Num Epochs = 3\n"
    assert read_seen(printed(text, tmp_path), SOURCE).facts == {"num_train_epochs": 3.0}


def test_rates_are_read_from_the_log_and_from_the_output(tmp_path: Path) -> None:
    files = recorded("llamafactory/sft", tmp_path)
    assert read_seen(files, SOURCE).rates[0] == (0.05, 0.004)
    (files.output / "trainer_state.json").unlink()
    assert read_seen(files, SOURCE).rates[0] == (0.05, 0.004)
    (files.output / "trainer_log.jsonl").unlink()
    assert read_seen(files, SOURCE).rates[0] == (None, 0.004)
