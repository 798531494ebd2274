"""What a training repository shows of itself: its script, and the parameters with their present values.

Nothing is executed: scripts are read as syntax trees, configuration files as data.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from nightlab.configs.study import Scalar
from nightlab.configs.yaml_reader import read_yaml
from nightlab.errors import ConfigError

__all__ = ["NAME", "Discovery", "constants", "discover"]

SCRIPTS = ("train.py", "finetune.py", "main.py", "run.py", "src/train.py", "scripts/train.py")
SETTINGS = tuple(
    f"{folder}{stem}{suffix}"
    for folder in ("", "configs/", "config/", "conf/")
    for stem in ("params", "hparams", "config", "train", "default")
    for suffix in (".json", ".yaml", ".yml")
)
MAX_BYTES = 1_000_000
MAX_PARAMETERS = 24
MAX_POWER = 64
"""Base and exponent of a constant that is written as a power."""

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-/]*")
_SEED_FLAGS = ("seed", "random_seed")
_OUTPUT_FLAGS = ("output_dir", "out_dir", "save_dir", "output", "out")
_SETTINGS_FLAGS = ("params", "config", "cfg", "hparams", "config_file", "params_file")

_NOT_TUNABLE = frozenset((*_SEED_FLAGS, *_OUTPUT_FLAGS, *_SETTINGS_FLAGS, "python"))


@dataclass(frozen=True)
class Flag:
    """One `--option` of a script."""

    option: str
    name: str
    default: Scalar | None
    is_switch: bool


@dataclass(frozen=True)
class Discovery:
    """A proposal for the launcher and the baseline."""

    source: str = ""
    """Where the parameters were read; empty: none were found."""
    command: str = "{python} train.py --seed {seed}"
    via: str = "file"
    path: str | None = None
    """The settings file the parameters stand in."""
    parameters: Mapping[str, Scalar] = field(default_factory=dict)


def discover(root: Path) -> Discovery:
    """What can be seen in the repository at `root`; the same files give the same proposal."""
    script = next((name for name in SCRIPTS if (root / name).is_file()), None)
    source = _text(root / script) if script else ""
    flags = {flag.name: flag for flag in _flags(source)}
    settings = {name: values for name in SETTINGS if (values := _settings(root / name))}
    named = [name for name in settings if Path(name).name in source]
    tunable = {name: flag.default for name, flag in flags.items() if flag.default is not None and _is_tunable(flag)}
    if settings and (named or not tunable):
        path = named[0] if named else next(iter(settings))
        words = [_start(script), *_given_flags(flags, settings_file=True)]
        return Discovery(path, " ".join(words), "file", path, settings[path])
    if tunable:
        chosen = dict(list(tunable.items())[:MAX_PARAMETERS])
        words = [_start(script), *(f"{flags[name].option} {{{name}}}" for name in chosen), *_given_flags(flags)]
        return Discovery(f"the flags of {script}", " ".join(words), "template", None, chosen)
    return Discovery(command=" ".join([_start(script), *_given_flags(flags)])) if script else Discovery()


def constants(root: Path, script: str, *, above: str = "") -> dict[str, Scalar]:
    """The upper-case constants of `script` with plain values, in their order; only those `above` a line with that text.

    Powers and products of whole numbers, as in `2**19`, are plain values too.
    """
    text = _text(root / script)
    line = text[: text.index(above)].count("\n") if above in text else text.count("\n") + 1
    found: dict[str, Scalar] = {}
    for node in _tree(text).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, _whole(node.value) or _literal(node.value)
            if name.isupper() and NAME.fullmatch(name) and value is not None and (not above or node.lineno <= line):
                found[name] = value
    return dict(list(found.items())[:MAX_PARAMETERS])


def _whole(node: ast.expr) -> int | None:
    """The product or power of two whole numbers."""
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _literal(node.left), _literal(node.right)
    if type(left) is not int or type(right) is not int:
        return None
    if isinstance(node.op, ast.Mult):
        return left * right
    is_small = isinstance(node.op, ast.Pow) and 0 <= right <= MAX_POWER and abs(left) <= MAX_POWER
    return int(left**right) if is_small else None


def _start(script: str | None) -> str:
    return f"{{python}} {script or 'train.py'}"


def _given_flags(flags: Mapping[str, Flag], *, settings_file: bool = False) -> Iterator[str]:
    """The options that the lab itself fills in, where the script has them."""
    wanted = [(_SEED_FLAGS, "seed"), (_OUTPUT_FLAGS, "output_dir")]
    wanted += [(_SETTINGS_FLAGS, "params_file")] if settings_file else []
    for names, placeholder in wanted:
        if name := next((name for name in names if name in flags and not flags[name].is_switch), None):
            yield f"{flags[name].option} {{{placeholder}}}"


def _is_tunable(flag: Flag) -> bool:
    return not flag.is_switch and flag.name not in _NOT_TUNABLE and not isinstance(flag.default, bool)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig") if path.stat().st_size <= MAX_BYTES else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _tree(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module(body=[], type_ignores=[])


def _flags(source: str) -> Iterator[Flag]:
    for node in ast.walk(_tree(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            options = [value for part in node.args if isinstance(value := _literal(part), str)]
            option = next((text for text in options if text.startswith("--")), None)
            keywords = {keyword.arg: _literal(keyword.value) for keyword in node.keywords if keyword.arg}
            if option is None:
                continue
            name = str(keywords.get("dest") or option.lstrip("-").replace("-", "_"))
            takes_none = "action" in keywords or "nargs" in keywords
            if NAME.fullmatch(name):
                yield Flag(option, name, keywords.get("default"), takes_none)


def _literal(node: ast.expr) -> Scalar | None:
    """The constant that `node` writes down; None for anything else and for text that a command cannot hold."""
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    value = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(value, bool | int | float | str) or not _is_usable(value):
        return None
    if isinstance(value, bool | str):
        return value if sign == 1 else None
    return sign * value


def _settings(path: Path) -> dict[str, Scalar]:
    """The plain values at the top of a JSON or YAML file; empty when it is none or holds none."""
    text = _text(path) if path.is_file() else ""
    if not text:
        return {}
    try:
        data = json.loads(text) if path.suffix == ".json" else read_yaml(text, path).data
    except (ValueError, RecursionError, ConfigError):
        return {}
    plain = {
        name: value
        for name, value in (data.items() if isinstance(data, dict) else ())
        if isinstance(value, bool | int | float | str) and NAME.fullmatch(name) and name not in _SEED_FLAGS
    }
    usable = {name: value for name, value in plain.items() if _is_usable(value)}
    return dict(list(usable.items())[:MAX_PARAMETERS])


def _is_usable(value: Scalar) -> bool:
    if isinstance(value, str):
        return bool(value.strip()) and value.isprintable()
    return isinstance(value, bool) or math.isfinite(value)
