"""Pydantic's errors, translated: one finding a mistake, in plain words, with a mend."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic_core import ErrorDetails

from nightlab.configs.fields import field_at, fields_of, first_sentence, section_at, sections
from nightlab.configs.problems import ACROSS_SECTIONS, IN_SECTION, MISSING, Location, child, value_at
from nightlab.configs.wording import nearest, show

__all__ = ["Finding", "findings"]

SECRET = (("backend", "env"),)
"""Places whose values are never repeated."""


@dataclass(frozen=True)
class Finding:
    """One mistake at one place; `kind` is pydantic's error type."""

    at: Location
    kind: str
    message: str
    mend: str | None = None
    value: object = None
    meant: str | None = None
    """For an unknown key: the known one it was probably meant to be."""


def findings(errors: Iterable[ErrorDetails], data: Mapping[str, object]) -> list[Finding]:
    """Findings for `errors` of validating `data`; the branches of a union make one."""
    grouped: dict[Location, list[ErrorDetails]] = {}
    unions: set[Location] = set()
    for error in errors:
        at, in_union = _place(error, data)
        grouped.setdefault(at, []).append(error)
        if in_union:
            unions.add(at)
    found = []
    for at, group in grouped.items():
        if at in unions:
            deeper = any(other[: len(at)] == at and other != at for other in grouped)
            found += [] if deeper else [_of_union(at, group)]
        else:
            found += [_of_one(at, error, data) for error in group]
    return found


def _place(error: ErrorDetails, data: object) -> tuple[Location, bool]:
    """Where the error lies in the file, and whether it is a branch of a union (a tag in pydantic's location)."""
    at: list[str | int] = []
    tagged = False
    here = data
    in_data = error["type"] not in ("missing", IN_SECTION, ACROSS_SECTIONS)
    for tag in error["loc"]:
        # A duration or a size may be written by its field's name as well.
        step = next((way for way in (tag, f"{tag}_seconds", f"{tag}_bytes") if child(here, way) is not MISSING), None)
        if step is None and in_data:
            tagged = tagged or tag != "[key]"
            continue
        at.append(tag if step is None else step)
        tagged = False
        here = child(here, at[-1])
    return tuple(at), tagged


def _of_union(at: Location, group: list[ErrorDetails]) -> Finding:
    kinds = {error["type"] for error in group}
    value = group[0]["input"]
    if "finite_number" in kinds:
        return Finding(at, "finite_number", f"{_shown(at, value)} is not a finite number", None, value)
    wanted = {
        frozenset(("bool_type", "int_type", "float_type", "string_type")): "a number, text, true or false",
        frozenset(("string_type", "list_type")): "text or a list of texts",
    }.get(frozenset(kinds), "a number or text")
    return Finding(at, "union", f"{_shown(at, value)} is not {wanted}", _explained(at), value)


def _of_one(at: Location, error: ErrorDetails, data: Mapping[str, object]) -> Finding:
    kind, value = error["type"], error["input"]
    context = error.get("ctx") or {}
    shown = _shown(at, value)
    mend: str | None
    match kind:
        case "missing":
            return _missing(at, data)
        case "extra_forbidden":
            return _unknown(at, value)
        case _ if kind in (IN_SECTION, ACROSS_SECTIONS):
            value = value_at(data, at) if kind == IN_SECTION else value
            return Finding(at, kind, _with_value(at, value, str(context["message"])), str(context["mend"]), value)
        case "literal_error":
            return _not_among(at, value)
        case "string_pattern_mismatch":
            message, mend = _off_pattern(at, shown, is_key=error["loc"][-1:] == ("[key]",), name=str(value))
        case "value_error":
            message, _, mend = str(context["error"]).partition("; ")
            message = f"{shown} {message}"
        case _:
            message, mend = _plain(kind, shown, value, context)
    return Finding(at, kind, message, mend or _explained(at), value)


