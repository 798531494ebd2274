"""The schema for editors and the reference page say what the models say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import nightlab.configs
from nightlab.configs.fields import fields_of, sections
from nightlab.configs.init import TEMPLATES, write_template
from nightlab.configs.reference import reference_page
from nightlab.configs.schema import editor_line, json_schema, write_schema
from nightlab.configs.yaml_reader import read_yaml
from tests.configs.sample import SAMPLE, changed

ROOM = Path(nightlab.configs.__file__).resolve().parent
EXAMPLES = sorted(ROOM.glob("examples/*/study.yaml"))


def errors(text: str) -> list[str]:
    validator = Draft202012Validator(json_schema())
    return [".".join(map(str, error.path)) for error in validator.iter_errors(read_yaml(text, Path("study.yaml")).data)]


def test_the_committed_schema_is_up_to_date(tmp_path: Path) -> None:
    write_schema(tmp_path / "made" / "study.schema.json")
    made = (tmp_path / "made" / "study.schema.json").read_text(encoding="utf-8")
    committed = (ROOM / "templates" / "study.schema.json").read_text(encoding="utf-8")
    assert committed == made, "write_schema(Path('configs/templates/study.schema.json')) makes it anew"


def test_the_committed_reference_page_is_up_to_date() -> None:
    committed = (ROOM.parent / "docs" / "study-file.md").read_text(encoding="utf-8")
    assert committed == reference_page(), "python -m nightlab.configs.reference > docs/study-file.md makes it anew"


def test_the_schema_is_one_and_describes_every_key() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["title"] == "nightlab study file"
    for section in sections().values():
        described: Any = schema if section.__name__ == "Study" else schema["$defs"][section.__name__]
        assert list(described["properties"]) == list(fields_of(section))
        # A key that holds a whole section may be described there.
        assert all("description" in entry or "$ref" in entry for entry in described["properties"].values())


def test_the_schema_uses_no_keyword_an_editor_does_not_know() -> None:
    text = json.dumps(json_schema())
    assert not [word for word in ("ge", "gt", "le", "lt") if f'"{word}":' in text]


@pytest.mark.parametrize(
    "text", [SAMPLE, *(path.read_text(encoding="utf-8") for path in EXAMPLES)], ids=["sample", *map(str, EXAMPLES)]
)
def test_valid_studies_pass_the_schema(text: str) -> None:
    assert errors(text) == []


@pytest.mark.parametrize("kind", TEMPLATES)
def test_templates_pass_the_schema_and_name_it_first(kind: str, tmp_path: Path) -> None:
    text = write_template(tmp_path, kind=kind, name="x").read_text(encoding="utf-8")
    assert errors(text) == []
    assert text.splitlines()[0] == editor_line(".nightlab/study.schema.json")


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("minimize", "up", "objective.direction"),
        ("runs: 20", "runs: 0", "budget.runs"),
        ("runs: 20", "duration: 0", "budget.duration"),
        ("runs: 20", "dollars: 3", "budget"),
        ("night-1", "Night 1", "study"),
        ("[0.5, 8]", "[0.5]", "objective.plausible"),
    ],
)
def test_the_schema_finds_what_an_editor_can_find(old: str, new: str, place: str) -> None:
    assert errors(changed((old, new))) == [place]


def test_the_reference_page_lists_every_key_with_its_type() -> None:
    page = reference_page()
    titles = [line for line in page.splitlines() if line.startswith("## ")]
    for place, section in sections().items():
        assert any(f"`{place}`" in title for title in titles) or place == ""
        assert all(f"| `{key}` |" in page for key in fields_of(section))
    assert "| `timeout` | duration |" in page
    assert "| `slots` | whole number ≥ 1, ≤ 512 | `1` |" in page
    assert "| `metrics` | name → section |" in page
