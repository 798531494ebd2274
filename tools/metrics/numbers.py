"""From printed text to a finite number, or a clear word why not.

Read: `2`, `-0.5`, `.5`, `2.`, `1e-3`, `9.5E-01`, `1_000`, `1,000,000`, `1,234.5`, and any of them with a trailing `%`
(the number is taken as printed: `45%` is 45.0).

Refused as ambiguous: a single comma that may be a decimal comma or a thousands separator (`0,95`, but also `1,234`:
either reading is wrong by a factor of a thousand in somebody's log), dots as thousands separators, fractions (`3/10`),
times (`0:00:09`) and numbers with a unit or scale attached (`2.3s`, `1.2M`).
"""

from __future__ import annotations

import math
import re

from nightlab.errors import MetricError

__all__ = ["excerpt", "is_missing_value", "looks_like_number", "parse_number"]

_PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII)
_GROUPED = re.compile(
    r"[-+]?[1-9]\d{0,2}(?:(?:_\d{3})+(?:\.\d*)?|(?:,\d{3}){2,}(?:\.\d*)?|,\d{3}\.\d*)",
    re.ASCII,
)
_MISSING = re.compile(
    r"[-+]?(?:nan(?:\([^)]*\))?|inf(?:inity)?|∞|1\.#(?:inf|ind|qnan|snan)\d*)|none|null|n/?a|<na>|undefined",
    re.IGNORECASE,
)
_NUMBERISH = re.compile(r"[^\w\s]{0,3}\d")
_SHOWN_CHARACTERS = 60


def excerpt(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    """The text in quotes, cut short for a message of one line."""
    return repr(text if len(text) <= characters else text[: characters - 1] + "…")


def is_missing_value(text: str) -> bool:
    """True for what programs print in place of a number: nan, inf, None, null, n/a."""
    return _MISSING.fullmatch(text.strip()) is not None


def looks_like_number(text: str) -> bool:
    """True when the text starts as a number does, however it goes on: it is read or refused, never passed over."""
    return _NUMBERISH.match(text) is not None


def parse_number(text: str) -> float:
    """The finite number that `text` states.

    Raises MetricError with cause `metric-not-finite`, `metric-ambiguous` (digits that are no plain number) or
    `metric-unreadable` (no number at all).
    """
    if is_missing_value(text):
        raise MetricError(f"{excerpt(text.strip())} is not a finite number", cause="metric-not-finite")
    body = text.strip().removesuffix("%").rstrip().replace("\N{MINUS SIGN}", "-")
    if _PLAIN.fullmatch(body):
        value = float(body)
    elif _GROUPED.fullmatch(body):
        value = float(body.replace(",", "").replace("_", ""))
    else:
        raise _refusal(text.strip())
    if not math.isfinite(value):
        raise MetricError(f"{excerpt(body)} is too large for a finite number", cause="metric-not-finite")
    return value


def _refusal(text: str) -> MetricError:
    shown = excerpt(text)
    if not any(character.isdigit() for character in text):
        return MetricError(f"{shown} is not a number", cause="metric-unreadable")
    if re.search(r"\d,\d", text):
        return MetricError(
            f"{shown} is ambiguous: a decimal comma or a thousands separator? (print it with a decimal point and "
            "without separators)",
            cause="metric-ambiguous",
        )
    return MetricError(
        f"{shown} is ambiguous: not one plain number (print the number alone, its unit in the metric's name)",
        cause="metric-ambiguous",
    )
