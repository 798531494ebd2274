"""What LLaMA-Factory refuses before it trains, told beforehand.

Source: llamafactory 0.9.5, hparams/parser.py, finetuning_args.py, data_args.py, model_args.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["problems_of"]

Problem = tuple[str, str, str]
"""Key, what is wrong with it, how to mend it."""

MEMORY_SAVERS = ("use_galore", "use_apollo", "use_badam")
LORA_ONLY = ("loraplus_lr_ratio", "use_rslora", "use_dora", "pissa_init")
SFT_ONLY = ("predict_with_generate", "neat_packing", "train_on_prompt", "mask_history")


def problems_of(document: Mapping[str, Any], *, processes: int = 1) -> Iterator[Problem]:
    """Everything the framework would refuse in a configuration, run by so many processes."""
    found = _Checked(document)
    yield from _of_stage(found)
    yield from _of_data(found)
    yield from _of_method(found)
    yield from _of_optimizer(found, processes)
    yield from _of_model(found)
    yield from _of_evaluation(found)


class _Checked:
    """A configuration with the framework's own defaults behind it."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def __getitem__(self, key: str) -> Any:
        return self._document.get(key)

    @property
    def stage(self) -> str:
        return str(self["stage"] or "sft")

    @property
    def method(self) -> str:
        return str(self["finetuning_type"] or "lora")

    @property
    def pref_loss(self) -> str:
        return str(self["pref_loss"] or "sigmoid")

    @property
    def uses_reference(self) -> bool:
        """Whether a second, frozen model stands beside the trained one."""
        needs = self.stage == "kto" or (self.stage == "dpo" and self.pref_loss not in ("orpo", "simpo"))
        return needs or bool(self["ref_model"]) or bool(self["use_asft_loss"])


def _of_stage(found: _Checked) -> Iterator[Problem]:
    if found.stage != "sft":
        for key in SFT_ONLY:
            if found[key]:
                yield key, f"is only for stage sft, not {found.stage}", "take it out"
    elif found["do_predict"] and not found["predict_with_generate"]:
        yield "do_predict", "needs predict_with_generate", "set predict_with_generate: true"
    if found.stage in ("rm", "ppo") and found["load_best_model_at_end"]:
        yield "load_best_model_at_end", f"is not for stage {found.stage}", "set it to false"
    if found.stage == "ppo":
        if not found["reward_model"]:
            yield "reward_model", "is missing for stage ppo", "name the reward model"
        if found["do_eval"] or found["do_predict"]:
            yield "do_train", "stage ppo only trains", "take do_eval and do_predict out; predict in stage sft"
    if found["dpo_label_smoothing"] and found.stage == "dpo" and found.pref_loss != "sigmoid":
        yield "dpo_label_smoothing", f"is only for pref_loss sigmoid, not {found.pref_loss}", "set it to 0"


def _of_data(found: _Checked) -> Iterator[Problem]:
    if found["do_train"] and not found["dataset"]:
        yield "dataset", "is missing", "name the training data as dataset_info.json does"
    asked = found["do_eval"] or found["do_predict"] or found["predict_with_generate"]
    evaluates = found["eval_strategy"] not in (None, "no", False)
    size = found["val_size"] if isinstance(found["val_size"], int | float) else 0
    if (asked or evaluates) and not found["eval_dataset"] and size < 1e-6:
        yield "eval_dataset", "is missing, although something is to be evaluated", "name it, or set val_size"
    if found["eval_dataset"] and size > 1e-6:
        yield "val_size", "does not go with eval_dataset", "keep one of them"
    if size > 1e-6 and not found["dataset"]:
        yield "val_size", "splits a dataset, but there is none", "name dataset"
    if found["streaming"]:
        if found["max_steps"] in (None, -1):
            yield "max_steps", "is missing for streaming", "say after how many steps training ends"
        if 1e-6 < size < 1:
            yield "val_size", "must be a whole number for streaming", "give a number of examples"
        if found["max_samples"] is not None:
            yield "max_samples", "does not go with streaming", "take one of them out"
    if found["interleave_probs"] and (found["mix_strategy"] or "concat") == "concat":
        yield "interleave_probs", "does not go with mix_strategy concat", "set mix_strategy: interleave_under"
    if found["mask_history"] and found["train_on_prompt"]:
        yield "mask_history", "does not go with train_on_prompt", "keep one of them"


