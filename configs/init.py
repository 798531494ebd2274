"""Writes a commented study file to start from, filled in with what the repository shows of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from nightlab.configs.checking import examine, without_blanks
from nightlab.configs.discovery import NAME, Discovery, constants, discover
from nightlab.configs.proposals import ProposedFactor, propose_locked, propose_space
from nightlab.configs.schema import editor_line
from nightlab.configs.study import GIVEN_PLACEHOLDERS, Scalar, placeholders_in
from nightlab.configs.wording import show, written
from nightlab.configs.yaml_reader import read_scalar, read_yaml
from nightlab.errors import ConfigError, Fault

__all__ = ["TEMPLATES", "slug_of", "write_template"]

TEMPLATES = ("script", "karpathy")
SCHEMA = ".nightlab/study.schema.json"
"""Where the study file's first line expects the schema, beside the study file."""

_FOLDER = Path(__file__).parent / "templates"
_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./+-]*")
_BOOLEAN_ELSEWHERE = ("yes", "no", "on", "off", "y", "n")


@dataclass(frozen=True)
class _Example:
    """Values for a repository that shows nothing."""

    parameters: Mapping[str, Scalar]
    command: str
    note: str = "CHANGE: these are examples; nothing was found in a train.py or params.json"


_EXAMPLES = {
    "script": _Example(
        {"learning_rate": 0.001, "batch_size": 32, "weight_decay": 0.01, "steps": 1000},
        "{python} train.py --params {params_file} --seed {seed}",
    ),
    "karpathy": _Example(
        {"DEPTH": 8, "TOTAL_BATCH_SIZE": 524288, "MATRIX_LR": 0.04, "WEIGHT_DECAY": 0.2, "WARMUP_RATIO": 0.0},
        "env SEED={seed} {python} train.py",
        "CHANGE: these are examples; no constants were found in a train.py",
    ),
}


def write_template(target: Path, *, kind: str = "script", name: str, command: str | None = None) -> Path:
    """Write a study file of this `kind` to `target` (a file, or a folder for its `study.yaml`); returns its path.

    `name` becomes the study's name, `command` its training command instead of the one found. Raises ConfigError when
    the file is there already; nothing is ever overwritten.
    """
    if kind not in TEMPLATES:
        raise ConfigError(Fault(f"{show(kind)} is no template", mend=f"choose one of {', '.join(TEMPLATES)}"))
    path = target / "study.yaml" if target.is_dir() else target
    if not path.parent.is_dir():
        raise ConfigError(Fault("the folder does not exist", path.parent, mend="make it first"))
    text = _render(kind, slug_of(name), _found(kind, path.parent, command))
    _, faults = examine(without_blanks(read_yaml(text, path).data))
    if faults:
        raise ConfigError([Fault(fault.message, None, None, written(fault.at), mend=fault.mend) for fault in faults])
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError as error:
        raise ConfigError(Fault("is there already", path, mend="move it away or give another name")) from error
    except OSError as error:
        raise ConfigError(Fault(f"cannot be written: {error.strerror}", path, mend="check its folder")) from error
    return path


def slug_of(name: str) -> str:
    """A study's name made of `name`: `My_Model v2` gives `my-model-v2`."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    return "-".join(words)[:40].strip("-") or "study"


def _found(kind: str, root: Path, command: str | None) -> Discovery:
    """What the file is filled in with: found, asked for, or an example."""
    example = _EXAMPLES[kind]
    seen = discover(root)
    if kind == "karpathy":
        names = constants(root)
        seen = Discovery("the constants of the training script", example.command, "file", None, names)
    if not seen.parameters:
        plain = seen.command if seen != Discovery() and kind == "script" else example.command
        seen = replace(seen, command=plain, via="file", parameters=example.parameters, source="")
    return _with_command(seen, command) if command else seen


def _with_command(seen: Discovery, command: str) -> Discovery:
    names = [name for name in placeholders_in(command) if name not in GIVEN_PLACEHOLDERS and NAME.fullmatch(name)]
    if not names:
        return replace(seen, command=command, via="file")
    source = seen.source if all(name in seen.parameters for name in names) else ""
    values = {name: seen.parameters.get(name, 1) for name in names}
    return replace(seen, command=command, via="template", path=None, parameters=values, source=source)


def _render(kind: str, study: str, found: Discovery) -> str:
    locked = propose_locked(found.parameters)
    short = {name: 10 for name in locked if name.lower().rpartition("_")[2] in ("steps", "iters", "iterations")}
    template = Template((_FOLDER / f"{kind}.yaml").read_text(encoding="utf-8"))
    return template.substitute(
        editor=editor_line(SCHEMA),
        study=study,
        base_model=_yaml(found.parameters.get("model") or found.parameters.get("base_model") or "from-scratch"),
        found=f"Read from {found.source}." if found.source else _EXAMPLES[kind].note,
        parameters="\n".join(f"  {name}: {_yaml(value)}" for name, value in found.parameters.items()),
        space=_space(propose_space(found.parameters)),
        locked=f"[{', '.join(map(_yaml, locked))}]",
        command=_quoted(found.command),
        passing=_passing(found),
        dry_run=_dry_run(short),
    )


def _space(factors: Mapping[str, ProposedFactor]) -> str:
    lines = []
    for name, factor in factors.items():
        scale = ", scale: log" if factor.log else ""
        lines.append(f"  {name}: {{levels: [{', '.join(map(_yaml, factor.levels))}]{scale}}}")
    return "\n".join(lines or ["  # name: {levels: [1, 2]}"])


def _passing(found: Discovery) -> str:
    if found.via == "template":
        return "{via: template}         # each {name} in the command is replaced by its value"
    return (
        f"{{via: file, path: {found.path or 'nightlab_params.json'}}}   # your script reads its values from this file"
    )


def _dry_run(short: Mapping[str, int]) -> str:
    values = ", ".join(f"{name}: {value}" for name, value in short.items())
    line = f"dry_run: {{{values}}}" if short else "# dry_run: {steps: 10}"
    return f"  {line}         # values that make the check's trial run short"


def _yaml(value: Scalar) -> str:
    """`value` as this lab reads it back."""
    if isinstance(value, str):
        is_safe = _PLAIN.fullmatch(value) and value.lower() not in _BOOLEAN_ELSEWHERE and read_scalar(value) == value
        return value if is_safe else _quoted(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    """`text` in double quotes, on one line, with nothing in it that does not print."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    printable = (letter if letter.isprintable() else f"\\U{ord(letter):08x}" for letter in escaped)
    return '"' + "".join(printable) + '"'
