"""What the study model knows of itself: sections, written keys, their meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from nightlab.configs.problems import Location
from nightlab.configs.section import Section
from nightlab.configs.study import Study

__all__ = ["field_at", "fields_of", "first_sentence", "section_at", "sections", "written_key"]


def written_key(name: str, field: FieldInfo) -> str:
    """The key of a field in the study file."""
    return field.alias or name


def fields_of(section: type[Section]) -> dict[str, FieldInfo]:
    """The section's fields by the key a person writes."""
    return {written_key(name, field): field for name, field in section.model_fields.items()}


def first_sentence(field: FieldInfo) -> str:
    """What the field means, in its first sentence, without asides in parentheses and the full stop."""
    text = re.sub(r" \([^()]*\)", "", " ".join((field.description or "").split()))
    return re.split(r"\. (?=[A-Z])|; ", text)[0].removesuffix(".")


def _section_in(annotation: Any) -> type[Section] | None:
    """The section that `annotation` is, lists or maps names to."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next((found for part in get_args(annotation) if (found := _section_in(part))), None)


def _is_direct(annotation: Any) -> bool:
    """Whether the section itself stands there, or none at all; no list of them and no map."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _is_direct(parts[0])
    if origin in (Union, UnionType):
        return all(_is_direct(part) for part in parts if part is not NoneType)
    return isinstance(annotation, type) and issubclass(annotation, Section)


def section_at(at: Location) -> type[Section] | None:
    """The section whose keys stand directly below `at`; None where values or a person's own names stand."""
    section: type[Section] | None = Study
    steps = iter(at)
    for step in steps:
        field = _field(section, step) if section else None
        if field is None:
            return None
        section = _section_in(field.annotation)
        if section and not _is_direct(field.annotation) and next(steps, None) is None:
            return None
    return section


def field_at(at: Location) -> FieldInfo | None:
    """The field that `at` names; None for a person's own names, list items and unknown keys."""
    section = section_at(at[:-1]) if at else None
    return _field(section, at[-1]) if section else None


def _field(section: type[Section], key: str | int) -> FieldInfo | None:
    return fields_of(section).get(str(key)) or section.model_fields.get(str(key))


@cache
def sections() -> dict[str, type[Section]]:
    """Every section by the dotted place where it stands: `space.<name>`, `guardrails[]`; the file itself is empty."""
    return dict(_walk("", Study))


def _walk(place: str, section: type[Section]) -> Iterator[tuple[str, type[Section]]]:
    yield place, section
    for key, field in fields_of(section).items():
        if inner := _section_in(field.annotation):
            many = "" if _is_direct(field.annotation) else "[]" if "list" in str(field.annotation) else ".<name>"
            yield from _walk(f"{place}.{key}{many}".removeprefix("."), inner)
