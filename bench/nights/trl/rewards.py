"""The reward of the GRPO night, as TRL calls it."""

from __future__ import annotations

from typing import Any


def corrected(completions: list[list[dict[str, str]]], meant: list[str], **_: Any) -> list[float]:
    """For each completion the share of the words that should be there, less what is said beyond them."""
    return [_share(one[0]["content"].split(), right.split()) for one, right in zip(completions, meant, strict=True)]


def _share(said: list[str], right: list[str]) -> float:
    words = [word for word in right if word != "in"]
    beyond = max(0, len(said) - len(right))
    return sum(word in said for word in words) / len(words) - 0.1 * min(beyond, 5)
