"""Counts tokens: exactly with a tokenizer, else by an estimate that is called one."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["ESTIMATE", "TokenCounter", "token_counter"]

ESTIMATE = "estimated at 4 characters a token, 1.5 for Chinese, Japanese and Korean"
"""About right for today's vocabularies of 100,000 and more; a quarter off either way is usual."""

_DENSE = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
CHARACTERS_A_TOKEN, DENSE_CHARACTERS_A_TOKEN = 4.0, 1.5


@dataclass(frozen=True)
class TokenCounter:
    """`count` gives the tokens of a text; `how` says by what."""

    how: str
    count: Callable[[str], float]

    def of(self, text: str, length: int) -> float:
        """Tokens of a text of `length` characters of which `text` is the beginning."""
        return self.count(text) * (length / len(text)) if text else 0.0


def token_counter(*places: str | None, root: Path) -> TokenCounter:
    """By the first of the places (a `tokenizer.json` or its folder, below `root` or absolute) that has one."""
    for place in places:
        if place and (tokenizer := _tokenizer(root / place)):
            return TokenCounter(
                f"counted by {place}", lambda text: len(tokenizer.encode(text, add_special_tokens=False))
            )
    return TokenCounter(ESTIMATE, _estimated)


def _tokenizer(path: Path) -> Any:
    """The tokenizer at a path; None where there is none, or nothing installed that reads it."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    try:
        return Tokenizer.from_file(str(file))
    except Exception:  # noqa: BLE001 - the library raises Exception itself for a file it cannot read
        return None


def _estimated(text: str) -> float:
    dense = len(_DENSE.findall(text))
    return dense / DENSE_CHARACTERS_A_TOKEN + (len(text) - dense) / CHARACTERS_A_TOKEN
