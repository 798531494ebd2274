"""Which of a teacher's answers become training data, and why the others do not: a pure function."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from nightlab.errors import ConfigError, Fault
from nightlab.tools.datasets.example import writable
from nightlab.tools.datasets.shingles import ALIKE, NearCopies, shingles, similarity
from nightlab.tools.distillation.prompts import Prompt
from nightlab.tools.distillation.teacher import Said
from nightlab.tools.scoring.texts import without_thoughts

__all__ = ["Filters", "Kept", "filtered"]

_CANNOT = r"(?:can(?:no|['\u2019])t|can not|won['\u2019]t|am (?:not able|unable)|['\u2019]m (?:not able|unable))"
_REFUSAL = re.compile(
    rf"(?:i['\u2019]?m|i am) (?:very |really |so )?sorry,? (?:but )?i ?{_CANNOT}"
    rf"|(?:sorry|i apologi[sz]e|unfortunately)[,.]? (?:but )?i ?{_CANNOT}"
    rf"|i ?(?:{_CANNOT}(?: to)?|must decline to|refuse to)"
    r" (?:help|assist|comply|provide|fulfil|fulfill|answer|create|generate|write|do that|discuss)\b"
    r"|as an? (?:ai|artificial intelligence|(?:large )?language model)\b"
    r"|(?:非常|很)?(?:抱歉|对不起)[,，。].{0,10}(?:无法|不能|没有办法)"
    r"|作为(?:一个|一名)?(?:AI|人工智能|语言模型)|我(?:无法|不能)(?:帮助|协助|提供|回答|满足)",
    re.IGNORECASE,
)
LONGEST_REFUSAL = 600
"""An answer beyond this many characters that begins like a refusal goes on to answer."""
SHORTEST_COPY = 40
_FENCE = re.compile(r"\A```(?:json)?\s*\n(.*)\n```\Z", re.DOTALL)


@dataclass(frozen=True)
class Filters:
    """What an answer must be."""

    thinking: Literal["strip", "keep"] = "strip"
    """`keep`: thoughts stand before the answer in `<think>` tags, those the server gave apart among them."""
    shortest: int = 1
    """Characters, thoughts not counted; likewise the longest."""
    longest: int | None = None
    json: bool = False
    """It must be JSON; a fence around it is taken off."""
    agreement: float | None = None
    """Share of a prompt's answers that must say the same as the commonest; one answer a prompt is then kept."""
    agree_on: str | None = None
    """A regular expression: its first group, at its last match, is what must be the same; otherwise all of the text."""
    near_copies: bool = True
    """Leave out what is nearly the same as a row before it."""

    def __post_init__(self) -> None:
        if self.agreement is not None and not 0 < self.agreement <= 1:
            raise ConfigError(Fault("must be above 0, at most 1", key="agreement", value=self.agreement))
        if self.longest is not None and self.longest < self.shortest:
            raise ConfigError(Fault("is below the shortest", key="longest", value=self.longest))
        try:
            has_group = re.compile(self.agree_on or "()").groups > 0
        except re.error as error:
            raise ConfigError(Fault(f"is no regular expression: {error}", key="agree_on")) from error
        if not has_group:
            raise ConfigError(Fault("has no group", key="agree_on", mend=r"for example 'Answer: (.*)'"))


