"""Fills a logit cache from a teacher in torch: one forward pass over tokenised examples, in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from nightlab.errors import ConfigError
from nightlab.tools.distillation.cache import CacheWriter, Rows
from nightlab.tools.distillation.cache_files import Header, key_of, targets_of

__all__ = ["dump", "rows_of", "vocabulary_of"]

ROWS_AT_ONCE = 256
"""Rows of full vocabulary held in float32: 150 MB at 150,000 tokens."""
LEAST = -60_000.0
"""What stands for the log of nothing: float16 holds it, and 0 times it is 0."""


@dataclass(frozen=True)
class _Example:
    key: int
    tokens: list[int]
    targets: list[int]


def dump(teacher: Any, examples: Iterable[Mapping[str, Any]], writer: CacheWriter, *, batch_size: int = 8) -> None:
    """Add what `teacher` expects at every target of `examples` that the cache does not hold yet.

    `teacher`: a causal language model in evaluation mode, where it is and in its own precision. `examples`: objects
    with `input_ids` and `labels`; one without a target is left out. Raises ConfigError for packed examples, and for a
    teacher whose logits are not finite or are fewer than the cache's vocabulary.
    """
    for batch in _batches(examples, writer, batch_size):
        with torch.inference_mode():
            for example, logits in _forward(teacher, batch):
                writer.add(example.key, rows_of(logits, writer.header))


def vocabulary_of(logits: int, numbers: Iterable[int]) -> int:
    """Tokens worth keeping: those the tokenizer knows by number; models of one family pad beyond them differently."""
    return min(logits, max(numbers, default=logits - 1) + 1)


def rows_of(logits: Any, header: Header) -> Rows:
    """The cache's rows for a (targets, vocabulary or more) tensor of logits. Raises ConfigError."""
    if logits.shape[-1] < header.vocabulary:
        raise ConfigError(f"the teacher has {logits.shape[-1]} logits, the cache is for {header.vocabulary} tokens")
    parts = [_some_rows(some, header) for some in logits[:, : header.vocabulary].split(ROWS_AT_ONCE)]
    ids, logs, tail = (torch.cat(part).cpu().numpy() for part in zip(*parts, strict=True))
    return Rows(ids, logs, tail)


def _some_rows(logits: Any, header: Header) -> tuple[Any, Any, Any]:
    all_logs = torch.log_softmax(logits.float(), dim=-1)
    if not torch.isfinite(all_logs).all():
        raise ConfigError("the teacher's logits are not finite (load it in bfloat16 or float32)")
    logs, ids = all_logs.topk(header.k, dim=-1)
    others = all_logs.scatter(-1, ids, -torch.inf)
    tail = torch.stack([(others / temperature).logsumexp(dim=-1) for temperature in header.temperatures], dim=-1)
    return ids, logs.clamp(min=LEAST), tail.clamp(min=LEAST)


def _batches(examples: Iterable[Mapping[str, Any]], writer: CacheWriter, batch_size: int) -> Iterator[list[_Example]]:
    batch: list[_Example] = []
    for example in examples:
        targets = targets_of(example)
        key = key_of(example["input_ids"], example["labels"])
        if not targets or key in writer:
            continue
        batch.append(_Example(key, list(example["input_ids"]), targets))
        if len(batch) == batch_size:
            yield batch
            batch = []
    if batch:
        yield batch


def _forward(teacher: Any, batch: list[_Example]) -> list[tuple[_Example, Any]]:
    """Each example with the logits that stand before its targets."""
    longest = max(len(one.tokens) for one in batch)
    tokens = torch.zeros((len(batch), longest), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, one in enumerate(batch):
        tokens[place, : len(one.tokens)] = torch.tensor(one.tokens)
        mask[place, : len(one.tokens)] = 1
    device = next(teacher.parameters()).device
    logits = teacher(input_ids=tokens.to(device), attention_mask=mask.to(device)).logits
    return [(one, logits[place, torch.tensor(one.targets) - 1]) for place, one in enumerate(batch)]
