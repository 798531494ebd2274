"""TRL and ROLL: their YAML, their commands, and the names they have for what the catalog names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from nightlab.agents.space import own_name
from nightlab.configs.study import Scalar
from nightlab.errors import LauncherError
from nightlab.tools.launchers.faults import launcher_faults
from nightlab.tools.launchers.roll_outline import RollOutline
from tests.tools.launchers.frameworks import framework, study, write

PARAMETERS: dict[str, Scalar] = {"learning_rate": 1e-5, "lora_rank": 8, "per_device_train_batch_size": 2}
RLVR: dict[str, Any] = {
    "defaults": ["../config/deepspeed_zero@_here_"],
    "hydra": {"run": {"dir": "out"}},
    "exp_name": "mine",
    "seed": 42,
    "output_dir": "out",
    "checkpoint_config": {"type": "file_system", "output_dir": "/data/mine"},
    "adv_estimator": "grpo",
    "rollout_batch_size": 64,
    "my_own": 5,
    "actor_train": {
        "model_args": {"dtype": "bf16"},
        "training_args": {"learning_rate": 1e-6, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 8},
        "device_mapping": "list(range(0,8))",
    },
    "rewards": {"math_rule": {"reward_type": "soft", "tag_included": ["a", "${exp_name}"]}},
    "num_return_sequences_in_group": "${my_own}",
}


def test_trl_gets_its_own_names(tmp_path: Path) -> None:
    write(tmp_path, "dpo.yaml", {"datasets": [{"path": "json"}], "output_dir": "x", "env": {"A": "b"}})
    parameters: dict[str, Scalar] = {**PARAMETERS, "beta": 0.1, "lora_target": "q_proj,v_proj", "cutoff_len": 512}
    launcher = framework(study("trl", parameters, task="dpo", config="dpo.yaml", command="no-such-trl"))
    ((path, text),) = launcher.files(parameters, tmp_path).items()
    assert path == "nightlab_dpo.yaml"
    assert yaml.safe_load(text) == {
        "datasets": [{"path": "json"}],
        "env": {"A": "b"},
        "learning_rate": 1e-5,
        "lora_r": 8,
        "per_device_train_batch_size": 2,
        "beta": 0.1,
        "lora_target_modules": ["q_proj", "v_proj"],
        "max_length": 512,
        "model_name_or_path": "tiny",
        "report_to": "none",
        "logging_steps": 10,
    }
    (tmp_path / path).write_text(text, encoding="utf-8")
    assert launcher.read_back(tmp_path) == parameters
    assert launcher_faults(launcher.study, launcher, tmp_path) == []


def test_the_command_of_trl(tmp_path: Path) -> None:
    launcher = framework(study("trl", PARAMETERS, task="sft"))
    launch = launcher.launch(PARAMETERS, seed=3, tree=tmp_path, output=tmp_path / "o")
    file = str(tmp_path / "nightlab_train.yaml")
    assert launch.command == ("trl", "sft", "--config", file, "--output_dir", str(tmp_path / "o"), "--seed", "3")
    several = study(
        "trl", PARAMETERS, task="sft", distributed={"launcher": "accelerate", "processes": 2, "config": "zero2.yaml"}
    )
    launch = framework(several).launch(PARAMETERS, seed=3, tree=tmp_path, output=tmp_path / "o")
    words = launch.command[len(launch.command) - 6 :]
    assert words[:3] == ("--num_processes", "2", "--main_process_port")
    assert words[4:] == ("--accelerate_config", str(tmp_path / "zero2.yaml"))


def test_faults_of_trl(tmp_path: Path) -> None:
    parameters = {"learning_rte": 1e-5, "num_generations": 8}
    launcher = framework(
        study("trl", parameters, task="sft", command="no-such-trl", settings={"mixed_precision": "bf17"})
    )
    told = "\n".join(str(fault) for fault in launcher_faults(launcher.study, launcher, tmp_path))
    assert "learning_rte: is no argument of trl sft (1.16.0" in told
    assert "num_generations: is no argument of trl sft" in told
    assert "mixed_precision: 'bf17' is no choice" in told


def roll(tmp_path: Path, parameters: dict[str, Any], task: str = "rlvr", **launcher: Any) -> Any:
    write(tmp_path, "examples/mine/rlvr.yaml", RLVR)
    (tmp_path / "examples" / f"start_{task}_pipeline.py").write_text("", encoding="utf-8")
    return framework(study("roll", parameters, task=task, config="examples/mine/rlvr.yaml", **launcher))


def test_roll_is_one_file_for_every_seed(tmp_path: Path) -> None:
    parameters = {
        "learning_rate": 1e-5,
        "lora_rank": 8,
        "num_generations": 16,
        "kl": 0.01,
        "warmup_ratio": 0.1,
        "actor_infer.generating_args.temperature": 0.9,
        "max_steps": 5,
        "rewards.math_rule.reward_type": "hard",
    }
    launcher = roll(tmp_path, parameters)
    ((path, text),) = launcher.files(parameters, tmp_path).items()
    assert path == "examples/mine/nightlab_rlvr.yaml"
    document = yaml.safe_load(text)
    assert (document["defaults"], document["hydra"]) == (RLVR["defaults"], RLVR["hydra"])
    assert document["seed"] == "${oc.decode:${oc.env:NIGHTLAB_SEED}}"
    assert document["output_dir"] == "${oc.env:NIGHTLAB_OUTPUT_DIR}"
    assert document["checkpoint_config"]["output_dir"] == "${oc.env:NIGHTLAB_OUTPUT_DIR}/checkpoints"
    assert document["num_return_sequences_in_group"] == 16
    assert document["kl_loss_coef"] == 0.01
    assert document["actor_train"]["training_args"]["learning_rate"] == 1e-5
    assert document["actor_train"]["training_args"]["warmup_ratio"] == 0.1
    assert document["actor_train"]["model_args"] == {"dtype": "bf16", "lora_rank": 8}
    assert document["actor_infer"] == {"model_args": {"lora_rank": 8}, "generating_args": {"temperature": 0.9}}
    assert document["rewards"]["math_rule"]["reward_type"] == "hard"
    (tmp_path / path).write_text(text, encoding="utf-8")
    assert launcher.read_back(tmp_path) == parameters


def test_the_command_of_roll(tmp_path: Path) -> None:
    launcher = roll(tmp_path, {"learning_rate": 1e-5})
    launch = launcher.launch({"learning_rate": 1e-5}, seed=4, tree=tmp_path, output=tmp_path / "o")
    script, *rest = launch.command[1:]
    assert script == str(tmp_path / "examples" / "start_rlvr_pipeline.py")
    assert rest == ["--config_path", "mine", "--config_name", "nightlab_rlvr"]
    assert launch.env["NIGHTLAB_SEED"] == "4"
    assert launch.env["ROLL_LOG_DIR"] == str(tmp_path / "o" / "logs")
    assert os.path.isabs(launch.env["NIGHTLAB_OUTPUT_DIR"])  # noqa: PTH117
    (tmp_path / "examples" / "start_rlvr_pipeline.py").unlink()
    with pytest.raises(LauncherError, match="holds no examples/start_rlvr_pipeline"):
        launcher.launch({"learning_rate": 1e-5}, seed=4, tree=tmp_path, output=tmp_path / "o")


def test_faults_of_roll(tmp_path: Path) -> None:
    launcher = roll(
        tmp_path, {"adv_estimater": "grpo", "actor_train.training_args.bf16": "yes"}, settings={"pg_clip": "x"}
    )
    told = "\n".join(str(fault) for fault in launcher_faults(launcher.study, launcher, tmp_path))
    assert "adv_estimater: is no argument of roll rlvr" in told
    assert "did you mean adv_estimator" in told
    assert "actor_train.training_args.bf16: 'yes' is not true or false" in told
    assert "launcher.settings.pg_clip: 'x' is not a number" in told
    assert "my_own" not in told, "ROLL's own files hold keys of one's own, for interpolation"
    write(tmp_path, "examples/mine/rlvr.yaml", {**RLVR, "rollout_batch_sizes": 1, "adv_estimator": "grop"})
    told = "\n".join(str(fault) for fault in launcher_faults(launcher.study, launcher, tmp_path))
    assert "rollout_batch_sizes: is no argument" in told, "one letter off is no key of one's own"
    assert "adv_estimator: 'grop' is no choice (did you mean grpo?" in told


@pytest.mark.parametrize(
    ("task", "key"),
    [
        ("sft", "sft_train.training_args.learning_rate"),
        ("dpo", "actor_train.training_args.learning_rate"),
        ("distill", "student.training_args.learning_rate"),
        ("agentic", "actor_train.training_args.learning_rate"),
        ("onpolicy_distill", "student_train.training_args.learning_rate"),
    ],
)
def test_the_trained_worker_of_each_pipeline(task: str, key: str, tmp_path: Path) -> None:
    assert roll(tmp_path, {"learning_rate": 1e-5}, task).names.keys_of("learning_rate") == (key,)
    assert RollOutline(task).argument(key) is not None


def test_roll_keeps_the_effective_batch(tmp_path: Path) -> None:
    launcher = roll(tmp_path, {"effective_batch": 16})
    document = launcher.document({"effective_batch": 16}, tmp_path)
    assert document["actor_train"]["training_args"]["gradient_accumulation_steps"] == 16


def test_the_catalog_knows_the_frameworks_names() -> None:
    assert own_name(study("trl", {"lora_r": 8}, task="sft"), "lora_rank") == "lora_r"
    assert own_name(study("trl", {"lora_rank": 8}, task="sft"), "lora_rank") == "lora_rank"
    mapped = study("llamafactory", {"pref_beta": 0.1, "b": 0.1}, catalog={"parameters": {"beta": "b"}})
    assert own_name(mapped, "beta") == "b", "the study's own map first"
    assert own_name(study("llamafactory", {"lr": 0.1}), "beta") == "beta"
