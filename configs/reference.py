"""The study file's reference page, made from the models.

`python -m nightlab.configs.reference > docs/study-file.md` writes it anew.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from nightlab.configs.approvals import Decision
from nightlab.configs.fields import sections
from nightlab.configs.launcher import Setting
from nightlab.configs.scoring import Scoring
from nightlab.configs.section import Section
from nightlab.configs.study import Name, RepositoryPath, Scalar, Slug
from nightlab.configs.units import Duration, Flag, Size
from nightlab.configs.wording import show

__all__ = ["reference_page"]

_INTRODUCTION = """\
# The study file

<!-- Made by `python -m nightlab.configs.reference > docs/study-file.md`; change the models, not this page. -->

`study.yaml` says what is to be improved, what may be changed, and how much it may cost. `nightlab init` writes a
commented one, `nightlab check study.yaml` names every mistake at once with its line and how to mend it.

## How the file is read

* YAML 1.2: `1e-3` is the number 0.001; `yes`, `no`, `on` and `off` are text (write `true` or `false`); `07:30` and
  `2026-01-31` are text; a whole number with leading zeros (`007`) stays text.
* Text that starts with `{` or `[`, or holds `: ` or ` #`, belongs in quotes: `command: "{python} train.py"`.
* A key that is unknown or given twice is a mistake. A key of a section without a value counts as not written.
* A duration is a number of seconds or text such as `90s`, `5m`, `1h30m`, `9h`.
* A size is a number of bytes or text such as `500MB`, `1.5GB`, `2GiB`.
* A *path* is relative to the repository's top folder and stays inside it.
* A *name* starts with a letter or `_` and goes on with letters, digits and `_ . - /`; a *slug* is made of `a-z`, `0-9`
  and inner hyphens, 40 characters at most.
* A *value* is one number, text, `true` or `false`.
* The first line `# yaml-language-server: $schema=…` lets an editor check and complete the file by its JSON Schema.
"""

_NAMED: tuple[tuple[Any, str], ...] = (
    (Slug, "slug"),
    (Name, "name"),
    (RepositoryPath, "path"),
    (Duration, "duration"),
    (Size, "size"),
    (Flag, "true or false"),
    (Decision, "`auto`, `ask`, `ask-with-default` or a section"),
    (Scoring, "name of a score or a section"),
    (Setting, "value or list of values"),
    (Scalar, "value"),
    (bool, "true or false"),
    (int, "whole number"),
    (float, "number"),
    (str, "text"),
)

_BOUNDS = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}


def reference_page() -> str:
    """The page as Markdown: a table for each section with key, type, default and meaning."""
    places: dict[type[Section], list[str]] = {}
    for place, section in sections().items():
        places.setdefault(section, []).append(place)
    parts = [_INTRODUCTION, *(_section(standing, section) for section, standing in places.items())]
    return "\n".join(parts)


def _section(places: Sequence[str], section: type[Section]) -> str:
    title = ", ".join(f"`{place}`" for place in places if place) or "Top of the file"
    summary = " ".join((section.__doc__ or "").split())
    kinds = get_type_hints(section, include_extras=True)
    rows = [
        f"| `{field.alias or name}` | {_words(kinds[name])} | {_default(field)} | {_meaning(field)} |"
        for name, field in section.model_fields.items()
    ]
    head = ["| key | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([f"## {title}", "", summary, "", *head, *rows, ""])


def _words(annotation: Any) -> str:
    known = next((words for kind, words in _NAMED if annotation == kind), None)
    origin, inner = get_origin(annotation), get_args(annotation)
    if known:
        return known
    if origin is Annotated:
        return f"{_words(inner[0])} {_bounds(inner[1:])}".strip()
    if origin is Literal:
        return " or ".join(f"`{option}`" for option in inner)
    if origin in (Union, UnionType):
        return " or ".join(_words(part) for part in inner if part is not type(None))
    if origin is list:
        return f"list of {_plural(_words(inner[0]))}"
    if origin is tuple:
        return f"[{', '.join(_words(part) for part in inner)}]"
    if origin is dict:
        return f"{_words(inner[0])} → {_words(inner[1])}"
    return "section"


def _bounds(metadata: Iterable[Any]) -> str:
    limits = [limit for item in metadata if isinstance(item, FieldInfo) for limit in item.metadata]
    found = [(sign, getattr(limit, name, None)) for limit in limits for name, sign in _BOUNDS.items()]
    return ", ".join(f"{sign} {bound}" for sign, bound in found if bound is not None)


def _plural(words: str) -> str:
    return " or ".join(part if part == "text" else f"{part}s" for part in words.split(" or "))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "**required**"
    default = field.get_default(call_default_factory=True, validated_data={})
    if default in (None, PydanticUndefined, "", [], {}) or isinstance(default, BaseModel):
        return "–"
    return f"`{default if isinstance(default, str) else show(int(default) if _is_whole(default) else default)}`"


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()


def _meaning(field: FieldInfo) -> str:
    return " ".join((field.description or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(reference_page())
