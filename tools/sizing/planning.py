"""From a configuration to how it trains, as far as memory depends on it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from nightlab.tools.sizing.batch import effective_batch
from nightlab.tools.sizing.configuration import Configuration, leaf
from nightlab.tools.sizing.memory import Optimizer, Plan, Precision
from nightlab.tools.sizing.roles import Roles

__all__ = ["plan_of"]

UNKNOWN_METHODS = frozenset({"infer", "inference", "predict", "eval", "agentic", "rlvr"})
"""What does not train, or whose rollouts are not told by its parameters: nothing is estimated."""
UNKNOWN_TUNING = frozenset({"freeze", "oft"})
PAIRS = frozenset({"dpo", "orpo", "simpo", "cpo", "kto", "rm", "reward"})
ATTENTION = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "c_attn", "query_key_value"})
CHECKPOINTING_BY_DEFAULT = "cutoff_len"
"""An argument of LLaMA-Factory's alone, by which a script shows that it starts that."""
_STAGE = re.compile(r"(?:z|zero_?|stage_?)([0-3])(?!\d)", re.IGNORECASE)


def plan_of(configuration: Configuration, window: int | None, root: Path, *, sparing: bool = False) -> Plan | None:
    """How a configuration trains on rows of at most `window` tokens; None where batch or window are not told.

    `root` is where files that it names lie. What it does not say is as the framework's defaults are; with `sparing`, as
    what needs least memory.
    """
    batch, words = effective_batch(configuration), set(configuration.method.split("_"))
    kind, roles = configuration.value("finetuning_type"), Roles(configuration, root, sparing=sparing)
    window = roles.sequence(window)
    if batch is None or window is None or words & UNKNOWN_METHODS or kind in UNKNOWN_TUNING or roles.is_roll:
        return None
    rank, bits = _adapter(configuration)
    stage, offload_optimizer, offload_parameters = _sharding(configuration, root)
    target = configuration.value("lora_target")
    return Plan(
        per_device=batch.per_device,
        sequence=window,
        world_size=batch.world_size,
        precision=_precision(configuration, sparing=sparing),
        optimizer=_optimizer(configuration, sparing=sparing),
        lora_rank=rank,
        lora_attention_only=isinstance(target, str) and set(re.split(r"[,\s]+", target)) <= ATTENTION,
        quantized_bits=bits,
        zero_stage=stage,
        offload_optimizer=offload_optimizer,
        offload_parameters=offload_parameters,
        checkpointing=_checkpointing(configuration, sparing=sparing),
        flash_attention=configuration.value("flash_attn") not in ("disabled", "eager", False),
        fused_loss=sparing if (said := configuration.switch("liger")) is None else said,
        sequences=2 if words & PAIRS else 1,
        scored=roles.scored,
        has_reference=roles.has_reference,
        has_critic=roles.has_critic,
        frozen_copies=roles.frozen_copies,
        teacher=roles.teacher,
        generation=roles.generation(batch, window),
    )


def _adapter(configuration: Configuration) -> tuple[int | None, int | None]:
    """The rank of a LoRA, None for full training, and the bits of a quantised base."""
    kind, method = configuration.value("finetuning_type"), configuration.method
    rank = configuration.number("lora_rank")
    if kind is None and (peft := configuration.switch("use_peft")) is not None:
        kind = "lora" if peft else "full"
    if kind is None:
        kind = "lora" if "lora" in method or (rank and "full" not in method) else "full"
    bits = configuration.number("quantization_bit") or (4 if "qlora" in method else None)
    for width, name in ((4, "load_in_4bit"), (8, "load_in_8bit")):
        bits = width if configuration.switch(name) else bits
    return (rank or 8, bits) if "lora" in str(kind) else (None, None)


def _precision(configuration: Configuration, *, sparing: bool) -> Precision:
    given = [configuration.switch(name) for name in ("bf16", "fp16")]
    word, name = str(configuration.value("precision") or "").lower(), configuration.named("precision")
    # TRL loads the weights themselves in `dtype`; of a script nobody knows.
    is_of_weights = name is not None and leaf(name) in ("dtype", "torch_dtype")
    loads_16_bits = "16" in word and is_of_weights and (configuration.is_framework or sparing)
    if configuration.switch("pure_bf16") or loads_16_bits:
        return "pure16"
    if any(given) or "16" in word:
        return "mixed"
    if "32" in word or word == "no" or False in given:
        return "fp32"
    return "pure16" if sparing else "mixed"


def _optimizer(configuration: Configuration, *, sparing: bool) -> Optimizer:
    said = configuration.value("optim")
    name = str(said or "adamw").lower()
    is_low_rank = any(configuration.switch(one) for one in ("use_galore", "use_apollo", "use_badam"))
    if is_low_rank or any(word in name for word in ("galore", "apollo", "badam", "adafactor")):
        return "low_rank"
    if "8bit" in name or "8_bit" in name or "bnb" in name:
        return "adam_8bit"
    if "sgd" in name or (sparing and said is None and not configuration.is_framework):
        return "sgd"
    return "momentum" if "lion" in name or "muon" in name else "adam"


def _checkpointing(configuration: Configuration, *, sparing: bool) -> bool:
    if (said := configuration.switch("gradient_checkpointing")) is not None:
        return said
    if configuration.switch("disable_gradient_checkpointing"):
        return False
    # LLaMA-Factory and TRL do unless they are told not to.
    return (
        sparing
        or configuration.is_framework
        or configuration.named("finetuning_type") is not None
        or CHECKPOINTING_BY_DEFAULT in configuration.values
    )


def _sharding(configuration: Configuration, root: Path) -> tuple[int, bool, bool]:
    """ZeRO's stage, and whether optimiser and parameters are held in the machine's memory."""
    stage = configuration.number("zero_stage") or 0
    fsdp = str(configuration.value("fsdp") or "")
    if "full_shard" in fsdp or "hybrid_shard" in fsdp:
        return 3, "offload" in fsdp, "offload" in fsdp
    given = configuration.value("deepspeed")
    if not isinstance(given, str) or not given:
        return stage, False, False
    try:
        zero = json.loads((root / given).read_text(encoding="utf-8"))["zero_optimization"]
        offloads = [
            (zero.get(key) or {}).get("device") in ("cpu", "nvme") for key in ("offload_optimizer", "offload_param")
        ]
        return int(zero.get("stage", stage)), offloads[0], offloads[1]
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        # A file that only the run's machine has, or none of DeepSpeed's: its name usually says what is in it.
        found = _STAGE.search(given)
        return int(found[1]) if found else stage, "offload" in given, False
