"""Everything a run is configured with, by names that are found whatever framework they are of."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.tools.launchers import launcher_for

__all__ = ["NAMES", "Configuration", "configuration_of", "leaf"]

NAMES: dict[str, tuple[str, ...]] = {
    "cutoff_len": (
        "cutoff_len",
        "max_seq_length",
        "max_seq_len",
        "max_length",
        "model_max_length",
        "sequence_length",
        "seq_length",
        "seq_len",
        "block_size",
        "context_length",
    ),
    "world_size": ("world_size", "num_gpus", "n_gpus", "nproc_per_node", "num_processes", "num_gpus_per_node"),
    "packing": ("packing", "neat_packing"),
    "finetuning_type": ("finetuning_type", "training_type", "tuner_type"),
    "use_peft": ("use_peft", "use_lora"),
    "lora_rank": ("lora_rank", "lora_r"),
    "lora_target": ("lora_target", "lora_target_modules", "target_modules"),
    "quantization_bit": ("quantization_bit", "quant_bits"),
    "optim": ("optim", "optimizer", "optimiser"),
    "precision": ("precision", "mixed_precision", "dtype", "torch_dtype"),
    "deepspeed": ("deepspeed", "deepspeed_config"),
    "gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
    "flash_attn": ("flash_attn", "attn_implementation", "use_flash_attention_2", "use_flash_attn"),
    "prompt_length": ("max_prompt_length",),
    "answer_length": ("max_completion_length", "max_new_tokens", "response_length"),
    "kl": ("beta", "kl_coef", "kl"),
    "reference": ("ref_model", "ref_model_name_or_path"),
    "reward": ("reward_model", "reward_model_path", "reward_model_name_or_path"),
    "teacher": ("teacher_model_name_or_path", "teacher_model"),
    "liger": ("enable_liger_kernel", "use_liger_kernel", "use_liger"),
}
"""Name → what LLaMA-Factory, TRL, Hugging Face, Accelerate and scripts call it, where that is not the name alone."""


def leaf(name: str) -> str:
    """The last part of a dotted name, in one spelling."""
    return name.replace("/", ".").rsplit(".", 1)[-1].replace("-", "_").lower()


@dataclass(frozen=True)
class Configuration:
    """One configuration of a study, with what its framework's file adds to the parameters."""

    values: Mapping[str, Scalar]
    """Nested keys have dotted names."""
    method: str = ""
    processes: int = 1
    """Of one run, where no parameter says."""
    is_framework: bool = False
    """A known framework runs it, whose defaults hold for what is not said."""
    own: Mapping[str, str] = field(default_factory=dict)
    """The catalog's name → the study's, as `catalog.parameters` has it."""

    def named(self, name: str) -> str | None:
        """What one of `NAMES` is called here: the study's own name, else a usual one in any section; None without."""
        if (own := self.own.get(name)) in self.values:
            return own
        for usual in NAMES.get(name, (name,)):
            found = [one for one in self.values if leaf(one) == usual]
            if len(found) == 1:
                return found[0]
        return None

    def value(self, name: str) -> Scalar | None:
        own = self.named(name)
        return None if own is None else self.values[own]

    def number(self, name: str) -> int | None:
        """A whole number above 0; None for everything else."""
        value = self.value(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return int(value) if is_number and float(value).is_integer() and value > 0 else None  # type: ignore[arg-type, operator]

    def fraction(self, name: str) -> float | None:
        """A number; None for everything else."""
        value = self.value(name)
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None

    def switch(self, name: str) -> bool | None:
        """True or false, also as text; None for everything else."""
        value = self.value(name)
        if isinstance(value, str):
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}.get(value.lower())
        return value if isinstance(value, bool) else None


def configuration_of(study: Study, root: Path, parameters: Mapping[str, Scalar] | None = None) -> Configuration:
    """That of a run with these parameters, by default the baseline's. `root` is a checkout of the repository."""
    parameters = study.parameters if parameters is None else parameters
    launcher = study.launcher
    try:
        files = launcher_for(study).files(parameters, root)
    except LauncherError:
        # The preflight says what is wrong with it; the parameters alone tell enough.
        files = {}
    values: dict[str, Scalar] = {}
    for path, text in files.items():
        values |= dict(_leaves(json.loads(text) if path.endswith(".json") else yaml.safe_load(text)))
    if not launcher.is_framework:
        values |= parameters
    distributed = launcher.distributed
    return Configuration(
        values or dict(parameters),
        study.method.replace("-", "_"),
        (distributed and distributed.processes) or max(1, study.backend.gpus_per_job),
        launcher.is_framework,
        study.catalog.parameters,
    )


def _leaves(node: object, name: str = "") -> Iterator[tuple[str, Scalar]]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, bool | int | float | str):
        yield name, node
    elif isinstance(node, list) and all(isinstance(one, str) for one in node):
        yield name, ",".join(node)
