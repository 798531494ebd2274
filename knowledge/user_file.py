"""A file of a user's own entries, read on top of built-in ones: every fault is collected, with its line and mend."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from nightlab.configs.problems import IN_SECTION, Location
from nightlab.configs.wording import nearest, show, written
from nightlab.configs.yaml_reader import Document, read_yaml
from nightlab.errors import ConfigError, Fault

__all__ = ["Own", "UserFile", "open_user_file", "plain_error"]


Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Own(Generic[Model]):
    """One entry of the file: where it stands, what it says with the built-in one underneath, the keys it gives."""

    at: Location
    entry: Model
    given: frozenset[str]


@dataclass
class UserFile:
    """A parsed file with the faults found so far."""

    file: Path
    document: Document
    shape: str
    """How such a file is to look, as a mend."""
    faults: list[Fault] = field(init=False)

    def __post_init__(self) -> None:
        self.faults = list(self.document.faults)

    def fault(self, at: Location, message: str, mend: str, value: object = None) -> None:
        self.faults.append(Fault(message, self.file, self.document.line(at), written(at), value, mend))

    def refuse_keys_but(self, known: Iterable[str], kind: str) -> None:
        """A fault for every other key at the top; `kind` is what the file is, with its article."""
        for key in self.document.data.keys() - set(known):
            self.fault((key,), f"{show(key)} is no key of {kind}", self.shape)

    def entries(
        self, section: str, known: Mapping[str, Model], explain: Callable[[ErrorDetails, str], tuple[str, str]]
    ) -> dict[str, Own[Model]]:
        """The valid entries of a list by id; one with a known id replaces only the keys it gives.

        `explain` puts a pydantic error at a key of an entry into plain words and a mend. All entries are of the type
        of those in `known`, which must not be empty.
        """
        model = type(next(iter(known.values())))
        items = self.document.data.get(section, [])
        found: dict[str, Own[Model]] = {}
        seen: set[str] = set()
        if not isinstance(items, list) or not items:
            self.fault((section,), f"holds no list of {section}", self.shape)
            return found
        for index, item in enumerate(items):
            at: Location = (section, index)
            name = item.get("id") if isinstance(item, dict) else None
            if not isinstance(item, dict) or not isinstance(name, str):
                self.fault(at, "has no id", f"begin it with `- id: my_{section.removesuffix('s')}`")
            elif name in seen:
                self.fault((*at, "id"), f"{name} stands in the file twice", "keep one of the two")
            else:
                seen.add(name)
                base = known[name].model_dump() if name in known else {}
                try:
                    found[name] = Own(at, model.model_validate({**base, **item}), frozenset(item))
                except ValidationError as error:
                    self._invalid(at, error, explain)
        return found

    def finish(self) -> None:
        """Raises ConfigError with every fault, in the order of the file."""
        if self.faults:
            raise ConfigError(sorted(self.faults, key=lambda fault: fault.line or 0))

    def _invalid(
        self, at: Location, error: ValidationError, explain: Callable[[ErrorDetails, str], tuple[str, str]]
    ) -> None:
        places: set[Location] = set()
        for detail in error.errors():
            place = self._place(at, detail)
            if place not in places:
                places.add(place)
                message, mend = explain(detail, written(place[len(at) :]))
                self.fault(place, message, mend, detail["input"])

    def _place(self, at: Location, detail: ErrorDetails) -> Location:
        """Where the error lies in the file; a union's branches lie where its value stands."""
        place: Location = (*at, *detail["loc"])
        while detail["type"] != "missing" and place not in self.document.lines and len(place) > len(at):
            place = place[:-1]
        return place


def open_user_file(file: Path, *, setting: str, shape: str) -> UserFile:
    """The parsed file; `setting` is the key of the study that names it.

    Raises ConfigError where it cannot be read at all.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        fault = Fault(f"cannot be read: {error.strerror}", file, mend=f"correct {setting} in the study")
        raise ConfigError(fault) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Fault("is not UTF-8 text", file, mend="save the file as UTF-8")) from error
    if not text.strip():
        raise ConfigError(Fault("is empty", file, mend=shape))
    return UserFile(file, read_yaml(text, file), shape)


def plain_error(detail: ErrorDetails, known: Iterable[str]) -> tuple[str, str]:
    """An error in plain words, and the mend; `known` are the keys that may stand there."""
    if detail["type"] == "missing":
        return "is missing", f"add `{detail['loc'][-1]}:`"
    if detail["type"] == "extra_forbidden":
        word = str(detail["loc"][-1])
        close = nearest(word, known)
        return f"{show(word)} is unknown", f"did you mean {close}?" if close else f"known are {', '.join(known)}"
    if detail["type"] == IN_SECTION:
        return str(detail["ctx"]["message"]), str(detail["ctx"]["mend"])
    return f"{detail['msg'].replace('Input should', 'should')}, but is {show(detail['input'])}", "correct the value"
