"""Data and evaluation. Frozen: every experiment trains on the same bytes and is judged by the same function.

The data is the text of CPython's own reference documentation, which ships with Python: nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pydoc_data.topics import topics

import numpy as np

VOCABULARY = 256
VALIDATION_SHARE = 0.1
MAX_CONTEXT = 64
CHUNK = 4096


def load() -> tuple[np.ndarray, np.ndarray]:
    """Training bytes (the head of the text) and validation bytes (its held-out tail), both uint8."""
    text = "\n\n".join(topics[name] for name in sorted(topics)).encode()
    data = np.frombuffer(text, np.uint8)
    split = round(len(data) * (1 - VALIDATION_SHARE))
    return data[:split], data[split:]


def windows(data: np.ndarray, context: int) -> np.ndarray:
    """Every stretch of `context` bytes and the byte that follows it: a view of shape (n, context + 1)."""
    return np.lib.stride_tricks.sliding_window_view(data, context + 1)


def bits_per_byte(logits: Callable[[np.ndarray], np.ndarray], data: np.ndarray, context: int) -> float:
    """Mean cross-entropy in bits of a model that maps (n, context) bytes to (n, 256) unnormalised scores.

    The same bytes are scored whatever the context, and the scores are normalised here, not by the model. Raises
    FloatingPointError when the result is not a finite number.
    """
    examples = windows(data[MAX_CONTEXT - context :], context)
    nats = 0.0
    for start in range(0, len(examples), CHUNK):
        chunk = examples[start : start + CHUNK]
        scores = logits(chunk[:, :-1]).astype(np.float64)
        if scores.shape != (len(chunk), VOCABULARY):
            raise ValueError(f"the model gave scores of shape {scores.shape}, not {(len(chunk), VOCABULARY)}")
        highest = scores.max(axis=1)
        log_total = highest + np.log(np.exp(scores - highest[:, None]).sum(axis=1))
        nats += float((log_total - scores[np.arange(len(chunk)), chunk[:, -1]]).sum())
    if not math.isfinite(nats):
        raise FloatingPointError(f"the validation loss is {nats}")
    return nats / len(examples) / math.log(2)
