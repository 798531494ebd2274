"""A user's own catalog file: read on top of the built-in catalog, every fault said at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from nightlab.configs.wording import nearest, show, written
from nightlab.configs.yaml_reader import Document, read_yaml
from nightlab.errors import ConfigError, Fault
from nightlab.knowledge.techniques import CatalogMeta, Technique, TechniqueParameter

__all__ = ["read_user_catalog"]

Location = tuple[str | int, ...]

SHAPE = "write `techniques:` and below it one `- id: …` a technique"


def read_user_catalog(
    file: Path, meta: CatalogMeta, techniques: Iterable[Technique]
) -> tuple[CatalogMeta, tuple[Technique, ...]]:
    """The built-in `meta` and `techniques` with those of the user's `file` on top.

    Raises ConfigError with every fault of the file, in its order.
    """
    reader = _Reader(file, read_yaml(_text(file), file), {technique.id: technique for technique in techniques})
    result = reader.read(meta)
    if reader.faults:
        raise ConfigError(sorted(reader.faults, key=lambda fault: fault.line or 0))
    return result


def _text(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        fault = Fault(f"cannot be read: {error.strerror}", file, mend="correct catalog.file in the study")
        raise ConfigError(fault) from error
    except UnicodeDecodeError as error:
        raise ConfigError(Fault("is not UTF-8 text", file, mend="save the file as UTF-8")) from error
    if not text.strip():
        raise ConfigError(Fault("is empty", file, mend=SHAPE))
    return text


@dataclass
class _Reader:
    file: Path
    document: Document
    known: dict[str, Technique]
    own: dict[str, tuple[Location, Technique, bool]] = field(default_factory=dict)
    """Id → where it stands, the entry, whether it names its conflicts."""

    def __post_init__(self) -> None:
        self.faults: list[Fault] = list(self.document.faults)

    def read(self, meta: CatalogMeta) -> tuple[CatalogMeta, tuple[Technique, ...]]:
        data = self.document.data
        for key in data.keys() - {"meta", "techniques"}:
            self._fault((key,), f"{show(key)} is no key of a catalog", SHAPE)
        meta = self._meta(meta, data.get("meta"))
        entries = data.get("techniques", [])
        if isinstance(entries, list) and entries:
            for index, entry in enumerate(entries):
                self._entry(("techniques", index), entry)
        else:
            self._fault(("techniques",), "holds no list of techniques", SHAPE)
        self._check_names(meta)
        return meta, tuple(self._merged())

    def _meta(self, meta: CatalogMeta, own: object) -> CatalogMeta:
        """The built-in meta with the file's symptoms; its other keys are there in a copy of the built-in file."""
        own = {} if own is None else own
        if not isinstance(own, dict) or own.keys() - CatalogMeta.model_fields.keys():
            self._fault(("meta",), "may hold nothing but symptoms", "write `symptoms: {my_symptom: how it shows}`")
            return meta
        symptoms = own.get("symptoms", {})
        if not isinstance(symptoms, dict) or not all(isinstance(text, str) for text in symptoms.values()):
            self._fault(("meta", "symptoms"), "must be id: description", "write `my_symptom: how it shows`")
            return meta
        return meta.model_copy(update={"symptoms": {**meta.symptoms, **symptoms}})

    def _entry(self, at: Location, entry: object) -> None:
        name = entry.get("id") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(name, str):
            self._fault(at, "has no id", "begin it with `- id: my_technique`")
            return
        if name in self.own:
            self._fault((*at, "id"), f"{name} stands in the file twice", "keep one of the two")
            return
        base = self.known[name].model_dump() if name in self.known else {}
        try:
            technique = Technique.model_validate({**base, **entry})
        except ValidationError as error:
            self._invalid(at, error)
        else:
            self.own[name] = (at, technique, "conflicts" in entry)

    def _invalid(self, at: Location, error: ValidationError) -> None:
        places: set[Location] = set()
        for detail in error.errors():
            place = self._place(at, detail)
            if place not in places:
                places.add(place)
                message, mend = _plain(detail, written(place[len(at) :]))
                self._fault(place, message, mend, detail["input"])

    def _place(self, at: Location, detail: ErrorDetails) -> Location:
        """Where the error lies in the file; a union's branches lie where its value stands."""
        place: Location = (*at, *detail["loc"])
        while detail["type"] != "missing" and place not in self.document.lines and len(place) > len(at):
            place = place[:-1]
        return place

    def _check_names(self, meta: CatalogMeta) -> None:
        ids = self.known.keys() | self.own.keys()
        for at, technique, _ in self.own.values():
            self._check(technique.symptoms, meta.symptoms, (*at, "symptoms"), "describe it in meta.symptoms")
            self._check(technique.conflicts, ids, (*at, "conflicts"), "`nightlab catalog list` shows the ids")

    def _check(self, names: list[str], known: Iterable[str], at: Location, mend: str) -> None:
        for index, name in enumerate(names):
            if name not in known:
                close = nearest(name, known)
                self._fault((*at, index), f"{show(name)} is unknown", f"did you mean {close}?" if close else mend, name)

    def _merged(self) -> Iterator[Technique]:
        """All techniques, conflicts made symmetric: what the user's file says of a pair stands."""
        chosen = {**self.known, **{name: technique for name, (_, technique, _) in self.own.items()}}
        says = {name: set(technique.conflicts) for name, (_, technique, explicit) in self.own.items() if explicit}
        for name, technique in chosen.items():
            conflicts = set(technique.conflicts)
            for other, listed in says.items():
                if name in listed:
                    conflicts.add(other)
                elif name not in says:
                    conflicts.discard(other)
            yield technique.model_copy(update={"conflicts": sorted(conflicts)})

    def _fault(self, at: Location, message: str, mend: str, value: object = None) -> None:
        self.faults.append(Fault(message, self.file, self.document.line(at), written(at), value, mend))


def _plain(detail: ErrorDetails, key: str) -> tuple[str, str]:
    """An error in plain words, and the mend."""
    if detail["type"] == "missing":
        return "is missing", f"add `{detail['loc'][-1]}:`"
    if detail["type"] == "extra_forbidden":
        known = (TechniqueParameter if key.startswith("params.") else Technique).model_fields
        word = str(detail["loc"][-1])
        close = nearest(word, known)
        return f"{show(word)} is unknown", f"did you mean {close}?" if close else f"known are {', '.join(known)}"
    if key.startswith("params.") and "values" in key and detail["type"].endswith("_type"):
        return f"must be a list of numbers, text or true/false, but holds {show(detail['input'])}", "correct the value"
    return f"{detail['msg'].replace('Input should', 'should')}, but is {show(detail['input'])}", "correct the value"
