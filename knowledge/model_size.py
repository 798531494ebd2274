"""How large a model is, from what is said of it: `Qwen3-0.6B` has 0.6 billion parameters."""

from __future__ import annotations

import re

__all__ = ["model_size", "size_text"]

_SIZE = re.compile(r"(?<![\d.A-Za-z])(\d+(?:\.\d+)?)\s?([kmbt])(?![A-Za-z0-9])", re.IGNORECASE)
_FACTOR = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def model_size(text: str) -> float | None:
    """Number of parameters in a model's name or a size such as `0.6B`; None where none is named."""
    found = _SIZE.search(text)
    return float(found[1]) * _FACTOR[found[2].lower()] if found else None


def size_text(parameters: float | None, name: str) -> str | None:
    """`268M` for a known number of parameters, else what the model's name says; None where neither tells."""
    if parameters is None:
        found = _SIZE.search(name)
        return f"{found[1]}{found[2].upper()}" if found else None
    unit, factor = next(((u, f) for u, f in reversed(_FACTOR.items()) if parameters >= f), ("", 1.0))
    return f"{parameters / factor:.3g}{unit.upper()}"
