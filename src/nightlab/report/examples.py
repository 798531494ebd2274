"""The winner beside the baseline, example by example, as both documents show it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nightlab.report.numbers import count, decimals_for, fixed, interval, percent, signed

__all__ = ["BadAnswer", "ScoreCompared", "SliceChange", "compared_scores"]

MOST_SLICES = 3
"""Of those that gained most, and of those that lost most."""
MOST_CASES = 3
LONGEST_TEXT = 160


@dataclass(frozen=True)
class SliceChange:
    """A part of the examples, written out."""

    name: str
    examples: int
    before: str
    after: str
    difference: str
    interval: str


@dataclass(frozen=True)
class BadAnswer:
    """One example that the winner does badly on, cut short: other people's text."""

    value: str
    line: int
    prompt: str
    label: str
    answer: str


@dataclass(frozen=True)
class ScoreCompared:
    """One score of the lab's, written out."""

    metric: str
    before: str
    after: str
    difference: str
    over_examples: str
    """Interval over examples, with these seeds."""
    rests_on: str
    """`120 examples and 3 seeds`."""
    confidence: str
    signs: str
    """On how many examples it is better, worse, the same; empty where an example has no value by itself."""
    gained: tuple[SliceChange, ...]
    """Slices, the largest gain first."""
    lost: tuple[SliceChange, ...]
    """The largest loss first."""
    cases: tuple[BadAnswer, ...]
    """Worst first, of one run."""
    seed: int
    """Of that run."""


def compared_scores(kept: Sequence[Mapping[str, Any]]) -> tuple[ScoreCompared, ...]:
    """From what `agents.comparison` keeps."""
    return tuple(_written(one) for one in kept)


def _written(one: Mapping[str, Any]) -> ScoreCompared:
    over = one["interval"]
    delta = one["after"] - one["before"]
    decimals = decimals_for((over["high"] - over["low"]) / 2 if over else None, value=one["after"])
    slices = sorted(one["slices"], key=lambda part: part["before"] - part["after"])
    gained = [part for part in slices if part["after"] > part["before"]][:MOST_SLICES]
    lost = [part for part in reversed(slices) if part["after"] < part["before"]][:MOST_SLICES]
    return ScoreCompared(
        metric=one["metric"],
        before=fixed(one["before"], decimals),
        after=fixed(one["after"], decimals),
        difference=signed(delta, decimals),
        over_examples=_interval(over, decimals),
        rests_on=f"{count(one['examples'], 'example')}, {count(one['seeds'], 'seed')}",
        confidence=percent(over["confidence"]) if over else "",
        signs=_signs(one),
        gained=tuple(_slice(part) for part in gained),
        lost=tuple(_slice(part) for part in lost),
        cases=tuple(_case(case) for case in one["bad_cases"][:MOST_CASES]),
        seed=one["seed_of_cases"],
    )


def _interval(over: Mapping[str, float] | None, decimals: int) -> str:
    return interval(over["low"], over["high"], decimals) if over else interval(None, None, decimals)


def _signs(one: Mapping[str, Any]) -> str:
    if one["better"] is None:
        return ""
    return f"better on {count(one['better'], 'example')}, worse on {one['worse']}, the same on {one['same']}"


def _slice(part: Mapping[str, Any]) -> SliceChange:
    over = part["interval"]
    decimals = decimals_for((over["high"] - over["low"]) / 2 if over else None, value=part["after"])
    return SliceChange(
        name=_short(part["name"]) or "(empty)",
        examples=part["examples"],
        before=fixed(part["before"], decimals),
        after=fixed(part["after"], decimals),
        difference=signed(part["after"] - part["before"], decimals),
        interval=_interval(over, decimals),
    )


def _case(case: Mapping[str, Any]) -> BadAnswer:
    texts = [_short(str(case.get(name) or "")) for name in ("prompt", "label", "prediction")]
    return BadAnswer(f"{case['value']:.3g}", case["line"], *texts)


def _short(text: str) -> str:
    """One line, its start and its end: a question stands at the end of its prompt."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    half = LONGEST_TEXT // 2
    return line if len(line) <= LONGEST_TEXT else f"{line[:half]} … {line[-half + 3 :]}"
