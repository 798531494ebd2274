"""Reads a study file and says everything that is wrong with it at once."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nightlab.configs.advice import advise
from nightlab.configs.checking import examine, without_blanks
from nightlab.configs.findings import Finding
from nightlab.configs.problems import Location
from nightlab.configs.study import Study
from nightlab.configs.wording import show, written
from nightlab.configs.yaml_reader import Document, read_yaml
from nightlab.errors import ConfigError, Fault

__all__ = ["LoadedStudy", "load_study"]

MAX_BYTES = 1_000_000


@dataclass(frozen=True)
class LoadedStudy:
    """A study without faults, with the file it came from."""

    study: Study
    file: Path
    text: str
    """The file as it was read."""
    warnings: tuple[Fault, ...] = ()
    """What is allowed but probably not meant."""


def load_study(path: Path, overrides: Mapping[str, object] = MappingProxyType({})) -> LoadedStudy:
    """The study in the file at `path`, with `overrides` (dotted key → value) put over it.

    Raises ConfigError with every fault at once, in the order of the file.
    """
    text = _text(path)
    document = read_yaml(text, path)
    data, overridden = _overridden(document.data, overrides)
    data = without_blanks(data)
    study, found = examine(data)
    faults = document.faults + [_fault(finding, document, path, overridden) for finding in found]
    if study is None or document.faults:
        raise ConfigError(sorted(faults, key=_in_file_order))
    warnings = [_fault(finding, document, path, overridden) for finding in advise(study, document.quoted)]
    return LoadedStudy(study, path, text, tuple(sorted(warnings, key=_in_file_order)))


def _in_file_order(fault: Fault) -> tuple[int, str]:
    return fault.line or 0, fault.key or ""


def _text(path: Path) -> str:
    mend = "`nightlab init` writes a study file to start from"
    try:
        if path.is_dir():
            raise ConfigError(
                Fault("is a folder, not a study file", path, mend=f"name the file, {path / 'study.yaml'}")
            )
        if not path.exists():
            raise ConfigError(Fault("does not exist", path, mend=mend))
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            Fault(f"cannot be read: {reason}", path, mend="check the path and its permissions")
        ) from error
    if len(content) > MAX_BYTES:
        raise ConfigError(
            Fault("is larger than 1 MB", path, mend="a study file is a page of text; is it the right file?")
        )
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(Fault("is not UTF-8 text", path, line, mend="save the file as UTF-8")) from error


def _fault(finding: Finding, document: Document, file: Path, overridden: Mapping[Location, str]) -> Fault:
    key = written(finding.at) or None
    value = finding.value if isinstance(finding.value, bool | int | float | None) else show(finding.value)
    for place, dotted in overridden.items():
        is_new = finding.at == place[: len(finding.at)] and finding.at not in document.lines
        if finding.at[: len(place)] == place or is_new:
            return Fault(f"{finding.message}, given as override {dotted}", None, None, key, value, finding.mend)
    message = "is empty" if finding.kind == "missing" and finding.at in document.lines else finding.message
    return Fault(message, file, document.line(finding.at), key, value, finding.mend)


def _overridden(
    data: Mapping[str, object], overrides: Mapping[str, object]
) -> tuple[dict[str, Any], dict[Location, str]]:
    """`data` with the overrides in it, and where they went."""
    result: dict[str, Any] = deepcopy(dict(data))
    places: dict[Location, str] = {}
    for dotted, value in overrides.items():
        place = _place(result, dotted)
        section: Any = result
        for step in place[:-1]:
            if not isinstance(section.get(step), dict):
                section[step] = {}
            section = section[step]
        section[place[-1]] = value
        places[tuple(place)] = dotted
    return result, places


def _place(data: Any, dotted: str) -> list[str]:
    """The keys that `dotted` names; a name that holds dots itself is found where it stands in the file."""
    place: list[str] = []
    rest = dotted
    while isinstance(data, dict) and rest not in data and "." in rest:
        heads = [rest[:index] for index, letter in enumerate(rest) if letter == "."]
        head = next((head for head in reversed(heads) if isinstance(data.get(head), dict)), heads[0])
        place.append(head)
        rest = rest[len(head) + 1 :]
        data = data.get(head, {})
    return [*place, rest]
