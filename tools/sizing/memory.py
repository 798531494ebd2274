"""What one GPU must hold to train: formulas with their sources. Estimates, good to about a quarter either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nightlab.tools.sizing.generating import Generation, engine_bytes, generation_bytes, kept_logits
from nightlab.tools.sizing.shapes import ModelShape

__all__ = ["ERROR", "GIB", "UNMEASURED_ERROR", "MemoryEstimate", "Optimizer", "Plan", "Precision", "estimate_memory"]

GIB = 1024**3
ERROR = 0.25
"""How far a real run is off, either way, as a rule: allocators, kernels and frameworks differ."""
UNMEASURED_ERROR = 0.4
"""The same where further models or generation are part of it: no published table was found to compare these with."""

Precision = Literal["mixed", "pure16", "fp32"]
"""`mixed`: 16-bit arithmetic with fp32 masters; `pure16`: everything in 16 bits."""

Optimizer = Literal["adam", "adam_8bit", "sgd", "momentum", "low_rank"]
OPTIMIZER_BYTES: dict[Optimizer, float] = {"adam": 8, "adam_8bit": 2, "sgd": 0, "momentum": 4, "low_rank": 1}
"""Bytes a trained parameter: two moments in fp32; in 8 bits (Dettmers et al., arXiv 2110.02861); none; one (also Lion,
Muon); projected or by blocks (GaLore arXiv 2403.03507, APOLLO, BAdam), about."""

CONTEXT_BYTES = 0.8 * GIB
"""CUDA's context and the libraries' workspaces, on each GPU."""
FRAGMENTS = 0.05
"""Share of what is allocated that the allocator cannot use."""
QUANTIZED_BYTES = {4: 0.5 + 0.127 / 8, 8: 1.0}
"""A parameter in 4 bits with doubly quantised constants (QLoRA, Dettmers et al., arXiv 2305.14314), or in 8."""


@dataclass(frozen=True)
class Plan:
    """How a model is trained, as far as memory depends on it."""

    per_device: int
    sequence: int
    """Tokens of one example."""
    world_size: int = 1
    precision: Precision = "mixed"
    optimizer: Optimizer = "adam"
    lora_rank: int | None = None
    """None: all parameters are trained."""
    lora_attention_only: bool = False
    quantized_bits: int | None = None
    """Of a frozen base model."""
    zero_stage: int = 0
    """ZeRO's, or 3 for fully sharded data parallel."""
    offload_optimizer: bool = False
    offload_parameters: bool = False
    checkpointing: bool = False
    """Activations are computed again in the backward pass."""
    flash_attention: bool = True
    fused_loss: bool = False
    """The loss is computed in pieces: the logits are never held whole (Liger, arXiv 2410.10989)."""
    sequences: int = 1
    """Sequences an example puts through the model: 2 for a preference pair."""
    scored: int | None = None
    """Tokens of a sequence that the loss needs logits of: 0 for a head of one number; None: all."""
    has_reference: bool = False
    """A frozen copy of the model is held beside it; under adapters the base itself is that."""
    has_critic: bool = False
    """A second model of the same shape is trained whole: PPO's value model."""
    frozen_copies: int = 0
    """Further frozen models of the same shape, such as PPO's reward model."""
    teacher: ModelShape | None = None
    """A frozen model of another shape that scores the same tokens."""
    generation: Generation | None = None
    """Answers are written while it trains."""

    @property
    def error(self) -> float:
        """How far the estimate may be off, either way."""
        is_plain = not (self.has_critic or self.frozen_copies or self.teacher or self.generation)
        return ERROR if is_plain else UNMEASURED_ERROR


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on each GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    overhead: float
    generation: float = 0.0
    """While answers are written, in place of activations and logits."""
    engine: float = 0.0
    """Of an inference engine that stays while the model trains."""

    @property
    def total(self) -> float:
        return self.states + max(self.activations + self.logits, self.generation) + self.engine + self.overhead

    @property
    def states(self) -> float:
        """What does not depend on the batch: weights, gradients, optimiser."""
        return self.weights + self.gradients + self.optimizer

    def __str__(self) -> str:
        parts = {"weights": self.weights, "gradients": self.gradients, "optimiser": self.optimizer}
        parts |= {"activations": self.activations, "logits": self.logits}
        parts |= {"or generation": self.generation, "vLLM": self.engine}
        shown = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size >= 0.05 * GIB)
        return f"{self.total / GIB:.1f} GiB ({shown})" if shown else f"{self.total / GIB:.1f} GiB"


def estimate_memory(shape: ModelShape, plan: Plan, device: float | None = None) -> MemoryEstimate:
    """What one GPU must hold at its peak: in a training step, or while answers are written.

    `device`: bytes of the GPU, of which an inference engine takes its share; without it the least it can do with.
    """
    width = _width(plan)
    weights, gradients, optimizer = _states(shape, plan)
    activations, logits = _activations(shape, plan), _logits(shape, plan)
    generation, engine = 0.0, 0.0
    if plan.generation:
        engine = engine_bytes(shape, plan.generation, width, device)
        kept = kept_logits(shape, plan.generation)
        logits, generation = logits + kept, kept + generation_bytes(shape, plan.generation, width)
        if plan.zero_stage >= 3 and not plan.generation.engine_share:
            # The trainer puts the shares together before it generates.
            generation += width * shape.parameters * (1 - 1 / plan.world_size)
    held = weights + gradients + optimizer + max(activations + logits, generation)
    overhead = CONTEXT_BYTES + FRAGMENTS * held
    if plan.generation and plan.generation.engine_sleeps:
        generation, engine = generation + engine, 0.0
    return MemoryEstimate(weights, gradients, optimizer, activations, logits, overhead, generation, engine)