def _of_method(found: _Checked) -> Iterator[Problem]:
    if found.method != "lora":
        for key in LORA_ONLY:
            if found[key]:
                yield key, f"is only for finetuning_type lora, not {found.method}", "take it out, or train with lora"
        if found["adapter_name_or_path"] and found.method != "oft":
            mend = "take it out, or merge it first"
            yield "adapter_name_or_path", f"is only for finetuning_type lora, not {found.method}", mend
    if found["pissa_init"]:
        if found.stage in ("ppo", "kto") or found.uses_reference:
            yield "pissa_init", "does not go with ppo, kto or a reference model", "take it out"
        if found["quantization_bit"]:
            yield "pissa_init", "does not go with quantization_bit", "keep one of them"
        if _is_zero3(found["deepspeed"]):
            yield "pissa_init", "does not go with ZeRO-3", "use ZeRO-2, or take it out"
    losses = [key for key in ("use_dft_loss", "use_asft_loss", "use_eaft_loss") if found[key]]
    for key in losses:
        if found.stage != "sft":
            yield key, f"is only for stage sft, not {found.stage}", "take it out"


def _of_optimizer(found: _Checked, processes: int) -> Iterator[Problem]:
    used = [key for key in MEMORY_SAVERS if found[key]]
    for key in used:
        if found.method == "lora":
            yield key, "does not go with finetuning_type lora", "set finetuning_type: full, or take it out"
        if found["deepspeed"] and key != "use_badam":
            yield key, "does not go with deepspeed", "keep one of them"
    for key in used[1:]:
        yield key, f"does not go with {used[0]}", "keep one of them"
    if processes > 1:
        for name in ("galore", "apollo"):
            if found[f"use_{name}"] and found[f"{name}_layerwise"]:
                yield f"{name}_layerwise", "works in one process only", "set it to false"
        if found["use_badam"]:
            if found["badam_mode"] == "ratio":
                yield "badam_mode", "ratio works in one process only", "write layer, with ZeRO-3"
            elif not _is_zero3(found["deepspeed"]):
                yield "use_badam", "needs ZeRO-3 where there are several processes", "name a ZeRO-3 file as deepspeed"
    if found["pure_bf16"] and _is_zero3(found["deepspeed"]):
        yield "pure_bf16", "does not go with ZeRO-3", "use bf16: true instead"


def _of_model(found: _Checked) -> Iterator[Problem]:
    if found["quantization_bit"]:
        if found.method not in ("lora", "oft"):
            yield "quantization_bit", f"is only for lora and oft, not {found.method}", "take it out"
        if found["resize_vocab"]:
            yield "resize_vocab", "does not go with quantization_bit", "keep one of them"
        adapters = found["adapter_name_or_path"] or ""
        if isinstance(adapters, str) and "," in adapters and found["create_new_adapter"]:
            yield "adapter_name_or_path", "may name one adapter only with quantization_bit", "merge them first"
        if found["fp8"]:
            yield "fp8", "does not go with quantization_bit", "keep one of them"
    if found["use_unsloth"] and _is_zero3(found["deepspeed"]):
        yield "use_unsloth", "does not go with ZeRO-3", "use ZeRO-2, or take it out"
    if found["infer_backend"] not in (None, "huggingface"):
        yield "infer_backend", "is not for training", "take it out"
    if found["bf16"] and found["fp16"]:
        yield "fp16", "does not go with bf16", "keep one of them"


def _of_evaluation(found: _Checked) -> Iterator[Problem]:
    if found["predict_with_generate"]:
        if _is_zero3(found["deepspeed"]):
            yield "predict_with_generate", "does not go with ZeRO-3", "predict in a second step (launcher.predict)"
        if found["compute_accuracy"]:
            yield "compute_accuracy", "does not go with predict_with_generate", "keep one of them"
    if found["load_best_model_at_end"]:
        # What the framework has when nothing is said.
        when = found["eval_strategy"] or "no", found["save_strategy"] or "steps"
        if when[1] != "best" and when[0] != when[1]:
            message = f"needs eval_strategy and save_strategy alike; they are {when[0]} and {when[1]}"
            yield "load_best_model_at_end", message, "make them the same"
        if found["save_only_model"] and found["deepspeed"]:
            yield "save_only_model", "does not go with load_best_model_at_end and deepspeed", "keep two of the three"
    if found["early_stopping_steps"] is not None and not found["load_best_model_at_end"]:
        yield "early_stopping_steps", "needs load_best_model_at_end", "set load_best_model_at_end: true"


def _is_zero3(deepspeed: object) -> bool:
    """By the name of its file, or the settings themselves."""
    if isinstance(deepspeed, Mapping):
        return bool(deepspeed.get("zero_optimization", {}).get("stage") == 3)
    return isinstance(deepspeed, str) and any(mark in deepspeed.lower() for mark in ("z3", "zero3", "zero_3", "stage3"))
