"""A user's own catalog file: read on top of the built-in catalog, every fault said at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic_core import ErrorDetails

from nightlab.configs.problems import Location
from nightlab.configs.wording import nearest, show
from nightlab.knowledge.techniques import CatalogMeta, Technique, TechniqueParameter
from nightlab.knowledge.user_file import Own, UserFile, open_user_file, plain_error

__all__ = ["read_user_catalog"]

SHAPE = "write `techniques:` and below it one `- id: …` a technique"


def read_user_catalog(
    file: Path, meta: CatalogMeta, techniques: Iterable[Technique]
) -> tuple[CatalogMeta, tuple[Technique, ...]]:
    """The built-in `meta` and `techniques` with those of the user's `file` on top.

    Raises ConfigError with every fault of the file, in its order.
    """
    known = {technique.id: technique for technique in techniques}
    own_file = open_user_file(file, setting="catalog.file", shape=SHAPE)
    own_file.refuse_keys_but(("meta", "techniques"), "a catalog")
    meta = _meta(own_file, meta)
    own = own_file.entries("techniques", known, _plain)
    _check_names(own_file, own, known, meta)
    own_file.finish()
    return meta, tuple(_merged(known, own))


def _meta(own_file: UserFile, meta: CatalogMeta) -> CatalogMeta:
    """The built-in meta with the file's symptoms; its other keys are there in a copy of the built-in file."""
    own = own_file.document.data.get("meta")
    own = {} if own is None else own
    if not isinstance(own, dict) or own.keys() - CatalogMeta.model_fields.keys():
        own_file.fault(("meta",), "may hold nothing but symptoms", "write `symptoms: {my_symptom: how it shows}`")
        return meta
    symptoms = own.get("symptoms", {})
    if not isinstance(symptoms, dict) or not all(isinstance(text, str) for text in symptoms.values()):
        own_file.fault(("meta", "symptoms"), "must be id: description", "write `my_symptom: how it shows`")
        return meta
    return meta.model_copy(update={"symptoms": {**meta.symptoms, **symptoms}})


def _check_names(
    own_file: UserFile, own: Mapping[str, Own[Technique]], known: Mapping[str, Technique], meta: CatalogMeta
) -> None:
    ids = known.keys() | own.keys()

    def check(names: list[str], options: Iterable[str], at: Location, mend: str) -> None:
        for index, name in enumerate(names):
            if name not in options:
                close = nearest(name, options)
                hint = f"did you mean {close}?" if close else mend
                own_file.fault((*at, index), f"{show(name)} is unknown", hint, name)

    for item in own.values():
        check(item.entry.symptoms, meta.symptoms, (*item.at, "symptoms"), "describe it in meta.symptoms")
        check(item.entry.conflicts, ids, (*item.at, "conflicts"), "`nightlab catalog list` shows the ids")


def _merged(known: Mapping[str, Technique], own: Mapping[str, Own[Technique]]) -> Iterator[Technique]:
    """All techniques, conflicts made symmetric: what the user's file says of a pair stands."""
    chosen = {**known, **{name: item.entry for name, item in own.items()}}
    says = {name: set(item.entry.conflicts) for name, item in own.items() if "conflicts" in item.given}
    for name, technique in chosen.items():
        conflicts = set(technique.conflicts)
        for other, listed in says.items():
            if name in listed:
                conflicts.add(other)
            elif name not in says:
                conflicts.discard(other)
        yield technique.model_copy(update={"conflicts": sorted(conflicts)})


def _plain(detail: ErrorDetails, key: str) -> tuple[str, str]:
    """An error in plain words, and the mend."""
    in_parameter = key.startswith("params.")
    if in_parameter and "values" in key and detail["type"].endswith("_type"):
        return f"must be a list of numbers, text or true/false, but holds {show(detail['input'])}", "correct the value"
    return plain_error(detail, (TechniqueParameter if in_parameter else Technique).model_fields)
