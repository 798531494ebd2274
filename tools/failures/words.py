"""Which words a line must hold so that a regular expression can match it: a cheap test before the dear one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable
from typing import Any

__all__ = ["any_of", "required_words"]

# The parser of `re` has no public name; without it every expression is simply tried on every line.
try:
    _parser: Any = importlib.import_module("re._parser")
    _codes: Any = importlib.import_module("re._constants")
except ImportError:
    _parser = _codes = None

_SHORTEST = 3
_BY_FREQUENCY = " etaoinsrhldcumfpgwybvkxjqz"
_COMMONNESS = {letter: len(_BY_FREQUENCY) - rank for rank, letter in enumerate(_BY_FREQUENCY)}


def required_words(regex: str) -> tuple[str, ...] | None:
    """Words of which every match holds at least one, None where there are none of at least three letters."""
    if _parser is None:
        return None
    parsed = _parser.parse(regex)
    words = None if parsed.state.flags & re.IGNORECASE else _of_sequence(parsed)
    return words if words and _weight(words) >= _SHORTEST else None


def any_of(words: Iterable[str]) -> re.Pattern[str]:
    """An expression that is found in every text that holds one of the words, and in few others.

    Of each word it looks for three letters that seldom stand together, grouped by the first: several times as fast as
    the words themselves.
    """
    groups: dict[str, set[str]] = {}
    for word in words:
        rare = min((word[at : at + _SHORTEST] for at in range(len(word) - _SHORTEST + 1)), key=_commonness)
        groups.setdefault(rare[0], set()).add(rare[1:])
    parts = [re.escape(first) + f"(?:{'|'.join(map(re.escape, sorted(rest)))})" for first, rest in groups.items()]
    return re.compile("|".join(parts) or "(?!)")


def _commonness(letters: str) -> int:
    # The first letter is what most places of a text are left at.
    return sum(_COMMONNESS.get(letter, 0) for letter in letters[0] + letters)


def _of_sequence(items: Iterable[Any]) -> tuple[str, ...] | None:
    """The most telling choice: any one part of a sequence is in the match."""
    choices: list[tuple[str, ...]] = []
    run = ""
    for code, value in items:
        if code is _codes.LITERAL:
            run += chr(value)
            continue
        choices += [(run,)] if run else []
        run = ""
        choices += filter(None, [_of_part(code, value)])
    choices += [(run,)] if run else []
    return max(choices, key=_weight, default=None)


def _of_part(code: Any, value: Any) -> tuple[str, ...] | None:
    if code is _codes.SUBPATTERN:
        _, added_flags, removed_flags, inside = value
        return None if added_flags or removed_flags else _of_sequence(inside)
    if code is _codes.BRANCH:
        branches = [_of_sequence(branch) for branch in value[1]]
        words = [word for branch in branches if branch for word in branch]
        return tuple(dict.fromkeys(words)) if all(branches) else None
    if code in (_codes.MAX_REPEAT, _codes.MIN_REPEAT) and value[0] >= 1:
        return _of_sequence(value[2])
    return None


def _weight(words: tuple[str, ...]) -> int:
    """How telling a choice is: its least telling word decides."""
    return min(len(word) for word in words)
