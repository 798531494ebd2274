"""How a validator of the study model says what is wrong: at which key, and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from pydantic import ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

__all__ = ["ACROSS_SECTIONS", "IN_SECTION", "MISSING", "Location", "Problem", "child", "refuse", "value_at"]

Location = tuple[str | int, ...]
"""Keys and list positions from the place of the validator (or the top of the file) down to a value."""

MISSING = object()
"""What `child` gives where nothing is."""

IN_SECTION = "section"
ACROSS_SECTIONS = "across_sections"


def child(data: object, step: str | int) -> object:
    """What stands in `data` at one key or list position."""
    if isinstance(data, Mapping):
        return data.get(step, MISSING)
    if isinstance(data, list | tuple) and isinstance(step, int) and 0 <= step < len(data):
        return data[step]
    return MISSING


def value_at(data: object, at: Location) -> object:
    """What stands in `data` at `at`; None where nothing is."""
    for step in at:
        data = child(data, step)
    return None if data is MISSING else data


@dataclass(frozen=True)
class Problem:
    """One thing wrong at `at`, below the section that checks; an empty `at` is the section itself."""

    message: str
    at: Location
    mend: str
    value: object = None


def refuse(*problems: Problem, across_sections: bool = False) -> NoReturn:
    """Raise pydantic's ValidationError with one entry a problem; pydantic adds the section's own place in front."""
    kind = ACROSS_SECTIONS if across_sections else IN_SECTION
    raise ValidationError.from_exception_data("study", [_details(kind, problem) for problem in problems])


def _details(kind: str, problem: Problem) -> InitErrorDetails:
    context = {"message": problem.message, "mend": problem.mend}
    error = PydanticCustomError(kind, "{message} ({mend})", context)
    return InitErrorDetails(type=error, loc=problem.at, input=problem.value)
