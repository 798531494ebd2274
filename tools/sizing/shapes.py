"""The shape of a transformer: from its `config.json`, else from how many parameters it has."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightlab.knowledge.model_size import model_size

__all__ = ["ModelShape", "shape_from_config", "shape_from_size", "shape_of"]

ASPECT = 128
"""Width ÷ depth of usual transformers; little depends on it (Kaplan et al. 2020, arXiv 2001.08361)."""
USUAL_VOCABULARY = 128_256
GATED = ("silu", "swiglu", "swish", "geglu", "gelu_pytorch_tanh")
"""Activations of models whose feed-forward part has a third matrix, the gate."""


@dataclass(frozen=True)
class ModelShape:
    """What the sizes depend on."""

    layers: int
    hidden: int
    heads: int
    key_value_heads: int
    head_width: int
    intermediate: int
    vocabulary: int
    is_tied: bool
    """Input and output embedding are one matrix."""
    is_gated: bool = True
    experts: int = 1
    active_experts: int = 1
    stated_parameters: float | None = None
    """Where it is known by itself; else it is counted."""
    is_guessed: bool = False
    """Known by the number of parameters alone."""

    @property
    def linear_parameters(self) -> int:
        """Of the matrices inside the layers, all experts counted."""
        return self.layers * (self._attention + self.experts * self._feed_forward)

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.hidden * (1 if self.is_tied else 2)

    @property
    def parameters(self) -> float:
        if self.stated_parameters is not None:
            return self.stated_parameters
        routers = self.hidden * self.experts if self.experts > 1 else 0
        return (
            self.linear_parameters + self.embedding_parameters + self.layers * (2 * self.hidden + routers) + self.hidden
        )

    @property
    def _attention(self) -> int:
        return 2 * self.hidden * self.head_width * (self.heads + self.key_value_heads)

    @property
    def _feed_forward(self) -> int:
        return (3 if self.is_gated else 2) * self.hidden * self.intermediate

    def lora_parameters(self, rank: int, *, attention_only: bool = False) -> int:
        """Of adapters of this rank on every linear layer: rank × (inputs + outputs) each (arXiv 2106.09685)."""
        query, key_value = self.heads * self.head_width, self.key_value_heads * self.head_width
        sides = 2 * (self.hidden + query) + 2 * (self.hidden + key_value)
        if not attention_only:
            sides += self.experts * (3 if self.is_gated else 2) * (self.hidden + self.intermediate)
        return rank * self.layers * sides


def shape_of(base_model: str, root: Path, parameters: float | None = None) -> ModelShape | None:
    """By the `config.json` in the folder `base_model` (below `root` or absolute), else by its size; None without both.

    `parameters` is the number where a person stated it; else the model's name may tell.
    """
    file = root / base_model / "config.json"
    try:
        config = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None
    except (OSError, ValueError):
        config = None
    if isinstance(config, dict) and (shape := shape_from_config(config)):
        return shape
    size = parameters or model_size(base_model)
    return shape_from_size(size) if size else None


def shape_from_config(config: Mapping[str, Any]) -> ModelShape | None:
    """By Hugging Face's `config.json`, the text part of a multimodal one; None where it is no transformer's."""
    inner = config.get("text_config")
    config = {**config, **inner} if isinstance(inner, dict) else config

    def whole(*names: str) -> int | None:
        return next(
            (v for n in names if isinstance(v := config.get(n), int) and not isinstance(v, bool) and v > 0), None
        )

    hidden = whole("hidden_size", "n_embd", "d_model")
    layers = whole("num_hidden_layers", "n_layer", "num_layers")
    heads, vocabulary = whole("num_attention_heads", "n_head"), whole("vocab_size")
    if not (hidden and layers and heads and vocabulary):
        return None
    experts = whole("num_experts", "num_local_experts", "n_routed_experts") or 1
    intermediate = whole("intermediate_size", "n_inner", "ffn_dim") or 4 * hidden
    gate = str(config.get("hidden_act") or config.get("hidden_activation") or "").lower()
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        key_value_heads=whole("num_key_value_heads") or heads,
        head_width=whole("head_dim") or hidden // heads,
        intermediate=whole("moe_intermediate_size") or intermediate if experts > 1 else intermediate,
        vocabulary=vocabulary,
        is_tied=bool(config.get("tie_word_embeddings", "n_embd" in config)),
        is_gated=gate in GATED,
        experts=experts,
        active_experts=whole("num_experts_per_tok", "num_experts_per_token") or 1,
    )


def shape_from_size(parameters: float) -> ModelShape:
    """A usual shape with this many parameters: about 12 × layers × width², the embeddings within."""
    hidden = max(ASPECT, round((parameters * ASPECT / 12) ** (1 / 3) / ASPECT) * ASPECT)
    heads = max(1, hidden // 128)
    return ModelShape(
        layers=max(1, round(parameters / (12 * hidden**2))),
        hidden=hidden,
        heads=heads,
        key_value_heads=max(1, heads // 4),
        head_width=hidden // heads,
        intermediate=round(8 * hidden / 3),
        vocabulary=USUAL_VOCABULARY,
        is_tied=False,
        stated_parameters=parameters,
        is_guessed=True,
    )
