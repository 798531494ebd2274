"""Changes one value in YAML text and leaves every other character, comments included, as it is.

Values are written so that readers of YAML 1.1 (PyYAML) and 1.2 agree on them: floats always with a point (`1.0e-05`),
text in quotes unless it is a plain word to both.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import yaml

from nightlab.configs.study import Scalar
from nightlab.errors import LauncherError

__all__ = ["dumps", "loads", "put"]

_PLAIN_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_INDENT = 2


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but `1e-3` is the float that YAML 1.2 says it is."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def loads(text: str) -> object:
    """The document; an empty one is an empty mapping. Raises ValueError."""
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - derived from SafeLoader
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error
    return {} if document is None else document


def dumps(document: dict[str, object]) -> str:
    """Text of a new file, keys in their order."""
    return "".join(f"{line}\n" for line in _lines(document))


def put(text: str, path: Sequence[str], value: Scalar) -> str:
    """The text with `value` at `path`; missing mappings on the way are added. `text` holds a mapping or nothing.

    Raises LauncherError where the value on the way is an alias, which stands for text elsewhere.
    """
    node = yaml.compose(text, Loader=_Loader)
    if node is None:
        return text + ("" if text.endswith("\n") or not text else "\n") + dumps(_nested(path, value))
    for depth, key in enumerate(path):
        entry = next((e for e in reversed(_entries(node)) if e[0].value == key), None)
        if entry is None:
            return _insert(text, node, _nested(path[depth:], value))
        if entry[1].start_mark.index < entry[0].end_mark.index:
            raise LauncherError(f"the value of {key} is an alias (write the value itself there)")
        node = entry[1]
    start, end = node.start_mark.index, _end(text, node)
    space = " " if start == end and text[start - 1 : start] == ":" else ""
    return text[:start] + space + _scalar(value) + text[end:]


def _entries(node: yaml.Node) -> list[tuple[yaml.Node, yaml.Node]]:
    return list(node.value) if isinstance(node, yaml.MappingNode) else []


def _insert(text: str, node: yaml.Node, addition: dict[str, object]) -> str:
    entries = _entries(node)
    if node.flow_style:  # type: ignore[attr-defined]
        at = _end(text, entries[-1][1]) if entries else node.start_mark.index + 1
        return text[:at] + (", " if entries else "") + _flow(addition)[1:-1] + text[at:]
    newline = "\r\n" if "\r\n" in text else "\n"
    block = newline.join(" " * entries[0][0].start_mark.column + line for line in _lines(addition))
    line_end = re.compile(r"\r?\n|\Z").search(text, _last_character(text, entries[-1]))
    at = line_end.start() if line_end else len(text)
    return text[:at] + newline + block + (text[at:] or newline)


def _last_character(text: str, entry: tuple[yaml.Node, yaml.Node]) -> int:
    key, value = entry
    if value.start_mark.index < key.end_mark.index:
        return key.end_mark.index
    if isinstance(value, yaml.CollectionNode) and not value.flow_style and value.value:
        last = value.value[-1]
        return _last_character(text, last if isinstance(last, tuple) else (key, last))
    return _end(text, value)


def _end(text: str, node: yaml.Node) -> int:
    """End of a node's own text; a block scalar's mark lies beyond the blank lines after it."""
    start, end = node.start_mark.index, node.end_mark.index
    return max(start, start + len(text[start:end].rstrip()))


def _nested(path: Sequence[str], value: Scalar) -> dict[str, object]:
    nested: object = value
    for key in reversed(path):
        nested = {key: nested}
    assert isinstance(nested, dict)
    return nested


def _lines(document: dict[str, object]) -> list[str]:
    lines = []
    for key, value in document.items():
        if isinstance(value, dict):
            lines += [f"{_scalar(key)}:", *(" " * _INDENT + line for line in _lines(value))]
        else:
            lines.append(f"{_scalar(key)}: {_scalar(value)}")
    return lines


def _flow(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow(item)}" for key, item in value.items()) + "}"
    return _scalar(value)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, str):
        return value if _is_plain(value) else _quoted(value)
    return str(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, exponent, power = repr(value).partition("e")
    return mantissa + ("" if "." in mantissa else ".0") + exponent + power


def _is_plain(text: str) -> bool:
    # One-letter y and n are booleans to some readers of YAML 1.1.
    return bool(_PLAIN_WORD.fullmatch(text)) and text.lower() not in "yn" and loads(text) == text


def _quoted(text: str) -> str:
    return yaml.safe_dump(text, default_style='"', allow_unicode=True, width=10**9).removesuffix("\n")
