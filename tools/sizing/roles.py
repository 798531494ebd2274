"""Which models stand beside the one that is trained, and whether answers are written on the way: by the method.

Defaults are those of TRL (0.24 to 1.16) and LLaMA-Factory (0.9.5), read from their sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nightlab.tools.sizing.batch import EffectiveBatch
from nightlab.tools.sizing.configuration import Configuration
from nightlab.tools.sizing.generating import Generation
from nightlab.tools.sizing.shapes import ModelShape, shape_of

__all__ = ["Roles"]

USUAL_PROMPT = 512
"""Tokens of a prompt that nothing bounds: TRL's own bound, while it had one."""
USUAL_ANSWER = {"grpo": 256, "rloo": 256, "ppo": 53, "gkd": 128}
FACTORY_ANSWER = 1024
"""LLaMA-Factory's `max_new_tokens`."""
USUAL_KL = {"rloo": 0.05}
"""Where a framework's default is above 0."""
USUAL_SHARE = 0.3
"""TRL's `vllm_gpu_memory_utilization`."""
ROLLOUT_AT_ONCE = 64
"""TRL's `local_rollout_forward_batch_size`."""
WITHOUT_REFERENCE = frozenset({"orpo", "simpo"})


@dataclass(frozen=True)
class Roles:
    """The models of one configuration; with `sparing`, what it leaves open is what needs least memory."""

    configuration: Configuration
    root: Path
    sparing: bool = False

    @property
    def is_roll(self) -> bool:
        """ROLL moves its workers' models between devices and the machine's memory: nothing tells what is where."""
        return any(name.startswith(("actor_train.", "actor_infer.")) for name in self.configuration.values)

    @property
    def _online(self) -> str | None:
        """The method whose answers are written on the way; None for those that learn from what is there."""
        words = self.configuration.method.split("_")
        if self.configuration.value("teacher") and "distill" in words:
            return "gkd"
        return next((word for word in words if word in USUAL_ANSWER), None)

    @property
    def _is_factory(self) -> bool:
        return self.configuration.value("stage") in ("ppo", "rm", "dpo", "kto", "sft", "pt")

    def sequence(self, window: int | None) -> int | None:
        """Tokens of one sequence; where answers are written, of a prompt with its answer."""
        answer, prompt = self._answer, self.configuration.number("prompt_length")
        if self._online in (None, "gkd"):
            return window
        if answer is None:
            return None
        return (prompt or window or (0 if self.sparing else USUAL_PROMPT)) + answer

    @property
    def _answer(self) -> int | None:
        said = self.configuration.number("answer_length")
        if said or self._online is None or not self.configuration.is_framework:
            return said
        return FACTORY_ANSWER if self._is_factory else USUAL_ANSWER[self._online]

    @property
    def scored(self) -> int | None:
        """GRPO computes logits of the answers alone; a reward model of TRL has a head of one number."""
        words = set(self.configuration.method.split("_"))
        if words & {"rm", "reward"} and not self._is_factory:
            return 0
        return self._answer if self._online in ("grpo", "rloo") else None

    @property
    def has_reference(self) -> bool:
        """DPO, KTO and PPO compare with a frozen copy, GRPO only where divergence from it is punished."""
        configuration, words = self.configuration, set(self.configuration.method.split("_"))
        precomputed = any(configuration.switch(one) for one in ("precompute_ref_log_probs", "reference_free"))
        if words & {"dpo", "kto"}:
            return not precomputed and configuration.value("pref_loss") not in WITHOUT_REFERENCE
        if self._online in ("grpo", "rloo"):
            said = configuration.fraction("kl")
            if said is None and not configuration.is_framework:
                return not self.sparing
            return (USUAL_KL.get(self._online, 0.0) if said is None else said) > 0
        return self._online == "ppo"

    @property
    def has_critic(self) -> bool:
        """TRL's PPO trains a value model; LLaMA-Factory's a head on the policy."""
        return self._online == "ppo" and not self._is_factory

    @property
    def frozen_copies(self) -> int:
        """A reward model, taken to be as large as the policy; a reference given by name beside adapters."""
        configuration = self.configuration
        if self._online == "ppo":
            kind = configuration.value("reward_model_type") or ("lora" if self._is_factory else "full")
            rewards = int(kind == "full")
        else:
            rewards = int(self._online is not None and configuration.value("reward") is not None)
        is_adapter = configuration.value("finetuning_type") == "lora" or configuration.switch("use_peft") is True
        return rewards + int(is_adapter and self.has_reference and configuration.value("reference") is not None)

    @property
    def teacher(self) -> ModelShape | None:
        """Of distillation with the teacher in memory; its answers or its cached logits need none."""
        name = self.configuration.value("teacher")
        return shape_of(name, self.root) if isinstance(name, str) and self._online == "gkd" else None

    def generation(self, batch: EffectiveBatch, sequence: int) -> Generation | None:
        """How answers are written; None where none are, or where a server elsewhere writes them."""
        configuration, answer = self.configuration, self._answer
        if self._online is None or answer is None:
            return None
        if configuration.switch("use_vllm") and self._online in ("grpo", "rloo"):
            if configuration.value("vllm_mode") == "server" or (self.sparing and not configuration.value("vllm_mode")):
                return None
            share = configuration.fraction("vllm_gpu_memory_utilization") or USUAL_SHARE
            sleeps = configuration.switch("vllm_enable_sleep_mode") is True
            gpus = configuration.number("vllm_tensor_parallel_size") or 1
            return Generation(self._written(batch), sequence, share, sleeps, gpus)
        kept = batch.per_device * batch.accumulation * (configuration.number("num_mini_batches") or 1)
        kept_tokens = kept * answer if self._online == "ppo" and not self._is_factory else 0
        return Generation(self._written(batch), sequence, kept_tokens=kept_tokens)

    def _written(self, batch: EffectiveBatch) -> int:
        """Answers written at a time on one GPU."""
        configuration = self.configuration
        if self._online == "ppo" and not self._is_factory:
            own = batch.per_device * batch.accumulation * (configuration.number("num_mini_batches") or 1)
            return min(own, configuration.number("local_rollout_forward_batch_size") or ROLLOUT_AT_ONCE)
        if self._online == "ppo" or self._online == "gkd":
            return batch.per_device
        if whole := configuration.number("generation_batch_size"):
            return max(1, whole // batch.world_size)
        return batch.per_device * (configuration.number("steps_per_generation") or batch.accumulation)
