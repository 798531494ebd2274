"""Slugs and branch names: what a person reads in `git branch`, safe as an argument, a ref and a folder."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping

from nightlab.configs.study import Scalar
from nightlab.errors import ConfigError, Fault

__all__ = ["BRANCH_PREFIX", "branch_name", "check_name", "slug", "variable_slug"]

BRANCH_PREFIX = "experiment-"
MAX_BRANCH_CHARACTERS = 120
MAX_VARIABLE_CHARACTERS = 60
MAX_VALUE_CHARACTERS = 40
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")


def check_name(text: str) -> str:
    """`text` itself when it is made of lower-case letters, digits and inner hyphens; raises ConfigError otherwise."""
    if not _NAME.fullmatch(text):
        raise ConfigError(
            Fault(f"{text!r} cannot name a branch or a worktree", mend="use lower-case letters, digits and hyphens")
        )
    return text


def slug(text: str) -> str:
    """Lower-case ASCII letters, digits and single hyphens; letters without an ASCII form become a short digest."""
    folded = unicodedata.normalize("NFKD", text.casefold())
    kept = "".join(c for c in folded if not unicodedata.combining(c))
    ascii_part = re.sub(r"[^a-z0-9]+", "-", kept).strip("-")
    if ascii_part and not any(c.isalnum() and not c.isascii() for c in kept):
        return ascii_part
    return "-".join(part for part in (ascii_part, _digest(text)) if part)


def variable_slug(changed: Mapping[str, Scalar]) -> str:
    """The change under test as a slug: `learning-rate-0-003`; several are joined, then counted: `…-plus-2-4fa90c`.

    The order of `changed` does not matter; without a change it is `baseline`.
    """
    parts = [f"{slug(name)}-{_value_slug(changed[name])}" for name in sorted(changed)]
    whole = "-".join(parts)
    if not parts:
        return "baseline"
    if len(whole) <= MAX_VARIABLE_CHARACTERS:
        return whole
    mark = _digest(json.dumps(dict(changed), sort_keys=True))
    for shown in range(len(parts) - 1, 0, -1):
        text = "-".join([*parts[:shown], f"plus-{len(parts) - shown}", mark])
        if len(text) <= MAX_VARIABLE_CHARACTERS:
            return text
    return _shorten(whole, MAX_VARIABLE_CHARACTERS, mark)


def branch_name(number: int, scenario: str, method: str, variable: str) -> str:
    """`experiment-NN-<scenario>-<method>-<variable>`, at most 120 characters; a long variable ends in a digest.

    Raises ConfigError when scenario and method leave no room for the variable.
    """
    head = f"{BRANCH_PREFIX}{number:02d}-{slug(scenario)}-{slug(method)}-"
    room = MAX_BRANCH_CHARACTERS - len(head)
    if room < 12:
        raise ConfigError(
            Fault(
                f"branch name {head!r} is too long", key="scenario", value=scenario, mend="shorten scenario or method"
            )
        )
    tail = slug(variable)
    return check_name(head + (tail if len(tail) <= room else _shorten(tail, room, _digest(variable))))


def _value_slug(value: Scalar) -> str:
    """Numbers keep sign and exponent apart: -0.5 → `minus-0-5`, 1e-05 → `1e-05`, 1e+16 → `1e16`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return re.sub(r"^-", "minus-", repr(value)).replace("+", "").replace(".", "-")
    text = slug(value) if value else "empty"
    return text if len(text) <= MAX_VALUE_CHARACTERS else _shorten(text, MAX_VALUE_CHARACTERS, _digest(value))


def _shorten(text: str, limit: int, mark: str) -> str:
    return f"{text[: limit - len(mark) - 1].rstrip('-')}-{mark}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:6]
