"""Writes a commented study file to start from, filled in with what the repository shows of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from string import Template

from nightlab.configs.autoresearch import PARAMETER_FILE, SPARE, Autoresearch, read_autoresearch
from nightlab.configs.checking import examine, without_blanks
from nightlab.configs.discovery import NAME, Discovery, discover
from nightlab.configs.proposals import ProposedFactor, propose_locked, propose_space
from nightlab.configs.schema import editor_line
from nightlab.configs.study import GIVEN_PLACEHOLDERS, Scalar, placeholders_in
from nightlab.configs.wording import show, written
from nightlab.configs.yaml_reader import read_scalar, read_yaml
from nightlab.errors import ConfigError, Fault

__all__ = ["TEMPLATES", "slug_of", "write_template"]

TEMPLATES = {
    "script": "any command; filled in from a train.py or a settings file",
    "karpathy": "a repository like autoresearch: train.py, prepare.py, program.md; a model changes the code",
    "lora-single-gpu": "supervised fine-tuning with LoRA on one GPU (LLaMA-Factory)",
    "lora-deepspeed": "the same on several GPUs with DeepSpeed ZeRO-2 (LLaMA-Factory)",
    "full": "full fine-tuning with DeepSpeed ZeRO-3 (LLaMA-Factory)",
    "moe": "LoRA on a mixture of experts (LLaMA-Factory)",
    "distill": "a student on a teacher's answers (LLaMA-Factory)",
    "cpt": "continued pretraining on text of a domain (LLaMA-Factory)",
    "dpo": "preference pairs: DPO, IPO, ORPO, SimPO (LLaMA-Factory)",
    "kto": "thumbs up and down (TRL)",
    "reward": "a reward model (TRL)",
    "grpo": "reinforcement learning with a checkable reward (TRL)",
    "grpo-roll": "the same on many GPUs (ROLL)",
    "inference-only": "no training: prompts and decoding (LLaMA-Factory)",
}
"""What a study file can be started from, and what each is for."""
SCHEMA = ".nightlab/study.schema.json"
"""Where the study file's first line expects the schema, beside the study file."""

_LENGTHS = ("steps", "iters", "iterations", "budget")
"""Last words of parameters that decide how long a run takes."""
_NO_COMMAND = "  # command: .venv/bin/…      # what starts the framework, where that is not on the path"
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
        "CHANGE: these are examples; there is no train.py",
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
    text = _text(kind, slug_of(name), path.parent, command)
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


def _text(kind: str, study: str, root: Path, command: str | None) -> str:
    if kind in _EXAMPLES:
        shown = read_autoresearch(root) if kind == "karpathy" else None
        return _render(kind, study, _found(kind, root, command), shown)
    # A framework's parameters are its own: there is nothing to find.
    starts = f"  command: {_quoted(command)}" if command else _NO_COMMAND
    template = Template((_FOLDER / f"{kind}.yaml").read_text(encoding="utf-8"))
    return template.substitute(editor=editor_line(SCHEMA), study=study, command=starts)


def _found(kind: str, root: Path, command: str | None) -> Discovery:
    """What the file is filled in with: found, asked for, or an example."""
    example = _EXAMPLES[kind]
    if kind == "karpathy":
        return _found_constants(read_autoresearch(root), example, command)
    seen = discover(root)
    if not seen.parameters:
        plain = seen.command if seen != Discovery() else example.command
        seen = replace(seen, command=plain, via="file", parameters=example.parameters, source="")
    return _with_command(seen, command) if command else seen


def _found_constants(shown: Autoresearch, example: _Example, command: str | None) -> Discovery:
    own = example.command.replace("{python}", shown.python)
    if shown.has_script:
        seen = Discovery("the constants of train.py that it lets the lab set", own, "file", None, shown.values)
    else:
        seen = Discovery("", own, "file", None, example.parameters)
    return _with_command(seen, command) if command else seen


def _with_command(seen: Discovery, command: str) -> Discovery:
    names = [name for name in placeholders_in(command) if name not in GIVEN_PLACEHOLDERS and NAME.fullmatch(name)]
    if not names:
        return replace(seen, command=command, via="file")
    source = seen.source if all(name in seen.parameters for name in names) else ""
    values = {name: seen.parameters.get(name, 1) for name in names}
    return replace(seen, command=command, via="template", path=None, parameters=values, source=source)


def _render(kind: str, study: str, found: Discovery, shown: Autoresearch | None) -> str:
    locked = propose_locked(found.parameters)
    short = {name: 10 for name in locked if name.lower().rpartition("_")[2] in _LENGTHS}
    template = Template((_FOLDER / f"{kind}.yaml").read_text(encoding="utf-8"))
    return template.substitute(
        editor=editor_line(SCHEMA),
        study=study,
        base_model=_yaml(found.parameters.get("model") or found.parameters.get("base_model") or "from-scratch"),
        found=_told_source(kind, found),
        parameters=_lines(f"{name}: {_yaml(value)}" for name, value in found.parameters.items()),
        space=_space(propose_space(found.parameters)),
        locked=f"[{', '.join(map(_yaml, locked))}]",
        command=_quoted(found.command),
        passing=_passing(found),
        dry_run=_dry_run(short),
        **(_of_autoresearch(shown) if shown else {}),
    )


def _of_autoresearch(shown: Autoresearch) -> dict[str, str]:
    """What the template of such repositories says beside the rest."""
    is_there = not shown.has_script
    bounds = []
    if is_there or "peak_vram_mb" in shown.told:
        bounds.append("{metric: peak_vram_mb, max: 80000}   # CHANGE: memory of your GPU")
    if shown.budget_seconds and "training_seconds" in shown.told:
        bounds.append(
            f"{{metric: training_seconds, max: {shown.budget_seconds * SPARE:g}}}   # no more time than the others"
        )
    instructions = "  instructions: program.md      # your own words, given to the model"
    return {
        "guardrails": "\n".join(f"  - {bound}" for bound in bounds) or "  []",
        "required": f"[{', '.join(shown.measures)}]",
        "instructions": instructions if shown.has_program else f"  #{instructions[1:]}",
        "inputs": f"[{', '.join(shown.inputs)}]",
    }


def _told_source(kind: str, found: Discovery) -> str:
    if found.source and not found.parameters:
        return "None yet: see below."
    return f"Read from {found.source}." if found.source else _EXAMPLES[kind].note


def _lines(lines: Iterable[str]) -> str:
    """The lines of a section, below its key; an empty section beside it."""
    return "".join(f"\n  {line}" for line in lines) or " {}"


def _space(factors: Mapping[str, ProposedFactor]) -> str:
    lines = []
    for name, factor in factors.items():
        scale = ", scale: log" if factor.log else ""
        lines.append(f"{name}: {{levels: [{', '.join(map(_yaml, factor.levels))}]{scale}}}")
    return _lines(lines)


def _passing(found: Discovery) -> str:
    if found.via == "template":
        return "{via: template}         # each {name} in the command is replaced by its value"
    return f"{{via: file, path: {found.path or PARAMETER_FILE}}}   # your script reads its values from this file"


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
