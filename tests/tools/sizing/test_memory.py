"""Sizes against figures that were published or measured elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nightlab.tools.sizing.fitting import FAR_BEYOND, fit
from nightlab.tools.sizing.generating import Generation, cache_bytes
from nightlab.tools.sizing.memory import ERROR, GIB, UNMEASURED_ERROR, Plan, estimate_memory
from nightlab.tools.sizing.shapes import ModelShape, shape_from_config, shape_from_size, shape_of

GB = 1e9
LLAMA = {"hidden_act": "silu", "tie_word_embeddings": False}
CONFIGS: dict[str, tuple[dict[str, Any], float]] = {
    "Llama-2-7B": (
        LLAMA
        | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32_000}
        | {"intermediate_size": 11_008},
        6_738_415_616,
    ),
    "Qwen2.5-7B": (
        LLAMA
        | {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}
        | {"vocab_size": 152_064, "intermediate_size": 18_944},
        7_615_616_512,
    ),
    "SmolLM2-135M": (
        {"hidden_size": 576, "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3}
        | {"vocab_size": 49_152, "intermediate_size": 1536, "hidden_act": "silu", "tie_word_embeddings": True},
        134_515_008,
    ),
    "Mixtral-8x7B": (
        LLAMA
        | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
        | {"vocab_size": 32_000, "intermediate_size": 14_336, "num_local_experts": 8, "num_experts_per_tok": 2},
        46_702_792_704,
    ),
    "GPT-2": (
        {"n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50_257, "activation_function": "gelu_new"},
        124_439_808,
    ),
}


def shape(name: str) -> ModelShape:
    found = shape_from_config(CONFIGS[name][0])
    assert found is not None
    return found


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_are_counted_as_published(name: str) -> None:
    assert shape(name).parameters == pytest.approx(CONFIGS[name][1], rel=0.01)


SEVEN = shape("Llama-2-7B")
TYPICAL = Plan(per_device=1, sequence=2048, checkpointing=True)


def test_adam_in_mixed_precision_holds_sixteen_bytes_a_parameter() -> None:
    """ZeRO (1910.02054), section 3.1: 16 bytes a parameter, so 112 GB for 7 billion."""
    assert estimate_memory(shape_from_size(7e9), TYPICAL).states == pytest.approx(112 * GB)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_divides_the_states(stage: int, gigabytes: float) -> None:
    """ZeRO, figure 1: 7.5 billion parameters on 64 GPUs."""
    plan = replace(TYPICAL, zero_stage=stage, world_size=64)
    assert estimate_memory(shape_from_size(7.5e9), plan).states == pytest.approx(gigabytes * GB, rel=0.02)


@pytest.mark.parametrize(
    ("plan", "gigabytes"),
    [
        (TYPICAL, 120),
        (replace(TYPICAL, precision="pure16"), 60),
        (replace(TYPICAL, lora_rank=8), 16),
        (replace(TYPICAL, lora_rank=8, quantized_bits=8), 10),
        (replace(TYPICAL, lora_rank=8, quantized_bits=4), 6),
    ],
    ids=["full", "pure bf16", "lora", "qlora 8", "qlora 4"],
)
def test_the_table_of_llamafactory_for_seven_billion(plan: Plan, gigabytes: float) -> None:
    """Its README's table of hardware, 7B."""
    assert estimate_memory(SEVEN, plan).total == pytest.approx(gigabytes * GB, rel=ERROR)


def test_adapters_are_counted_as_peft_counts_them() -> None:
    """Rank 8 on all linear layers of Llama-2-7B: 19,988,480 trainable parameters."""
    assert SEVEN.lora_parameters(8) == 19_988_480
    assert SEVEN.lora_parameters(8, attention_only=True) == 8_388_608


