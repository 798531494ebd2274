"""Harder slices of an evaluation file: the same rows with noise in their inputs, the longest, and the rarest.

Rows keep their fields, so that whatever evaluates on the file evaluates on a slice. Everything is a function of the
file and the seed.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nightlab.errors import StressError
from nightlab.tools.datasets.rows import SUFFIXES, read_rows

__all__ = ["SliceRules", "Slices", "make_slices", "noisy"]

MESSAGES = ("messages", "conversations", "conversation", "dialogue")
USER_ROLES = ("user", "human")
INPUTS = (
    *("instruction", "prompt", "question", "query", "input", "source", "src", "text", "content", "sentence", "review"),
    *("问题", "指令"),
)
LABELS = ("label", "labels", "category", "class")
BUCKETS = 1 << 20
"""Words are counted by their digest, so that memory does not grow with the vocabulary."""
RAREST_WORDS = 3
MOST_ROWS = 1_000_000
NOISE = 0.06
"""Share of the words that noise changes, each in one way; at least one a text."""
_WORD = re.compile(r"\w+")
_NEIGHBOURS = dict(
    zip("qwertyuiopasdfghjklzxcvbnm", "wertyuiopqsdfghjklaxcvbnmz", strict=True),
)


@dataclass(frozen=True)
class SliceRules:
    """How slices are cut."""

    share: float = 0.2
    """Of the rows, the longest and the rarest that make a slice; at least one."""
    noise: float = NOISE
    """Share of the words of an input that noise changes."""
    seed: int = 0
    inputs: tuple[str, ...] = ()
    """Fields that hold what a model is asked; without any, those of the usual names."""
    label: str = ""
    """Field of the class, whose rare values count as rare too; without it, a field of a usual name."""


@dataclass(frozen=True)
class Slices:
    """What was written."""

    rows: int
    broken: int
    noisy: Path
    long: Path
    rare: Path
    kept: int
    """Rows of the long and of the rare slice, each."""


Row = dict[str, Any]


def make_slices(file: Path, out: Path, rules: SliceRules | None = None) -> Slices:
    """Write `noisy.jsonl`, `long.jsonl` and `rare.jsonl` below `out`. Raises StressError.

    The file is read three times, a row at a time; rows that cannot be read are counted and left out.
    """
    rules = rules or SliceRules()
    if not file.exists():
        raise StressError(f"{file}: does not exist")
    if file.suffix.lower() not in SUFFIXES:
        raise StressError(f"{file}: is none of {', '.join(SUFFIXES)} (save it as .jsonl)")
    try:
        words, labels, rows, broken = _counted(file, rules)
        kept = max(1, math.ceil(rules.share * rows))
        long = _largest(file, rules, kept, lambda row: float(len(_text(row, rules))))
        rare = _largest(file, rules, kept, lambda row: _rarity(row, rules, words, labels, rows))
        out.mkdir(parents=True, exist_ok=True)
        found = Slices(rows, broken, out / "noisy.jsonl", out / "long.jsonl", out / "rare.jsonl", kept)
        _write(found.noisy, (noisy(row, rules, number) for number, row in _rows(file, rules)))
        _write(found.long, (row for number, row in _rows(file, rules) if number in long))
        _write(found.rare, (row for number, row in _rows(file, rules) if number in rare))
    except OSError as error:
        raise StressError(f"{error.filename or file}: {error.strerror or error}") from error
    return found


def noisy(row: Row, rules: SliceRules, number: int) -> Row:
    """The row with noise in its inputs: slips of the fingers, letter case, spaces and punctuation; labels stay."""
    chance = random.Random(f"{rules.seed}/{number}")  # noqa: S311 - noise, not a key
    changed = dict(row)
    for name in _inputs_of(row, rules):
        changed[name] = _with_noise(row[name], rules.noise, chance)
    for name in MESSAGES:
        if isinstance(row.get(name), list):
            changed[name] = [_noisy_message(one, rules.noise, chance) for one in row[name]]
    return changed


def _noisy_message(message: Any, share: float, chance: random.Random) -> Any:
    if not isinstance(message, dict):
        return message
    role, field = (message.get("role"), "content") if "role" in message else (message.get("from"), "value")
    if role not in USER_ROLES or not isinstance(message.get(field), str):
        return message
    return {**message, field: _with_noise(message[field], share, chance)}


def _with_noise(text: str, share: float, chance: random.Random) -> str:
    places = [match.span() for match in _WORD.finditer(text)]
    if not places:
        return text
    chosen = sorted(chance.sample(places, max(1, round(share * len(places)))), reverse=True)
    pieces, behind = [], len(text)
    for start, end in chosen:
        change = chance.choice((_slip, _swap, _drop, _double, _case, _space, _punctuation))
        word = text[start:end]
        changed = change(word, chance)
        # Some changes leave some words as they are: no capitals in that script, no neighbours on the keyboard.
        pieces += [text[end:behind], changed if changed != word else word + word[-1]]
        behind = start
    return text[:behind] + "".join(reversed(pieces))


def _slip(word: str, chance: random.Random) -> str:
    at = chance.randrange(len(word))
    return word[:at] + _NEIGHBOURS.get(word[at].lower(), word[at]) + word[at + 1 :]


def _swap(word: str, chance: random.Random) -> str:
    if len(word) < 2:
        return word + word
    at = chance.randrange(len(word) - 1)
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def _drop(word: str, chance: random.Random) -> str:
    at = chance.randrange(len(word))
    return word[:at] + word[at + 1 :] if len(word) > 2 else word + word


def _double(word: str, chance: random.Random) -> str:
    at = chance.randrange(len(word))
    return word[:at] + word[at] + word[at:]


def _case(word: str, chance: random.Random) -> str:
    changed = chance.choice((word.upper(), word.lower(), word.swapcase()))
    return changed if changed != word else word.swapcase()


def _space(word: str, chance: random.Random) -> str:
    at = chance.randrange(len(word))
    return f"{word[:at]} {word[at:]}" if at else f" {word} "


def _punctuation(word: str, chance: random.Random) -> str:
    return word + chance.choice((",", ".", "!", "...", "?", ";"))


def _rows(file: Path, rules: SliceRules) -> Iterator[tuple[int, Row]]:
    """Number and fields of every row that has an input."""
    for row in read_rows(file):
        fields = {"text": row.value} if isinstance(row.value, str) else row.value
        if not row.fault and isinstance(fields, dict) and _text(fields, rules).strip():
            yield row.number, fields


def _counted(file: Path, rules: SliceRules) -> tuple[np.ndarray[Any, Any], dict[str, int], int, int]:
    """In how many rows each word stands, how often each label, how many rows there are, and how many of no use."""
    labels: dict[str, int] = {}
    words, rows = np.zeros(BUCKETS, dtype=np.int64), 0
    for _, row in _rows(file, rules):
        rows += 1
        if rows > MOST_ROWS:
            raise StressError(f"{file}: has more than {MOST_ROWS:,} rows (cut it first)")
        words[list({_bucket(word) for word in _words(row, rules)})] += 1
        if (label := _label(row, rules)) is not None:
            labels[label] = labels.get(label, 0) + 1
    total = sum(1 for _ in read_rows(file))
    if not rows:
        names = ", ".join(rules.inputs or (*INPUTS[:5], "messages"))
        raise StressError(f"{file}: no row has text in {names} (name the field with --input)")
    return words, labels, rows, total - rows


def _largest(file: Path, rules: SliceRules, kept: int, score: Callable[[Row], float]) -> set[int]:
    """Numbers of the rows with the largest scores; of equal ones the earlier."""
    scored = ((score(row), -number) for number, row in _rows(file, rules))
    return {-number for _, number in heapq.nlargest(kept, scored)}


def _rarity(row: Row, rules: SliceRules, words: np.ndarray[Any, Any], labels: dict[str, int], rows: int) -> float:
    """How rare its rarest words and its label are: mean of minus the logarithm of the share of rows that have them."""
    held = sorted(int(words[_bucket(word)]) for word in set(_words(row, rules)))[:RAREST_WORDS]
    rarity = sum(-math.log(count / rows) for count in held) / len(held) if held else 0.0
    label = _label(row, rules)
    # A label that every row has of its own is a text, no class.
    is_class = label is not None and len(labels) * 2 <= rows
    return max(rarity, -math.log(labels[label] / rows)) if is_class and label is not None else rarity


def _bucket(word: str) -> int:
    return zlib.crc32(word.encode()) % BUCKETS


def _words(row: Row, rules: SliceRules) -> list[str]:
    return _WORD.findall(_text(row, rules).lower())


def _inputs_of(row: Row, rules: SliceRules) -> list[str]:
    names = rules.inputs or INPUTS
    return [name for name in names if isinstance(row.get(name), str) and row[name]]


def _text(row: Row, rules: SliceRules) -> str:
    """All that a model is asked, without the answers."""
    parts = [row[name] for name in _inputs_of(row, rules)]
    for name in MESSAGES:
        for one in row[name] if isinstance(row.get(name), list) else ():
            said = one.get("content", one.get("value")) if isinstance(one, dict) else None
            role = (one.get("role") or one.get("from")) if isinstance(one, dict) else None
            if role in USER_ROLES and isinstance(said, str):
                parts.append(said)
    return "\n".join(parts)


def _label(row: Row, rules: SliceRules) -> str | None:
    name = rules.label or next((one for one in LABELS if one in row), "")
    value = row.get(name)
    return str(value) if isinstance(value, str | int | float) else None


def _write(path: Path, rows: Iterator[Row]) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    temporary.replace(path)