def _plain(kind: str, shown: str, value: object, context: Mapping[str, Any]) -> tuple[str, str | None]:
    bound = " and ".join(f"{_BOUNDS[name]} {context[name]:g}" for name in _BOUNDS if name in context)
    if bound and "length" not in kind:
        return f"{shown} must be {bound}", None
    match kind:
        case "string_type":
            return f"{shown} is not text", "put it in quotes" if isinstance(value, bool | int | float) else None
        case "string_unicode":
            return f"{shown} is not valid text", None
        case "bool_type" | "bool_parsing":
            return f"{shown} is not true or false", _boolean_mend(value)
        case "int_from_float":
            return f"{shown} is not a whole number", None
        case "finite_number":
            return f"{shown} is not a finite number", None
        case "duration":
            return f"{shown} is not a duration", "write for example 90s, 5m, 1h30m or 9h"
        case "policy":
            return (
                f"{shown} is not a policy",
                "write auto, ask, ask-with-default, or a section with policy and deadline",
            )
        case "score":
            return f"{shown} is not a score", f"write one of {context['kinds']}, or a section with kind and more"
        case "size":
            return f"{shown} is not a size", "write for example 500MB, 1.5GB or 2GiB"
        case "list_type":
            return f"{shown} is not a list", None if isinstance(value, dict) else f"write [{show(value)}]"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{shown} is not a section of `key: value` lines", None
        case "tuple_type" | "too_long" | "too_short":
            return f"{shown} is not a list of two numbers", "write [lowest, highest]"
    if kind.startswith(("int_", "float_", "boolean_for_number")):
        whole = "a whole number" if kind.startswith("int_") else "a number"
        return f"{shown} is not {whole}", _number_mend(value)
    return f"{shown} is not valid here", None


_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _number_mend(value: object) -> str | None:
    if isinstance(value, str) and value.count(",") == 1 and value.replace(",", "").isdigit():
        return f"write the decimal point as a point: {value.replace(',', '.')}"
    return None


def _boolean_mend(value: object) -> str:
    words = {"yes": "true", "on": "true", "y": "true", "no": "false", "off": "false", "n": "false", "1": "true"}
    word = words.get(str(value).lower())
    return f"it is text here; write {word}" if word and isinstance(value, str) else "write true or false"


def _missing(at: Location, data: Mapping[str, object]) -> Finding:
    if isinstance(at[-1], int):
        whole = value_at(data, at[:-1])
        return Finding(
            at[:-1], "too_short", f"{show(whole)} is not a list of two numbers", "write [lowest, highest]", whole
        )
    field = field_at(at)
    words = _lowered(first_sentence(field)) if field else ""
    options = get_args(field.annotation) if field else ()
    if options and all(isinstance(option, str) for option in options):
        words = f"{words}: {' or '.join(options)}"
    return Finding(at, "missing", "is missing", f"add it: {words}" if words else "add it")


def _unknown(at: Location, value: object) -> Finding:
    section = section_at(at[:-1])
    known = fields_of(section) if section else {}
    meant = nearest(str(at[-1]), known)
    homes = [place or "the top of the file" for place, other in sections().items() if at[-1] in fields_of(other)]
    if meant:
        mend = f"did you mean `{meant}`?"
    elif homes:
        mend = f"it belongs under {' or '.join(homes)}"
    else:
        mend = f"known here: {', '.join(known)}"
    return Finding(at, "extra_forbidden", "unknown key", mend, value, meant)


def _not_among(at: Location, value: object) -> Finding:
    field = field_at(at) or field_at(at[:-1])
    options = _options(field.annotation) if field else []
    meant = nearest(value, options) if isinstance(value, str) else None
    mend = f"did you mean `{meant}`?" if meant else _explained(at)
    listed = f"one of {', '.join(options)}" if len(options) > 1 else f"{options[0]}, the only choice yet"
    return Finding(at, "literal_error", f"{_shown(at, value)} is not {listed}", mend, value)


def _options(annotation: Any) -> list[str]:
    """The words of a Literal, also of one in a list or a union."""
    if get_origin(annotation) is Literal:
        return [str(option) for option in get_args(annotation)]
    return [option for part in get_args(annotation) for option in _options(part)]


def _off_pattern(at: Location, shown: str, *, is_key: bool, name: str) -> tuple[str, str]:
    if at and at[-1] in ("study", "scenario", "method"):
        slug = "-".join(
            "".join(letter if letter.isalnum() and letter.isascii() else " " for letter in name.lower()).split()
        )
        hint = f", for example {slug[:40].strip('-')}" if slug else ""
        return f"{shown} does not suit a branch name", f"use a-z, 0-9 and inner hyphens, at most 40{hint}"
    message = "is not a name" if is_key else f"{shown} is not a name"
    return message, "use a letter or _ first, then letters, digits and _ . - /"


def _explained(at: Location) -> str | None:
    field = field_at(at)
    return _lowered(first_sentence(field)) if field else None


def _lowered(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() or sentence[1:2] == " " else sentence


def _shown(at: Location, value: object) -> str:
    return "its value" if any(at[: len(place)] == place for place in SECRET) else show(value)


def _with_value(at: Location, value: object, message: str) -> str:
    if value is None or isinstance(value, dict) or not message.startswith("is "):
        return message
    return f"{_shown(at, value)} {message}"
