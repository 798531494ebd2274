"""Checkpoints of one run: which there are, which is the best, and taking the others away.

Nothing outside the run's own output folder is touched, and no link is followed. What a trainer logged stays: without
its last `trainer_state.json` nobody could tell afterwards how the run went.
"""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nightlab.errors import MetricError
from nightlab.tools.metrics.files import load_json
from nightlab.tools.metrics.steps import number_of

__all__ = ["Checkpoint", "best_of", "find_checkpoints", "find_weights", "remove", "to_remove"]

Keep = Literal["all", "best", "last", "none"]

STATE = "trainer_state.json"
_FOLDER = re.compile(r"checkpoint-(\d+)")
_WEIGHTS = re.compile(r".*\.(safetensors|bin|pt|pth|ckpt|gguf)")
_NO_WEIGHTS = frozenset({"training_args.bin"})
_DEPTH = 3
"""How far below the output folder checkpoints are looked for: some frameworks put a time stamp in between."""


@dataclass(frozen=True, order=True)
class Checkpoint:
    """One folder `checkpoint-<step>`."""

    step: int
    folder: Path


def find_checkpoints(output: Path) -> list[Checkpoint]:
    """Those in the output folder and what lies in it, by step; none where the folder itself is a link.

    Raises OSError.
    """
    return sorted(
        Checkpoint(int(match[1]), folder)
        for folder in _folders(output)
        if (match := _FOLDER.fullmatch(folder.name)) and any(entry.name != STATE for entry in folder.iterdir())
    )


def find_weights(output: Path) -> list[Path]:
    """Files of weights directly in the output folder, which a trainer writes at its end. Raises OSError."""
    if output.is_symlink() or not output.is_dir():
        return []
    files = (entry for entry in output.iterdir() if not entry.is_symlink() and entry.is_file())
    return sorted(file for file in files if _WEIGHTS.fullmatch(file.name) and file.name not in _NO_WEIGHTS)


def _folders(output: Path, depth: int = _DEPTH) -> Iterator[Path]:
    if output.is_symlink() or not output.is_dir():
        return
    for entry in output.iterdir():
        if entry.is_symlink() or not entry.is_dir():
            continue
        yield entry
        if depth > 1 and not _FOLDER.fullmatch(entry.name):
            yield from _folders(entry, depth - 1)


def best_of(checkpoints: Sequence[Checkpoint], metric: str, *, maximize: bool) -> Checkpoint | None:
    """The best of a run's checkpoints, as far as its trainer tells; else the last. None where there is none.

    The trainer's own choice counts first (`load_best_model_at_end`), then the study's metric where it was logged at the
    checkpoints' steps, then `eval_loss`.
    """
    if not checkpoints:
        return None
    state = _state_of(checkpoints)
    chosen = Path(str(state.get("best_model_checkpoint") or "")).name
    named = next((one for one in checkpoints if one.folder.name == chosen), None)
    if named:
        return named
    logged = state.get("log_history")
    history = [entry for entry in logged if isinstance(entry, dict)] if isinstance(logged, list) else []
    for key, is_better_high in ((metric, maximize), (f"eval_{metric}", maximize), ("eval_loss", False)):
        values = {number_of(entry.get("step")): _finite(entry.get(key)) for entry in history if key in entry}
        rated = [(value, one) for one in checkpoints if (value := values.get(one.step)) is not None]
        if rated:
            # Of equals the earlier one: it took fewer steps.
            return min(rated, key=lambda pair: (-pair[0] if is_better_high else pair[0], pair[1].step))[1]
    return checkpoints[-1]


def _state_of(checkpoints: Sequence[Checkpoint]) -> dict[str, Any]:
    """What the trainer logged: at its end beside the checkpoints, else in the last of them."""
    last = checkpoints[-1].folder
    for file in (last.parent / STATE, last / STATE):
        try:
            state = load_json(file)
        except (OSError, MetricError):
            continue
        if isinstance(state, dict):
            return state
    return {}


def _finite(value: object) -> float | None:
    number = number_of(value)
    return number if number is not None and math.isfinite(number) else None


def to_remove(checkpoints: Sequence[Checkpoint], best: Checkpoint | None, keep: Keep) -> list[Checkpoint]:
    """Those that a policy gives up."""
    match keep:
        case "all":
            return []
        case "none":
            return list(checkpoints)
        case "last":
            return list(checkpoints[:-1])
        case "best":
            return [one for one in checkpoints if one != best]


def remove(output: Path, checkpoints: Iterable[Checkpoint], weights: Iterable[Path] = ()) -> int:
    """Take checkpoints and weights of one run away; returns the bytes that were freed. Raises OSError.

    Whatever does not lie in `output` without a link on the way is left alone.
    """
    freed = 0
    newest = {one.folder.parent: one for one in find_checkpoints(output)}
    for checkpoint in checkpoints:
        if _is_own(output, checkpoint.folder):
            parent = checkpoint.folder.parent
            # Some trainers write their log nowhere else.
            keeps_log = newest.get(parent) == checkpoint and not (parent / STATE).exists()
            freed += _remove_folder(checkpoint.folder, {STATE} if keeps_log else set())
    for file in weights:
        if _is_own(output, file):
            freed += _bytes_of(file)
            file.unlink()
    return freed


def _is_own(output: Path, path: Path) -> bool:
    inside = path.parent.resolve() / path.name
    root = output.resolve()
    return inside != root and inside.is_relative_to(root) and not path.is_symlink() and not output.is_symlink()


def _remove_folder(folder: Path, kept: set[str]) -> int:
    freed = 0
    for entry in list(folder.iterdir()):
        if entry.is_dir() and not entry.is_symlink():
            freed += sum(_bytes_of(Path(at) / name) for at, _, names in os.walk(entry) for name in names)
            shutil.rmtree(entry)
        elif entry.name not in kept:
            freed += _bytes_of(entry)
            entry.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
    return freed


def _bytes_of(file: Path) -> int:
    """What its removal frees: a file that has another name elsewhere frees nothing."""
    status = file.lstat()
    return status.st_blocks * 512 if status.st_nlink == 1 else 0
