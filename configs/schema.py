"""The study file's JSON Schema, for editors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import CoreSchema

from nightlab.configs.files import write_atomically
from nightlab.configs.study import Study

__all__ = ["editor_line", "json_schema", "write_schema"]


class _Untitled(GenerateJsonSchema):
    """Leaves out the titles that only repeat a key."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        made: Mapping[str, Any] = super().generate(schema, mode)
        title = {"$schema": self.schema_dialect, "title": "nightlab study file"}
        return title | {key: value for key, value in made.items() if key not in title}


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a study file, with the fields' documentation as descriptions."""
    return Study.model_json_schema(by_alias=True, schema_generator=_Untitled)


def write_schema(path: Path) -> None:
    """Write the schema to `path` in one step, making its folder. Raises DiskError."""
    write_atomically(path, json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n")


def editor_line(schema: Path | str) -> str:
    """The comment by which an editor's YAML language server finds the schema, from beside the study file."""
    return f"# yaml-language-server: $schema={schema}"
