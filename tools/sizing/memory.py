"""What one GPU must hold to train: formulas with their sources. Estimates, good to about a quarter either way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nightlab.tools.sizing.shapes import ModelShape

__all__ = ["ERROR", "GIB", "MemoryEstimate", "Optimizer", "Plan", "Precision", "estimate_memory"]

GIB = 1024**3
ERROR = 0.25
"""How far a real run is off, either way, as a rule: allocators, kernels and frameworks differ."""

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
    has_reference: bool = False
    """A frozen copy of the model is held beside it."""


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on each GPU."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    overhead: float

    @property
    def total(self) -> float:
        return self.states + self.activations + self.logits + self.overhead

    @property
    def states(self) -> float:
        """What does not depend on the batch: weights, gradients, optimiser."""
        return self.weights + self.gradients + self.optimizer

    def __str__(self) -> str:
        parts = {"weights": self.weights, "gradients": self.gradients, "optimiser": self.optimizer}
        parts |= {"activations": self.activations, "logits": self.logits}
        shown = ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items() if size >= 0.05 * GIB)
        return f"{self.total / GIB:.1f} GiB ({shown})" if shown else f"{self.total / GIB:.1f} GiB"


def estimate_memory(shape: ModelShape, plan: Plan) -> MemoryEstimate:
    """What one GPU must hold at the peak of a training step."""
    weights, gradients, optimizer = _states(shape, plan)
    activations, logits = _activations(shape, plan), _logits(shape, plan)
    held = weights + gradients + optimizer + activations + logits
    return MemoryEstimate(weights, gradients, optimizer, activations, logits, CONTEXT_BYTES + FRAGMENTS * held)


def _states(shape: ModelShape, plan: Plan) -> tuple[float, float, float]:
    """Weights, gradients and optimiser on one GPU.

    Mixed precision with Adam holds 16 bytes a trained parameter: 2 + 2 for weight and gradient in 16 bits, 12 for fp32
    master and moments (Rajbhandari et al. 2019, ZeRO, arXiv 1910.02054, section 3.1). ZeRO divides the optimiser's
    share over the GPUs from stage 1, the gradients from stage 2, the weights from stage 3 (section 5 there).
    """
    width, master = (4, 0) if plan.precision == "fp32" else (2, 4 if plan.precision == "mixed" else 0)
    count, frozen = float(shape.parameters), width * shape.parameters * plan.has_reference
    if plan.lora_rank is not None:
        # Adapters are kept in fp32 beside a frozen base in 16 bits or fewer, which is its own reference model.
        count = shape.lora_parameters(plan.lora_rank, attention_only=plan.lora_attention_only)
        width, master, frozen = 4, 0, _frozen_bytes(shape, plan)
    share = [1 / plan.world_size if plan.zero_stage >= stage else 1.0 for stage in (1, 2, 3)]
    weights = (frozen + width * count) * share[2] * (not plan.offload_parameters)
    optimizer = (OPTIMIZER_BYTES[plan.optimizer] + master) * count
    if plan.precision == "pure16" and plan.optimizer in ("adam", "momentum"):
        # The moments take the weights' own type.
        optimizer /= 2
    return weights, width * count * share[1], optimizer * share[0] * (not plan.offload_optimizer)


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
    tokens, width = float(plan.per_device * plan.sequences * plan.sequence), 4 if plan.precision == "fp32" else 2
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
    """The last layer's output over the vocabulary: as computed, in fp32 for the loss, and its gradient in fp32."""
    if plan.fused_loss:
        return 0.0
    width = 4 if plan.precision == "fp32" else 2
    return (width + 4 + 4) * float(plan.per_device * plan.sequences * plan.sequence) * shape.vocabulary