def test_activations_as_measured_with_saved_tensors() -> None:
    """A Llama of 4 layers in bf16: PyTorch saved 11,160 bytes a token and layer, and 4 a token and word after it."""
    config = LLAMA | {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    small = shape_from_config(config | {"intermediate_size": 688, "vocab_size": 1000})
    assert small is not None
    estimate = estimate_memory(small, Plan(per_device=4, sequence=128, precision="pure16"))
    assert estimate.activations == pytest.approx(4 * 4 * 128 * 11_160, rel=0.02)
    assert estimate.logits == 10 * 4 * 128 * 1000


def test_what_saves_memory_saves_it() -> None:
    plan = Plan(per_device=4, sequence=2048)
    whole = estimate_memory(SEVEN, plan)
    assert estimate_memory(SEVEN, replace(plan, checkpointing=True)).activations < whole.activations / 8
    assert estimate_memory(SEVEN, replace(plan, fused_loss=True)).logits == 0
    assert estimate_memory(SEVEN, replace(plan, flash_attention=False)).activations > 1.5 * whole.activations
    assert estimate_memory(SEVEN, replace(plan, optimizer="adam_8bit")).states == pytest.approx(10 * SEVEN.parameters)
    assert estimate_memory(SEVEN, replace(plan, offload_optimizer=True)).optimizer == 0
    assert estimate_memory(SEVEN, replace(plan, sequences=2)).activations == 2 * whole.activations
    reference = estimate_memory(SEVEN, replace(plan, has_reference=True))
    assert reference.weights == 2 * whole.weights


LLAMA_3 = (
    LLAMA
    | {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    | {"vocab_size": 128_256, "intermediate_size": 14_336}
)


def test_keys_and_values_as_published_and_measured() -> None:
    """PagedAttention (2309.06180): 800 KB a token of OPT-13B. Unsloth's table for GRPO: 2.5 GB for 20K of Llama 3.1 8B.

    A cache of transformers 5.6 held 301,056 bytes for 3 answers of 49 tokens, 4 layers, 2 key-value heads of 64.
    """
    opt = shape_from_config(
        {"hidden_size": 5120, "num_hidden_layers": 40, "num_attention_heads": 40, "vocab_size": 50_272}
    )
    llama = shape_from_config(LLAMA_3)
    small = shape_from_config(
        LLAMA
        | {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
        | {"vocab_size": 1000}
    )
    assert opt and llama and small
    assert cache_bytes(opt, 1, 2) == 800 * 1024
    assert cache_bytes(llama, 20 * 1024, 2) == 2.5 * GIB
    assert cache_bytes(small, 3 * 49, 2) == 301_056


def test_ppo_holds_four_models_and_trains_two() -> None:
    """InstructGPT (2203.02155): policy and value model, with 16 bytes a parameter; reference and reward with 2."""
    plan = replace(TYPICAL, has_reference=True, has_critic=True, frozen_copies=1)
    whole, alone = estimate_memory(SEVEN, plan), estimate_memory(SEVEN, TYPICAL)
    assert whole.states == pytest.approx(36 * SEVEN.parameters)
    assert (whole.optimizer, whole.gradients) == (2 * alone.optimizer, 2 * alone.gradients)
    assert whole.activations == 2 * alone.activations
    adapters = estimate_memory(SEVEN, replace(plan, lora_rank=8))
    assert adapters.states == pytest.approx(20 * SEVEN.parameters, rel=0.02), "the base is the reference"
    sharded = estimate_memory(SEVEN, replace(plan, zero_stage=2, world_size=8))
    assert sharded.weights == whole.weights, "stages below 3 leave weights whole, frozen ones too"


GROUP = Generation(sequences=16, tokens=1024)


def test_answers_are_written_before_the_step_not_during_it() -> None:
    plan = Plan(per_device=1, sequence=1024, lora_rank=8, checkpointing=True, fused_loss=True, generation=GROUP)
    found = estimate_memory(SEVEN, plan)
    assert found.generation == cache_bytes(SEVEN, 16 * 1024, 2)
    assert found.generation > found.activations + found.logits
    assert found.total == pytest.approx(found.states + found.generation + found.overhead)
    assert "or generation 8.0" in str(found)
    small = estimate_memory(SEVEN, replace(plan, generation=replace(GROUP, sequences=1), fused_loss=False))
    assert small.total == pytest.approx(small.states + small.activations + small.logits + small.overhead)


def test_sharded_weights_come_together_to_generate() -> None:
    plan = replace(TYPICAL, zero_stage=3, world_size=4, generation=GROUP)
    found = estimate_memory(SEVEN, plan)
    assert found.generation - cache_bytes(SEVEN, 16 * 1024, 2) == pytest.approx(2 * SEVEN.parameters * 3 / 4)


def test_an_engine_takes_its_share_or_what_it_must_have() -> None:
    engine = replace(GROUP, engine_share=0.3)
    plan = Plan(per_device=1, sequence=1024, lora_rank=8, checkpointing=True, generation=engine)
    found = estimate_memory(SEVEN, plan, 80 * GIB)
    assert found.engine == pytest.approx(24 * GIB) and not found.generation
    least = 2 * SEVEN.parameters + cache_bytes(SEVEN, 1024, 2)
    assert estimate_memory(SEVEN, plan, 24 * GIB).engine == estimate_memory(SEVEN, plan).engine == least
    divided = replace(plan, generation=replace(engine, engine_gpus=2))
    assert estimate_memory(SEVEN, divided).engine == least / 2
    asleep = estimate_memory(SEVEN, replace(plan, generation=replace(engine, engine_sleeps=True)), 80 * GIB)
    assert asleep.generation == pytest.approx(24 * GIB) and not asleep.engine
    assert asleep.total < found.total


def test_only_scored_tokens_have_logits_and_a_teacher_has_its_own() -> None:
    plan = Plan(per_device=2, sequence=1000)
    whole = estimate_memory(SEVEN, plan).logits
    assert estimate_memory(SEVEN, replace(plan, scored=250)).logits == whole / 4
    assert estimate_memory(SEVEN, replace(plan, scored=0)).logits == 0
    taught = estimate_memory(SEVEN, replace(plan, teacher=shape("Mixtral-8x7B")))
    assert taught.logits == whole * 16 / 10
    assert taught.weights == 2 * (SEVEN.parameters + shape("Mixtral-8x7B").parameters)
    kept = replace(plan, generation=Generation(1, 1000, kept_tokens=640))
    assert estimate_memory(SEVEN, kept).logits == whole + 4 * 640 * 32_000


def test_what_was_compared_with_nothing_is_told_with_a_wider_error() -> None:
    plan = Plan(per_device=1, sequence=512, lora_rank=8, generation=GROUP)
    assert (plan.error, TYPICAL.error) == (UNMEASURED_ERROR, ERROR)
    assert "expect ±40 %" in str(fit(SEVEN, plan, 80 * GIB))


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        (Generation(sequences=8, tokens=8192), "answers written 1 at a time"),
        (Generation(sequences=8, tokens=8192, engine_share=0.5), "a vLLM that sleeps while the model trains"),
    ],
)
def test_the_nearest_of_what_generates(generation: Generation, words: str) -> None:
    plan = Plan(per_device=1, sequence=8192, lora_rank=8, checkpointing=True, generation=generation)
    assert words in fit(SEVEN, plan, 34 * GIB).nearest


def test_a_shape_from_the_folder_of_the_model_else_from_its_name(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    config, parameters = CONFIGS["SmolLM2-135M"]
    (tmp_path / "model" / "config.json").write_text(json.dumps({"text_config": config, "vision_config": {}}))
    found = shape_of("model", tmp_path)
    assert found is not None
    assert found.parameters == pytest.approx(parameters, rel=0.01)
    assert not found.is_guessed
    (tmp_path / "model" / "config.json").write_text("{")
    assert shape_of("model", tmp_path) is None
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["Resnet"]}')
    assert shape_of("model", tmp_path) is None
    guessed = shape_of("Qwen/Qwen3-0.6B", tmp_path)
    assert guessed is not None
    assert guessed.is_guessed
    assert guessed.parameters == 0.6e9
    assert shape_of("none", tmp_path) is None
    stated = shape_of("none", tmp_path, 3e8)
    assert stated is not None
    assert stated.parameters == 3e8


@pytest.mark.parametrize("size", [1e6, 1e8, 7e9, 7e10, 1e12])
def test_a_guessed_shape_has_about_the_size(size: float) -> None:
    found = shape_from_size(size)
    assert 12 * found.layers * found.hidden**2 == pytest.approx(size, rel=0.5)


@pytest.mark.parametrize(
    ("plan", "device", "words"),
    [
        (replace(TYPICAL, lora_rank=8), 24, ""),
        (Plan(per_device=8, sequence=2048, lora_rank=8), 48, "per-device batch 2 with 4 times the accumulation"),
        (Plan(per_device=4, sequence=4096, lora_rank=8), 20, "gradient checkpointing"),
        (replace(TYPICAL, world_size=8), 80, "ZeRO stage 1"),
        (replace(TYPICAL, world_size=2), 64, "ZeRO stage 1, ZeRO stage 2"),
        (TYPICAL, 80, "an optimiser in 8 bits"),
        (TYPICAL, 24, "LoRA instead of full training"),
        (TYPICAL, 10, "LoRA on a base in 4 bits (QLoRA)"),
        (replace(TYPICAL, lora_rank=8), 10, "a base in 4 bits (QLoRA)"),
    ],
)
def test_the_nearest_that_fits(plan: Plan, device: float, words: str) -> None:
    found = fit(SEVEN, plan, device * GIB)
    assert found.fits is not bool(words)
    assert found.nearest.startswith(f"The nearest that fits: {words}" if words else "")
    assert (words in str(found)) is True


def test_what_nothing_makes_fit_says_so() -> None:
    found = fit(SEVEN, TYPICAL, 2 * GIB)
    assert found.nearest == ""
    assert "take a smaller model" in str(found)
    assert found.is_hopeless
    assert 1 < FAR_BEYOND < 1.25


def test_only_what_no_reading_makes_fit_is_hopeless() -> None:
    plan = Plan(per_device=16, sequence=4096, lora_rank=8)
    sparing = replace(plan, checkpointing=True, fused_loss=True)
    assert fit(SEVEN, plan, 40 * GIB).is_hopeless
    assert not fit(SEVEN, plan, 40 * GIB, sparing).is_hopeless
    assert not fit(SEVEN, plan, 40 * GIB, sparing).fits
