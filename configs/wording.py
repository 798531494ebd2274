"""How values and places are shown to a person: on one line, short, printable."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from math import isfinite

from nightlab.configs.problems import Location

__all__ = ["MAX_SHOWN", "nearest", "one_line", "show", "written"]

MAX_SHOWN = 60
"""Characters of a value that a message repeats at most: enough to find it, too few to leak a long secret."""


def show(value: object) -> str:
    """`value` as a study file would hold it, escaped to one line and cut to 60 characters."""
    match value:
        case None:
            text = "null"
        case bool():
            text = "true" if value else "false"
        case int() if value.bit_length() > 1000:
            text = "a number of hundreds of digits"
        case float() if not isfinite(value):
            text = f"{value:+}".replace("inf", ".inf").replace("+nan", ".nan").removeprefix("+")
        case list() | tuple():
            text = "[" + ", ".join(show(item) for item in value[:5]) + (", …]" if len(value) > 5 else "]")
        case dict():
            text = "{" + ", ".join(map(str, list(value)[:5])) + (": …}" if value else "}")
        case str():
            text = repr(value[: MAX_SHOWN + 1])
        case _:
            text = repr(value)
    return one_line(text) if len(text) <= MAX_SHOWN else one_line(text)[: MAX_SHOWN - 1] + "…"


def one_line(text: str) -> str:
    """`text` with everything that does not print escaped."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def written(at: Location) -> str:
    """The dotted key, as a person would name it: `guardrails[0].max`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{one_line(part[:MAX_SHOWN])}" for part in at]
    return "".join(parts).removeprefix(".")


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be."""
    options = {option.lower(): option for option in known}
    lowered = word[:MAX_SHOWN].lower().replace("-", "_")
    if close := get_close_matches(lowered, options, n=1, cutoff=0.7):
        return options[close[0]]
    starts = [option for option in options if len(lowered) >= 3 and option.startswith(lowered)]
    return options[starts[0]] if len(starts) == 1 else None
