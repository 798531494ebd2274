"""Typed answers from what language models write: closed schemas, JSON found in text, what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from nightlab.configs.wording import one_line

__all__ = ["Parsed", "answer_schema", "parsed_answer", "whole"]

T = TypeVar("T", bound=BaseModel)

MAX_ERRORS = 5
MAX_TOLD = 160
MAX_STARTS = 50
"""So many opening braces of a text are tried."""

_FENCED = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)
_THOUGHT = re.compile(r"<think(?:ing)?>.*?</think(?:ing)?>", re.DOTALL)
_LENGTHS = ("minLength", "maxLength")
_VALUES = re.compile("value_error|assertion|greater_than|less_than|too_long|too_short|pattern|multiple_of|finite")
"""The kinds of validation errors that a server which follows the schema may still give."""


@dataclass(frozen=True)
class Parsed(Generic[T]):
    """An answer, or what is wrong with it."""

    value: T | None = None
    problem: str = ""
    breaks_schema: bool = False
    """Whether a server that follows the schema would never have given it."""


def answer_schema(wanted: type[BaseModel], *, lengths: bool) -> dict[str, Any]:
    """The JSON schema of `wanted` with every object closed and every field required, as strict servers want it.

    `lengths`: whether bounds on texts stay, which OpenAI refuses. Raises TypeError for fields that are open mappings:
    no closed schema can say them.
    """
    schema: dict[str, Any] = _closed(wanted.model_json_schema(), lengths, wanted.__name__)
    return schema


def _closed(node: Any, lengths: bool, place: str) -> Any:
    if isinstance(node, list):
        return [_closed(inner, lengths, place) for inner in node]
    if not isinstance(node, dict):
        return node
    # In a group stand names of fields, of which one may be called like a keyword.
    groups, left_out = ("properties", "$defs"), ("default", "title", *(() if lengths else _LENGTHS))
    keywords = {name: inner for name, inner in node.items() if name not in (*groups, *left_out)}
    closed = {name: _closed(inner, lengths, place) for name, inner in keywords.items()}
    for group in groups:
        if group in node:
            closed[group] = {name: _closed(inner, lengths, f"{place}.{name}") for name, inner in node[group].items()}
    if node.get("type") == "object":
        if "properties" not in node:
            raise TypeError(f"{place}: is an open mapping; use a list of names and values")
        closed |= {"additionalProperties": False, "required": list(node["properties"])}
    return closed


def parsed_answer(wanted: type[T], written: str | dict[str, Any], clean: Any = None) -> Parsed[T]:
    """What the model wrote as `wanted`; `clean` (JSON-able data → the same without secrets) is applied before."""
    found = [written] if isinstance(written, dict) else list(_objects(written))
    if not found:
        return Parsed(problem="the answer holds no JSON object", breaks_schema=True)
    first: Parsed[T] | None = None
    for data in found:
        one = _validated(wanted, whole(clean(data) if clean else data))
        if one.value is not None:
            return one
        first = first or one
    assert first is not None
    return first


def whole(data: Any) -> Any:
    """JSON-able data without halves of characters, which JSON can name (`\\ud800`) and nothing can write down."""
    return json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))


def _validated(wanted: type[T], data: dict[str, Any]) -> Parsed[T]:
    try:
        return Parsed(wanted.model_validate(data))
    except ValidationError as error:
        errors = error.errors(include_url=False)
        told = [f"{'.'.join(map(str, one['loc'])) or 'the answer'}: {one['msg']}" for one in errors[:MAX_ERRORS]]
        more = [f"and {len(errors) - MAX_ERRORS} more"] if len(errors) > MAX_ERRORS else []
        breaks = any(not _VALUES.search(str(one["type"])) for one in errors)
        return Parsed(problem="; ".join(one_line(line)[:MAX_TOLD] for line in [*told, *more]), breaks_schema=breaks)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects in a text: the whole of it, what stands between fences, then whatever begins with a brace."""
    text = _THOUGHT.sub("", text).strip()
    for piece in (text, *_FENCED.findall(text)):
        try:
            data = json.loads(piece)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            yield data
            return
    decoder, start = json.JSONDecoder(), text.find("{")
    for _ in range(MAX_STARTS):
        if start < 0:
            return
        try:
            data, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield data
        start = text.find("{", end)
