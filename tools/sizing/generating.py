"""What writing answers takes of a GPU while a model is trained on them: keys and values, an engine, kept logits."""

from __future__ import annotations

from dataclasses import dataclass

from nightlab.tools.sizing.shapes import ModelShape

__all__ = ["Generation", "cache_bytes", "engine_bytes", "generation_bytes", "kept_logits"]


@dataclass(frozen=True)
class Generation:
    """How answers are written, as far as memory depends on it."""

    sequences: int
    """At a time on one GPU."""
    tokens: int
    """Of a prompt with its answer."""
    engine_share: float = 0.0
    """Share of the GPU that an inference engine beside the trainer (vLLM) reserves; 0: the model itself writes."""
    engine_sleeps: bool = False
    """The engine gives its memory back while the model trains."""
    engine_gpus: int = 1
    """GPUs over which one engine's weights and cache are divided."""
    kept_tokens: int = 0
    """Tokens, over all sequences, whose logits stay in fp32 until the model has trained on them (TRL's PPO)."""


def cache_bytes(shape: ModelShape, tokens: float, width: int) -> float:
    """Keys and values of so many tokens: 2 × layers × key-value heads × head width × bytes of a number each.

    Kwon et al. 2023 (PagedAttention, arXiv 2309.06180, section 3): 800 KB a token for OPT-13B in 16 bits. With grouped
    queries (Ainslie et al. 2023, arXiv 2305.13245) only the key-value heads count. Windowed attention needs less.
    """
    return 2.0 * shape.layers * shape.key_value_heads * shape.head_width * width * tokens


def generation_bytes(shape: ModelShape, generation: Generation, width: int) -> float:
    """The cache of all answers at their full length, where the model itself writes them."""
    if generation.engine_share:
        return 0.0
    return cache_bytes(shape, generation.sequences * generation.tokens, width)


def engine_bytes(shape: ModelShape, generation: Generation, width: int, device: float | None) -> float:
    """What the engine takes: its share of the device, at least a copy of the weights and one answer's cache."""
    if not generation.engine_share:
        return 0.0
    least = width * shape.parameters + cache_bytes(shape, generation.tokens, width)
    return max(least / generation.engine_gpus, generation.engine_share * (device or 0.0))


def kept_logits(shape: ModelShape, generation: Generation) -> float:
    """Logits that stay from the writing of the answers until the model has trained on them."""
    return 4.0 * generation.kept_tokens * shape.vocabulary