def _width(plan: Plan) -> int:
    """Bytes of a number in the arithmetic."""
    return 4 if plan.precision == "fp32" else 2


def _states(shape: ModelShape, plan: Plan) -> tuple[float, float, float]:
    """Weights, gradients and optimiser on one GPU, of every model that is held.

    Mixed precision with Adam holds 16 bytes a trained parameter: 2 + 2 for weight and gradient in 16 bits, 12 for fp32
    master and moments (Rajbhandari et al. 2019, ZeRO, arXiv 1910.02054, section 3.1). ZeRO divides the optimiser's
    share over the GPUs from stage 1, the gradients from stage 2, the weights from stage 3 (section 5 there). PPO holds
    four models, two of them trained (Ouyang et al. 2022, arXiv 2203.02155, section 3.5; Yao et al. 2023,
    DeepSpeed-Chat, arXiv 2308.01320); frozen ones cost their weights alone, and are divided by stage 3 only.
    """
    width, master = _width(plan), 4 if plan.precision == "mixed" else 0
    frozen = width * (plan.frozen_copies * shape.parameters + (plan.teacher.parameters if plan.teacher else 0.0))
    count, each = float(shape.parameters), width
    if plan.lora_rank is None:
        frozen += width * shape.parameters * plan.has_reference
    else:
        # Adapters are kept in fp32 beside a frozen base in 16 bits or fewer, which is its own reference model.
        count, each = float(shape.lora_parameters(plan.lora_rank, attention_only=plan.lora_attention_only)), 4
        frozen += _frozen_bytes(shape, plan)
    critic = shape.parameters * float(plan.has_critic)
    trained, moments = each * count + width * critic, OPTIMIZER_BYTES[plan.optimizer]
    optimizer = (moments + (master if plan.lora_rank is None else 0)) * count + (moments + master) * critic
    if plan.precision == "pure16" and plan.optimizer in ("adam", "momentum"):
        # The moments take the weights' own type.
        optimizer /= 2
    share = [1 / plan.world_size if plan.zero_stage >= stage else 1.0 for stage in (1, 2, 3)]
    weights = (frozen + trained) * share[2] * (not plan.offload_parameters)
    return weights, trained * share[1], optimizer * share[0] * (not plan.offload_optimizer)


def _frozen_bytes(shape: ModelShape, plan: Plan) -> float:
    """The base under adapters; only the matrices inside the layers are quantised."""
    width = 4 if plan.precision == "fp32" else 2
    if plan.quantized_bits is None:
        return width * shape.parameters
    linear = min(shape.linear_parameters, shape.parameters)
    return QUANTIZED_BYTES.get(plan.quantized_bits, 1.0) * linear + width * (shape.parameters - linear)


def _activations(shape: ModelShape, plan: Plan) -> float:
    """What the backward pass needs of the forward pass.

    After Korthikanti et al. 2022 (arXiv 2205.05198, section 4.1): per layer and token the inputs of norms and linear
    layers, queries, keys, values, and the intermediate results of the feed-forward part; their 34 bytes × hidden are
    for a feed-forward part four times as wide, without a gate, with dropout. Attention that is not fused adds
    5 × heads × sequence bytes. Today's norms keep fp32 copies, which were measured: for a Llama of transformers 5.6 in
    bf16 PyTorch saves 11,160 bytes a token and layer where this gives 11,136; under autocast a fifth more. With
    checkpointing only each layer's input stays, and one layer at a time is computed again.
    """
    # A critic's are held beside the policy's until the backward pass of both.
    tokens, width = float(plan.per_device * plan.sequences * plan.sequence) * (1 + plan.has_critic), _width(plan)
    query, key_value = shape.heads * shape.head_width, shape.key_value_heads * shape.head_width
    elements = (6 if width == 4 else 8) * shape.hidden + 2 * query + 2 * key_value
    elements += shape.active_experts * (4 if shape.is_gated else 2) * shape.intermediate
    layer = width * elements * tokens
    if not plan.flash_attention:
        layer += 2.5 * width * shape.heads * plan.sequence * tokens
    if plan.checkpointing:
        return width * shape.hidden * tokens * shape.layers + layer
    return layer * shape.layers


def _logits(shape: ModelShape, plan: Plan) -> float:
    """The last layer's output over the vocabulary: as computed, in fp32 for the loss, and its gradient in fp32.

    A teacher's are held beside them as computed and in fp32.
    """
    if plan.fused_loss:
        return 0.0
    width = _width(plan)
    each = width + 4 + 4 + (width + 4 if plan.teacher else 0)
    scored = plan.sequence if plan.scored is None else plan.scored
    return each * float(plan.per_device * plan.sequences * scored) * shape.vocabulary
