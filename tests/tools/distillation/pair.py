"""A tiny teacher's rows and a cache of them, with numpy alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nightlab.tools.distillation.cache import CacheWriter, Rows
from nightlab.tools.distillation.cache_files import Header, key_of

VOCABULARY = 100


def header(k: int = 8, **changes: object) -> Header:
    settings: dict[str, object] = {"fingerprint": "abc", "vocabulary": VOCABULARY, "k": k, "temperatures": (1.0, 2.0)}
    return Header(**{**settings, **changes})  # type: ignore[arg-type]


def examples(count: int, *, seed: int = 0) -> list[dict[str, list[int]]]:
    """Examples of different lengths, the first third of each not learned."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(count):
        tokens = rng.integers(0, VOCABULARY, int(rng.integers(4, 12))).tolist()
        cut = len(tokens) // 3
        made.append({"input_ids": tokens, "labels": [-100] * cut + tokens[cut:]})
    return made


def rows(targets: int, of: Header, *, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(targets, of.vocabulary))
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    order = np.argsort(-logs, axis=1)
    ids, others = order[:, : of.k], np.take_along_axis(logs, order[:, of.k :], axis=1)
    tails = [np.log(np.exp(others / temperature).sum(axis=1)) for temperature in of.temperatures]
    return Rows(ids, np.take_along_axis(logs, ids, axis=1), np.stack(tails, axis=1))


def write(folder: Path, of: Header, count: int, *, finish: bool = True) -> dict[int, Rows]:
    """A cache of so many examples of 3 targets, their rows by key."""
    written = {key_of([number], [number]): rows(3, of, seed=number) for number in range(count)}
    with CacheWriter(folder, of) as writer:
        for key, some in written.items():
            writer.add(key, some)
        if finish:
            writer.finish()
    return written
