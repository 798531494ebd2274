"""Which languages texts are in: by py3langid where it is installed, else by the script they are written in."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any

__all__ = ["BY_LIBRARY", "BY_SCRIPT", "language_shares"]

BY_LIBRARY = "by py3langid; texts under 40 letters by their script"
BY_SCRIPT = 'by script alone: `pip install "nightlab[data]"` tells languages'

SHORT = 40
LOOKED_AT = 500
"""Characters of a text; the rest is in the same language."""


def language_shares(texts: Iterable[str]) -> tuple[dict[str, float], str]:
    """Share of the texts in each language (ISO 639-1) or script (`latin script`), largest first; and what told."""
    library = _library()
    counts = Counter(name for text in texts if (name := _language(text[:LOOKED_AT], library)))
    total = counts.total()
    return {name: count / total for name, count in counts.most_common()}, BY_LIBRARY if library else BY_SCRIPT


def _language(text: str, library: Any) -> str | None:
    scripts = Counter(script for letter in text if (script := _script(letter)))
    if not scripts:
        return None
    main, _ = scripts.most_common(1)[0]
    if main == "cjk":
        # A hanzi counts like several letters, and kana beside it make the text Japanese.
        return "ja" if scripts["kana"] else "zh"
    if main in ("kana", "hangul"):
        return "ja" if main == "kana" else "ko"
    if library is None or scripts.total() < SHORT:
        return f"{main} script"
    return str(library.classify(text)[0])


@cache
def _script(letter: str) -> str | None:
    """The script of a letter; None for what is no letter."""
    if not letter.isalpha():
        return None
    word = unicodedata.name(letter, "OTHER").split()[0].removesuffix("-").lower()
    return {"hiragana": "kana", "katakana": "kana"}.get(word, word)


def _library() -> Any:
    try:
        import py3langid
    except ImportError:
        return None
    return py3langid
