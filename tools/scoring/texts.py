"""Text as it is compared: thoughts taken out, differences that do not count evened out, cut into words."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from nightlab.configs.scoring import Ignored, ScoringSettings
from nightlab.tools.scoring.libraries import library

__all__ = ["Language", "TextRules", "language_of", "without_thoughts"]

Language = Literal["en", "zh"]

CHINESE_SHARE = 0.1
_CHINESE = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f]")
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b", re.IGNORECASE)
_WORD = re.compile(r"\w+")


def language_of(labels: Iterable[str]) -> Language:
    """`zh` where at least one label in ten holds a Chinese character."""
    found = [bool(_CHINESE.search(label)) for label in labels]
    return "zh" if found and sum(found) >= CHINESE_SHARE * len(found) else "en"


def without_thoughts(text: str) -> str:
    """The text without `<think>…</think>`. A thought may have begun in the prompt, or have been cut off at its end."""
    # Behind the last end there is nothing to look for: a model that loops may begin thoughts without end.
    closed, end, rest = text.rpartition("</think>")
    text = _THOUGHT.sub("", closed + end) + rest
    return text.rpartition("</think>")[2].partition("<think>")[0]


@dataclass(frozen=True)
class TextRules:
    """What a study says of comparing text."""

    language: Language
    strip_thinking: bool = False
    ignore: tuple[Ignored, ...] = ()

    @classmethod
    def of(cls, settings: ScoringSettings, language: Language) -> TextRules:
        return cls(language, settings.strip_thinking, tuple(settings.ignore))

    def clean(self, text: str) -> str:
        """The text without what does not count."""
        if self.strip_thinking:
            text = without_thoughts(text)
        if "width" in self.ignore:
            text = unicodedata.normalize("NFKC", text)
        if "case" in self.ignore:
            text = text.lower()
        if "punctuation" in self.ignore:
            text = "".join(sign for sign in text if not _is_punctuation(sign))
        if "articles" in self.ignore:
            text = _ARTICLES.sub(" ", text)
        return " ".join(text.split()) if {"space", "articles"} & set(self.ignore) else text.strip()

    def words(self, text: str) -> list[str]:
        """Lower-case words, without punctuation; Chinese is segmented with jieba's dictionary."""
        pieces = library("rjieba").cut(text.lower()) if self.language == "zh" else [text.lower()]
        return [word for piece in pieces for word in _WORD.findall(piece)]


def _is_punctuation(sign: str) -> bool:
    return sign in string.punctuation or unicodedata.category(sign).startswith("P")