@dataclass
class Kept:
    """Rows to train on, in the prompts' order, and how many answers each filter took."""

    rows: list[tuple[Prompt, str]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    looked_for_near_copies: bool = False
    """Between prompts; needs `nightlab[data]`."""


@dataclass(frozen=True)
class _Answer:
    text: str
    """As it is trained on."""
    bare: str
    """Without thoughts."""


def filtered(answers: Iterable[tuple[Prompt, Sequence[Said]]], filters: Filters, *, samples: int = 1) -> Kept:
    """What is left of each prompt's answers, of which there should be `samples`."""
    kept = Kept()
    for prompt, said in answers:
        good = [answer for one in said if (answer := _judged(one, filters, kept.dropped))]
        if filters.agreement is not None and good:
            good = _agreeing(good, samples, filters, kept.dropped)
        kept.rows += [(prompt, answer.text) for answer in _different(good, filters, kept.dropped)]
    if filters.near_copies:
        _drop_near_copies(kept)
    return kept


def _judged(said: Said, filters: Filters, dropped: Counter[str]) -> _Answer | None:
    bare = writable(without_thoughts(said.text)).strip()
    if filters.json and (fenced := _FENCE.match(bare)):
        bare = fenced.group(1).strip()
    if fault := _fault(said, bare, filters):
        dropped[fault] += 1
        return None
    return _Answer(_with_thoughts(said, bare) if filters.thinking == "keep" else bare, bare)


def _fault(said: Said, bare: str, filters: Filters) -> str:
    """Why the answer is of no use; empty where it is."""
    if said.refusal or said.finish == "content_filter" or (len(bare) <= LONGEST_REFUSAL and _REFUSAL.match(bare)):
        return "refusal"
    if said.finish == "length":
        return "truncated"
    if not bare:
        return "empty"
    if len(bare) < filters.shortest:
        return "too short"
    if filters.longest is not None and len(bare) > filters.longest:
        return "too long"
    return "not JSON" if filters.json and _json(bare) is None else ""


def _with_thoughts(said: Said, bare: str) -> str:
    head, closed, _ = said.text.rpartition("</think>")
    thoughts = said.thoughts or (head.partition("<think>")[2] or head if closed else "")
    return f"<think>\n{writable(thoughts).strip()}\n</think>\n\n{bare}" if thoughts.strip() else bare


def _json(text: str) -> str | None:
    """The text's JSON in one spelling; None where it is none."""
    try:
        return json.dumps(json.loads(text, parse_constant=_refuse), sort_keys=True)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _agreeing(good: list[_Answer], samples: int, filters: Filters, dropped: Counter[str]) -> list[_Answer]:
    """The first of the commonest answers where enough of all samples agree with it (Wang et al. 2022, 2203.11171).

    A sample without a good answer agrees with nothing.
    """
    said = [_point(answer, filters) for answer in good]
    point, votes = Counter(one for one in said if one is not None).most_common(1)[0] if any(said) else ("", 0)
    agrees = votes >= (filters.agreement or 0) * samples and votes > 0
    kept = [good[said.index(point)]] if agrees else []
    dropped["disagreeing"] += len(good) - (votes if agrees else 0)
    dropped["agreeing with one kept"] += votes - 1 if agrees else 0
    return kept


def _point(answer: _Answer, filters: Filters) -> str | None:
    if filters.agree_on is not None:
        found = re.findall(filters.agree_on, answer.bare)
        text = (found[-1] if isinstance(found[-1], str) else found[-1][0]) if found else None
    else:
        text = _json(answer.bare) if filters.json else answer.bare
    return None if text is None else " ".join(text.split()).casefold().rstrip(".") or None


def _different(good: list[_Answer], filters: Filters, dropped: Counter[str]) -> Iterator[_Answer]:
    """The answers of one prompt, each once."""
    seen: list[_Answer] = []
    for answer in good:
        if any(answer.text == one.text for one in seen):
            dropped["copy"] += 1
        elif filters.near_copies and any(_is_alike(answer.text, one.text) for one in seen):
            dropped["near copy"] += 1
        else:
            seen.append(answer)
            yield answer


def _is_alike(one: str, other: str) -> bool:
    # Short answers differ in what matters.
    is_long = min(len(one), len(other)) >= SHORTEST_COPY
    return is_long and similarity(shingles(one), shingles(other)) >= ALIKE


def _drop_near_copies(kept: Kept) -> None:
    """Rows nearly the same as one of another prompt; several answers to one prompt are no copies of each other."""
    texts = [f"{prompt.text}\n{answer}" for prompt, answer in kept.rows]
    copies, rows, last = NearCopies(texts), [], None
    is_copy = False
    for (prompt, answer), text in zip(kept.rows, texts, strict=True):
        if prompt is not last:
            is_copy, last = copies.is_known(text, keep=True), prompt
        if is_copy:
            kept.dropped["near copy"] += 1
        else:
            rows.append((prompt, answer))
    kept.rows, kept.looked_for_near_copies = rows, copies.is_able
