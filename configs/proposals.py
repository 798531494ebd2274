"""A first space for parameters of familiar names: a start for a person to change, never more."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nightlab.configs.study import Scalar

__all__ = ["ProposedFactor", "propose_locked", "propose_space"]

_WORD = re.compile(r"[A-Za-z][a-z]*|[A-Z]+|[0-9]+")
_LENGTH = frozenset({"steps", "epochs", "epoch", "iters", "iterations", "tokens", "interval", "budget"})
_DATA = frozenset({"data", "dataset", "path", "file", "dir", "eval", "valid", "validation", "test", "vocab"})
_MACHINE = frozenset({"device", "dtype"})
_MODELS = frozenset({"model", "base_model", "model_name", "model_path", "model_name_or_path", "model_id"})


@dataclass(frozen=True)
class ProposedFactor:
    levels: tuple[Scalar, ...]
    log: bool = False


def propose_locked(parameters: Mapping[str, Scalar]) -> list[str]:
    """Names that decide how long a run takes, what it learns from or how it is measured."""
    return [name for name in parameters if _is_locked(name)]


def propose_space(parameters: Mapping[str, Scalar]) -> dict[str, ProposedFactor]:
    """Factors for the parameters whose names say what they are; at least one where any number may change."""
    free = {name: value for name, value in parameters.items() if not _is_locked(name)}
    found = {name: factor for name, value in free.items() if (factor := _factor(name, value))}
    if found:
        return found
    number = next((name for name, value in free.items() if _is_number(value) and value), None)
    return {number: _half_and_double(free[number])} if number else {}


def _words(name: str) -> set[str]:
    return {word.lower() for part in re.split(r"[_.\-/]", name) for word in (part, *_WORD.findall(part))}


def _is_locked(name: str) -> bool:
    words = _words(name)
    return name.lower() in _MODELS or ("warmup" not in words and bool(words & (_LENGTH | _DATA | _MACHINE)))


def _is_number(value: Scalar) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _factor(name: str, value: Scalar) -> ProposedFactor | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    words = _words(name)
    for wanted, make in _RULES:
        if wanted <= words:
            return make(value)
    return None


def _around(value: float) -> ProposedFactor | None:
    return ProposedFactor((_round(value * 0.3), _round(value * 3)), log=True) if value > 0 else None


def _half_and_double(value: Scalar) -> ProposedFactor:
    number = float(value)
    if isinstance(value, int):
        return ProposedFactor((value // 2, value * 2) if value > 1 else (value * 2,))
    return ProposedFactor((_round(number / 2), _round(number * 2)))


def _sizes(value: float) -> ProposedFactor | None:
    return ProposedFactor((value // 2, value * 2)) if isinstance(value, int) and value > 1 else None


def _others(*levels: float) -> Callable[[float], ProposedFactor | None]:
    return lambda value: ProposedFactor(tuple(level for level in levels if level != value))


def _round(value: float) -> float:
    return float(f"{value:.3g}")


_RULES: tuple[tuple[frozenset[str], Callable[[float], ProposedFactor | None]], ...] = (
    (frozenset({"lr"}), _around),
    (frozenset({"learning", "rate"}), _around),
    (frozenset({"batch"}), _sizes),
    (frozenset({"weight", "decay"}), _others(0.0, 0.01, 0.1)),
    (frozenset({"wd"}), _others(0.0, 0.01, 0.1)),
    (frozenset({"dropout"}), _others(0.0, 0.1, 0.2)),
    (frozenset({"warmup", "ratio"}), _others(0.0, 0.03, 0.1)),
)
