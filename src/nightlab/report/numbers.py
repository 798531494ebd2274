"""Numbers as people read them: as many digits as the uncertainty leaves, true signs, units."""

from __future__ import annotations

import math
from collections.abc import Iterable

from nightlab.configs.study import Scalar

__all__ = [
    "MINUS",
    "count",
    "decimals_for",
    "duration",
    "fixed",
    "interval",
    "level",
    "listing",
    "memory",
    "money",
    "percent",
    "short",
    "signed",
]

MINUS = "−"
NOT_KNOWN = "–"


def decimals_for(*uncertainties: float | None, value: float | None = None) -> int:
    """Decimals that the smallest uncertainty leaves: its first digit, the second too when the first is 1 or 2.

    Without an uncertainty, four significant digits of `value`.

    >>> decimals_for(0.0312), decimals_for(0.018)
    (2, 3)
    """
    known = [abs(u) for u in uncertainties if u is not None and math.isfinite(u) and u != 0]
    if known:
        exponent, first = _leading(min(known))
        return min(max(-exponent + (first < 3), 0), 8)
    if value is None or not math.isfinite(value) or value == 0:
        return 3
    return min(max(3 - math.floor(math.log10(abs(value))), 0), 8)


def _leading(number: float) -> tuple[int, float]:
    """Decimal exponent and leading digits (two, as 1.0 to 9.9)."""
    mantissa, exponent = f"{number:.1e}".split("e")
    return int(exponent), float(mantissa)


def fixed(value: float | None, decimals: int, *, unit: str = "") -> str:
    """`1,234.50 ms`: grouped thousands, a real minus sign, the unit after a space."""
    if value is None:
        return NOT_KNOWN
    if not math.isfinite(value):
        return str(value)
    large = abs(value) >= 1e9
    text = f"{value:.3e}" if large else f"{value:,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = text.lstrip("-")
    return with_unit(text.replace("-", MINUS) if not large else text, unit)


def signed(value: float | None, decimals: int, *, unit: str = "") -> str:
    """As `fixed`, with a plus sign before what is above zero."""
    text = fixed(value, decimals, unit=unit)
    return f"+{text}" if value is not None and value > 0 and _shows_digits(text) else text


def interval(low: float | None, high: float | None, decimals: int) -> str:
    """`−0.35 … −0.29`; a dash when there is none."""
    if low is None or high is None:
        return NOT_KNOWN
    return f"{signed(low, decimals)} … {signed(high, decimals)}"


def with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}" if unit else text


def short(value: float) -> str:
    """Four significant digits for a side figure: `31.25`, `55`."""
    return f"{value:.4g}".replace("-", MINUS) if abs(value) < 1e4 else fixed(value, 0)


def duration(seconds: float | None) -> str:
    """`3.2 s`, `4 min 12 s`, `7 h 31 min`."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours:,} h {minutes} min" if minutes else f"{hours:,} h"


def memory(number_of_bytes: float | None) -> str:
    """`812 MiB`, `1.4 GiB`."""
    if number_of_bytes is None:
        return NOT_KNOWN
    mebibytes = number_of_bytes / 2**20
    return f"{mebibytes:,.0f} MiB" if mebibytes < 1023.5 else f"{mebibytes / 1024:,.1f} GiB"


def money(usd: float | None) -> str:
    """`$1,234.50`; below a dollar with a digit more."""
    return NOT_KNOWN if usd is None else f"${usd:,.2f}" if usd >= 1 or not usd else f"${usd:,.3f}"


def percent(share: float | None, decimals: int = 0) -> str:
    """`97 %`."""
    return NOT_KNOWN if share is None else f"{share * 100:.{decimals}f} %"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """`1 run`, `3 runs`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def level(value: Scalar) -> str:
    """A parameter's value as it stands in a study file: `true`, `0.003`, `adam`."""
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)


def listing(words: Iterable[str], *, limit: int = 6) -> str:
    """`a, b and c`; beyond `limit`, `a, b and 7 more`."""
    items = list(words)
    if len(items) > limit:
        items = [*items[: limit - 1], f"{len(items) - limit + 1} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else ""


def _shows_digits(text: str) -> bool:
    return any(character in "123456789" for character in text.split(" ")[0])
