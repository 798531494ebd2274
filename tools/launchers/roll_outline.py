"""The shape of a ROLL configuration: which keys each pipeline has, section in section.

Made from ROLL's own data classes (alibaba/ROLL, roll/configs and roll/pipeline); ROLL itself drops a key it does not
know without a word.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from nightlab.tools.launchers.arguments import Argument

__all__ = ["RollOutline"]

FILE = Path(__file__).with_name("data") / "roll.json"

BESIDE = frozenset({"defaults", "hydra"})
"""Hydra's own keys."""


class Field(Argument):
    """One key: a value, or a section."""

    section: str | None = None
    named: bool = False
    """Whether the section stands below names of one's own (`rewards.<domain>`)."""


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    version: str
    pipelines: dict[str, str]
    sections: dict[str, dict[str, Field]]


@cache
def _data() -> _Data:
    return _Data.model_validate_json(FILE.read_bytes())


class RollOutline:
    """The keys of one pipeline."""

    def __init__(self, pipeline: str) -> None:
        self._data = _data()
        self._top = self._data.sections[self._data.pipelines[pipeline]]

    @property
    def version(self) -> str:
        return self._data.version

    def argument(self, key: str) -> Argument | None:
        """What may stand at a dotted key; None where no such key is known."""
        if key.split(".")[0] in BESIDE:
            return Argument()
        fields, parts = self._top, key.split(".")
        while parts:
            field = fields.get(parts.pop(0))
            if field is None:
                return None
            if field.section is None:
                # What is below a plain mapping, only ROLL knows.
                return Argument() if parts else field
            if field.named and parts:
                parts.pop(0)
            fields = self._data.sections[field.section]
        return Argument()

    def names(self) -> Iterator[str]:
        """Every dotted key, as far as sections go without names of one's own."""
        yield from self._names("", self._top)

    def _names(self, before: str, fields: dict[str, Field]) -> Iterator[str]:
        for name, field in fields.items():
            yield before + name
            if field.section and not field.named:
                yield from self._names(f"{before}{name}.", self._data.sections[field.section])
