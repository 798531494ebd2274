"""Where the study's data lie: files, folders, and the names of a LLaMA-Factory `dataset_info.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nightlab.configs.data import DataSettings
from nightlab.configs.wording import nearest
from nightlab.errors import ConfigError, Fault
from nightlab.tools.datasets.layouts import OPENAI_TAGS, SHAREGPT_TAGS, Layout
from nightlab.tools.datasets.rows import SUFFIXES

__all__ = ["Source", "sources_of"]

LF_COLUMNS = {"prompt": "instruction", "query": "input", "response": "output", "messages": "conversations"}
"""LLaMA-Factory's own names; they hold only where an entry has no `columns` at all."""


@dataclass(frozen=True)
class Source:
    """One set of data: its files, and its layout where it is declared."""

    name: str
    files: tuple[Path, ...]
    layout: Layout | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    format: str = "auto"


def sources_of(settings: DataSettings, root: Path, side: str) -> list[Source]:
    """The sets of one side (`train` or `eval`). Raises ConfigError with every one that cannot be found."""
    names = settings.train_names if side == "train" else settings.eval_names
    info, faults, found = _read_info(settings, root), [], []
    for name in names:
        try:
            found.append(_source(name, settings, root, info))
        except ConfigError as error:
            faults += [Fault(fault.message, key=f"data.{side}", value=name, mend=fault.mend) for fault in error.faults]
    if faults:
        raise ConfigError(faults)
    return found


def _read_info(settings: DataSettings, root: Path) -> dict[str, Any]:
    if settings.info is None:
        return {}
    path = root / settings.info
    path = path / "dataset_info.json" if path.is_dir() else path
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(Fault(f"{settings.info} cannot be read: {error}", key="data.info")) from error
    if not isinstance(info, dict):
        raise ConfigError(Fault(f"{settings.info} is no object of data sets", key="data.info"))
    return info


def _source(name: str, settings: DataSettings, root: Path, info: Mapping[str, Any]) -> Source:
    if isinstance(entry := info.get(name), dict):
        return _declared(name, entry, (root / str(settings.info)), settings)
    path = root / name
    if not path.exists():
        meant = nearest(name, info)
        raise ConfigError(Fault(f"{name} does not exist", mend=f"did you mean {meant}?" if meant else "correct it"))
    return Source(
        name,
        _files_in(path, name),
        columns={str(role): column for role, column in settings.columns.items()},
        format=settings.format,
    )


def _files_in(path: Path, name: str) -> tuple[Path, ...]:
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    known = tuple(one for one in files if one.suffix.lower() in SUFFIXES and one.name != "dataset_info.json")
    if not known:
        raise ConfigError(Fault(f"{name} holds no data file", mend=f"known are {', '.join(SUFFIXES)}"))
    return known


def _declared(name: str, entry: Mapping[str, Any], info: Path, settings: DataSettings) -> Source:
    """An entry of dataset_info.json, read by its rules: with `columns` or `tags`, what is not listed is not there."""
    folder = info if info.is_dir() else info.parent
    if not isinstance(file := entry.get("file_name"), str):
        raise ConfigError(Fault(f"{name} is not a file here", mend="give a file, or leave it out of `data`"))
    if not (folder / file).exists():
        raise ConfigError(Fault(f"{name} names {file}, which does not exist", mend="correct its file_name"))
    formatting = str(entry.get("formatting", "alpaca"))
    if formatting not in ("alpaca", "sharegpt", "openai"):
        raise ConfigError(
            Fault(f"{name} has the formatting {formatting}", mend="alpaca, sharegpt and openai are known")
        )
    usual = OPENAI_TAGS if formatting == "openai" else SHAREGPT_TAGS
    columns = _texts(entry.get("columns")) or LF_COLUMNS
    tags = _texts(entry.get("tags")) or usual
    if "label" in settings.columns:
        columns = {**columns, "label": settings.columns["label"]}
    # A row without its text column but with `text` as the prompt is for pretraining.
    is_text = formatting == "alpaca" and set(columns) == {"prompt"}
    layout = Layout(
        "text" if is_text else formatting,  # type: ignore[arg-type]
        {"text": columns["prompt"]} if is_text else columns,
        {key: tags.get(key, "") for key in usual} if formatting != "alpaca" else {},
        ranking=entry.get("ranking") is True,
    )
    return Source(name, _files_in(folder / file, name), layout)


def _texts(value: object) -> dict[str, str]:
    return {str(k): v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}
