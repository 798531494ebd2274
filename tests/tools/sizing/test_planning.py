"""A study's parameters, and what its framework's file adds to them, become a plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.tools.sizing.configuration import Configuration, configuration_of
from nightlab.tools.sizing.generating import Generation
from nightlab.tools.sizing.memory import Plan
from nightlab.tools.sizing.planning import plan_of
from tests.task import study_data

BATCH: dict[str, Scalar] = {"per_device_train_batch_size": 2}
HERE = Path()


def plan(values: dict[str, Scalar], method: str = "sft_full", *, root: Path = HERE, sparing: bool = False) -> Plan:
    configuration = Configuration(BATCH | values, method)
    found = plan_of(configuration, configuration.number("cutoff_len") or 512, root, sparing=sparing)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("values", "method", "expected"),
    [
        ({}, "sft_full", {"per_device": 2, "sequence": 512, "checkpointing": False, "lora_rank": None}),
        ({"cutoff_len": 1024}, "sft_full", {"sequence": 1024, "checkpointing": True}),
        ({"max_seq_length": 256}, "sft_full", {"sequence": 256, "checkpointing": False}),
        ({"cutoff_len": 8, "disable_gradient_checkpointing": True}, "sft_full", {"checkpointing": False}),
        ({"gradient_checkpointing": "true"}, "sft_full", {"checkpointing": True}),
        ({"lora_rank": 16}, "sft_lora", {"lora_rank": 16}),
        ({"finetuning_type": "lora"}, "sft", {"lora_rank": 8}),
        ({"finetuning_type": "full", "lora_rank": 16}, "sft_lora", {"lora_rank": None}),
        ({"use_peft": True, "lora_r": 4}, "dpo", {"lora_rank": 4, "sequences": 2, "has_reference": True}),
        ({"use_peft": False, "lora_r": 4}, "orpo", {"lora_rank": None, "sequences": 2, "has_reference": False}),
        ({"quantization_bit": 4}, "sft_lora", {"quantized_bits": 4}),
        ({"load_in_8bit": True}, "sft_lora", {"quantized_bits": 8}),
        ({}, "sft_qlora", {"quantized_bits": 4, "lora_rank": 8}),
        ({"lora_target": "q_proj,v_proj"}, "sft_lora", {"lora_attention_only": True}),
        ({"lora_target": "all"}, "sft_lora", {"lora_attention_only": False}),
        ({"bf16": True}, "sft_full", {"precision": "mixed"}),
        ({"pure_bf16": True, "bf16": True}, "sft_full", {"precision": "pure16"}),
        ({"bf16": False}, "sft_full", {"precision": "fp32"}),
        ({"mixed_precision": "no"}, "sft_full", {"precision": "fp32"}),
        ({"optim": "adamw_bnb_8bit"}, "sft_full", {"optimizer": "adam_8bit"}),
        ({"optimizer": "SGD"}, "sft_full", {"optimizer": "sgd"}),
        ({"optim": "lion_32bit"}, "sft_full", {"optimizer": "momentum"}),
        ({"use_galore": True}, "sft_full", {"optimizer": "low_rank"}),
        ({"flash_attn": "disabled"}, "sft_full", {"flash_attention": False}),
        ({"attn_implementation": "eager"}, "sft_full", {"flash_attention": False}),
        ({"enable_liger_kernel": True}, "sft_full", {"fused_loss": True}),
        ({"zero_stage": 2}, "sft_full", {"zero_stage": 2}),
        ({"deepspeed": "examples/ds_z3_offload_config.json"}, "sft_full", {"zero_stage": 3, "offload_optimizer": True}),
        ({"deepspeed": "conf/zero2.json"}, "sft_full", {"zero_stage": 2, "offload_optimizer": False}),
        ({"fsdp": "full_shard auto_wrap offload"}, "sft_full", {"zero_stage": 3, "offload_parameters": True}),
    ],
)
def test_what_parameters_mean(values: dict[str, Scalar], method: str, expected: dict[str, Any]) -> None:
    found = plan(values, method)
    assert {name: getattr(found, name) for name in expected} == expected


GRPO: dict[str, Scalar] = {"max_completion_length": 256, "gradient_accumulation_steps": 4}
VLLM: dict[str, Scalar] = {"use_vllm": True, "vllm_mode": "colocate"}
PPO: dict[str, Scalar] = {"response_length": 100, "gradient_accumulation_steps": 4}


@pytest.mark.parametrize(
    ("values", "method", "expected"),
    [
        (GRPO, "grpo", {"sequence": 768, "scored": 256, "generation": Generation(8, 768), "has_reference": True}),
        (GRPO | {"beta": 0.0}, "grpo", {"has_reference": False}),
        (GRPO | {"beta": 0.01, "max_prompt_length": 100}, "grpo_lora", {"has_reference": True, "sequence": 356}),
        (GRPO | {"generation_batch_size": 32, "world_size": 2}, "grpo", {"generation": Generation(16, 768)}),
        (GRPO | {"steps_per_generation": 1}, "rloo", {"generation": Generation(2, 768)}),
        (GRPO | VLLM, "grpo", {"generation": Generation(8, 768, 0.3)}),
        (
            GRPO | VLLM | {"vllm_gpu_memory_utilization": 0.5, "vllm_enable_sleep_mode": True},
            "grpo",
            {"generation": Generation(8, 768, 0.5, engine_sleeps=True)},
        ),
        (GRPO | VLLM | {"vllm_mode": "server"}, "grpo", {"generation": None, "scored": 256}),
        (GRPO | {"reward_model_name_or_path": "some"}, "grpo", {"frozen_copies": 1}),
        (
            PPO,
            "ppo",
            {"has_reference": True, "has_critic": True, "frozen_copies": 1, "sequence": 612, "scored": None}
            | {"generation": Generation(8, 612, kept_tokens=800)},
        ),
        (PPO | {"gradient_accumulation_steps": 64}, "ppo", {"generation": Generation(64, 612, kept_tokens=12_800)}),
        (
            PPO | {"stage": "ppo", "cutoff_len": 400, "finetuning_type": "lora"},
            "ppo",
            {"has_critic": False, "frozen_copies": 0, "sequence": 500, "generation": Generation(2, 500)},
        ),
        (PPO | {"stage": "ppo", "reward_model_type": "full"}, "ppo", {"frozen_copies": 1}),
        ({"pref_loss": "orpo"}, "dpo", {"has_reference": False, "sequences": 2}),
        ({"precompute_ref_log_probs": True}, "dpo", {"has_reference": False}),
        ({"use_peft": True, "ref_model": "other"}, "dpo", {"frozen_copies": 1}),
        ({}, "reward", {"scored": 0, "sequences": 2, "generation": None}),
        ({"stage": "rm"}, "rm", {"scored": None, "sequences": 2}),
        ({"teacher": "some-70B"}, "distill", {"teacher": None, "generation": None}),
        ({"teacher_model": "some-70B"}, "sft", {"teacher": None}),
    ],
)
def test_which_models_stand_beside_and_what_is_written(
    values: dict[str, Scalar], method: str, expected: dict[str, Any]
) -> None:
    found = plan(values, method)
    assert {name: getattr(found, name) for name in expected} == expected


def test_a_teacher_in_memory_is_as_large_as_it_is() -> None:
    found = plan({"teacher_model_name_or_path": "some-70B", "max_new_tokens": 128}, "distill")
    assert found.teacher is not None
    assert (found.teacher.parameters, found.generation) == (70e9, Generation(2, 512))


def test_what_a_framework_does_by_default_is_known() -> None:
    trl = Configuration(BATCH, "grpo", is_framework=True)
    found = plan_of(trl, None, HERE)
    assert found is not None
    assert (found.sequence, found.has_reference) == (768, False)
    assert (found.checkpointing, found.precision) == (True, "mixed")
    loaded = plan_of(Configuration({**BATCH, "dtype": "bfloat16", "bf16": True}, "dpo", is_framework=True), 8, HERE)
    assert loaded is not None and loaded.precision == "pure16"
    assert plan({"dtype": "bfloat16"}).precision == "mixed"
    assert plan({"dtype": "bfloat16"}, sparing=True).precision == "pure16"
    rloo = plan_of(Configuration(BATCH, "rloo", is_framework=True), None, HERE)
    assert rloo is not None and rloo.has_reference
    factory = plan_of(Configuration({**BATCH, "stage": "ppo"}, "ppo", is_framework=True), 1000, HERE)
    assert factory is not None and factory.sequence == 2024


def test_the_sparing_reading_of_what_generates() -> None:
    found = plan(GRPO | {"use_vllm": True}, "grpo", sparing=True)
    assert (found.generation, found.has_reference, found.sequence) == (None, False, 768)
    assert plan(GRPO | {"use_vllm": True}, "grpo").generation == Generation(8, 768, 0.3)


@pytest.mark.parametrize(
    ("values", "method"),
    [
        ({}, "grpo"),
        ({"actor_train.training_args.learning_rate": 1e-6, "max_new_tokens": 64}, "grpo"),
        ({"max_new_tokens": 64}, "rlvr"),
        ({}, "inference_only"),
        ({"finetuning_type": "freeze"}, "sft"),
        ({"batch_size": "x"}, "sft"),
    ],
)
def test_what_is_not_estimated(values: dict[str, Scalar], method: str) -> None:
    batch = {} if "batch_size" in values else BATCH
    assert plan_of(Configuration({**batch, **values}, method), 512, HERE) is None
    assert plan_of(Configuration(BATCH, "sft"), None, HERE) is None


def test_a_deepspeed_file_that_is_there_is_read(tmp_path: Path) -> None:
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "none"}}
    (tmp_path / "ds_z3.json").write_text(json.dumps({"zero_optimization": zero}))
    found = plan({"deepspeed": "ds_z3.json"}, root=tmp_path)
    assert (found.zero_stage, found.offload_optimizer, found.offload_parameters) == (2, True, False)
    (tmp_path / "ds_z3.json").write_text("[]")
    assert plan({"deepspeed": "ds_z3.json"}, root=tmp_path).zero_stage == 3


def test_the_sparing_reading_takes_only_what_is_left_open() -> None:
    left_open = plan({}, sparing=True)
    assert (left_open.checkpointing, left_open.precision, left_open.optimizer) == (True, "pure16", "sgd")
    said = plan({"gradient_checkpointing": False, "bf16": True, "optim": "adamw"}, sparing=True)
    assert (said.checkpointing, said.precision, said.optimizer) == (False, "mixed", "adam")


def test_a_configuration_holds_what_the_parameter_file_adds(tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(
        '{"train": {"cutoff_len": 256, "batch_size": 4}, "lr": 1, "targets": ["a", "b"]}'
    )
    study = Study.model_validate(study_data())
    found = configuration_of(study, tmp_path)
    assert found.number("cutoff_len") == 256
    assert found.value("lr") == study.parameters["lr"]
    assert found.values["targets"] == "a,b"
    assert configuration_of(study, tmp_path, {**study.parameters, "lr": 0.5}).value("lr") == 0.5
    (tmp_path / "params.json").write_text("{")
    assert configuration_of(study, tmp_path).values == study.parameters


def test_a_framework_fills_in_its_own_names(tmp_path: Path) -> None:
    text = "cutoff_len: 512\nper_device_train_batch_size: 2\nfinetuning_type: lora\ndataset: d\ntemplate: qwen\n"
    (tmp_path / "train.yaml").write_text(text)
    data = study_data(
        method="sft-lora",
        base_model="some-7B",
        parameters={"learning_rate": 1e-4, "lora_rank": 16},
        space={"lora_rank": {"levels": [32]}},
        locked=[],
        launcher={"kind": "llamafactory", "config": "train.yaml"},
    )
    configuration = configuration_of(Study.model_validate(data), tmp_path)
    assert configuration.is_framework
    assert configuration.number("cutoff_len") == 512
    found = plan_of(configuration, 512, tmp_path)
    assert found is not None
    assert (found.lora_rank, found.checkpointing, found.per_device) == (16, True, 2)
