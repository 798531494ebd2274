"""The parameter file in the worktree: JSON or YAML, new or the training repository's own.

In a file that exists only the parameters' own values are touched; a value that already is the wanted one is left as it
is written. A dotted parameter name is a key of that very name where the file has one, else a path of nested keys.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

from nightlab.configs.study import Scalar
from nightlab.errors import LauncherError
from nightlab.tools.launchers import json_text, yaml_text

__all__ = ["read_parameters", "render_parameters"]

_FORMATS: dict[str, ModuleType] = {".json": json_text, ".yaml": yaml_text, ".yml": yaml_text}


def render_parameters(tree: Path, path: str, parameters: Mapping[str, Scalar]) -> str:
    """The text of the file `path` in `tree` with all parameters in it.

    Raises LauncherError when the path leaves the tree, the file cannot be read or a parameter has no place in it.
    """
    form = _form(path)
    text = _text(tree, path)
    if not text.strip():
        return _new_text(form, path, parameters)
    document = _document(form, text, path)
    for name, value in parameters.items():
        text, document = _placed(form, path, text, document, name, value)
    return text


def read_parameters(tree: Path, path: str, names: Iterable[str]) -> dict[str, Scalar]:
    """Those of the named parameters that the file states as one scalar.

    Raises LauncherError when the path leaves the tree or the file cannot be read.
    """
    document = _document(_form(path), _text(tree, path) or "{}", path)
    stated = {name: _value(document, _keys(document, name)) for name in names}
    return {name: value for name, value in stated.items() if isinstance(value, bool | int | float | str)}


def _form(path: str) -> ModuleType:
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise LauncherError(
            f"launcher.parameters.path: {path!r} is neither JSON nor YAML (end it in .json, .yaml or .yml)"
        )
    return _FORMATS[suffix]


def _text(tree: Path, path: str) -> str:
    """The file's text with its own line ends; empty when there is no file."""
    file = tree / path
    inside = file.resolve().relative_to(tree.resolve()) if file.resolve().is_relative_to(tree.resolve()) else None
    if inside is None or inside.parts[:1] in ((), (".git",)):
        raise LauncherError(
            f"launcher.parameters.path: {path!r} is not a file inside the worktree (give a relative path)"
        )
    try:
        return file.read_bytes().decode("utf-8") if file.exists() else ""
    except (OSError, UnicodeDecodeError) as error:
        raise LauncherError(f"{path}: cannot be read: {error}") from error


def _document(form: ModuleType, text: str, path: str) -> dict[str, object]:
    try:
        document = form.loads(text)
    except (ValueError, RecursionError) as error:
        raise LauncherError(f"{path}: {error} (mend the file, or choose another launcher.parameters.path)") from error
    if not isinstance(document, dict):
        raise LauncherError(f"{path}: holds a {type(document).__name__}, not keys with values")
    return document


def _new_text(form: ModuleType, path: str, parameters: Mapping[str, Scalar]) -> str:
    document: dict[str, object] = {}
    for name, value in parameters.items():
        _set(document, name.split("."), value, path)
    try:
        return str(form.dumps(document))
    except ValueError as error:
        raise LauncherError(f"{path}: {error} (use a .yaml file)") from error


def _placed(
    form: ModuleType, path: str, text: str, document: dict[str, object], name: str, value: Scalar
) -> tuple[str, dict[str, object]]:
    """Text and document with one parameter set, the text checked to say just that."""
    keys = _keys(document, name)
    present = _value(document, keys)
    if isinstance(present, dict | list):
        raise LauncherError(f"{path}: {name} is a section there, not one value (name the parameter inside it)")
    if repr(present) == repr(value) and present is not None:
        return text, document
    wanted = copy.deepcopy(document)
    _set(wanted, keys, value, path)
    try:
        changed = form.put(text, keys, value)
        stated = form.loads(changed)
    except ValueError as error:
        raise LauncherError(f"{path}: {name} cannot be set to {value!r}: {error}") from error
    if repr(stated) != repr(wanted):
        raise LauncherError(
            f"{path}: {name} cannot be changed in place (give it a plain `name: value` line of its own)"
        )
    return changed, wanted


def _keys(document: object, name: str) -> list[str]:
    """Where a dotted name stands: the longest keys the document has, each remaining part a nested key."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        head = ".".join(parts[:size])
        if isinstance(document, dict) and head in document:
            return [head, *(_keys(document[head], ".".join(parts[size:])) if size < len(parts) else [])]
    return parts


def _value(document: object, keys: Sequence[str]) -> object:
    for key in keys:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


def _set(document: dict[str, object], keys: Sequence[str], value: Scalar, path: str) -> None:
    node = document
    for depth, key in enumerate(keys[:-1], start=1):
        inner = node.setdefault(key, {})
        if not isinstance(inner, dict):
            held, name = ".".join(keys[depth:]), ".".join(keys[:depth])
            raise LauncherError(f"{path}: {name} is one value, so it cannot hold {held}")
        node = inner
    node[keys[-1]] = value
