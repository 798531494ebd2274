"""Typed answers: schemas that strict servers take, JSON wherever it stands in a text, what is wrong said shortly."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import pytest
from jsonschema import Draft202012Validator
from pydantic import BaseModel, Field

from nightlab.tools.json_answers import answer_schema, parsed_answer


class Setting(BaseModel):
    name: str
    value: float | str


class Idea(BaseModel):
    title: Annotated[str, Field(max_length=20)] = "none"
    default: int = 3
    """A field called like a keyword of JSON schema."""
    kind: Literal["code", "data"]
    settings: list[Setting] = Field(default_factory=list, max_length=2)
    parent: Setting | None = None


IDEA: dict[str, Any] = {"title": "t", "default": 1, "kind": "code", "settings": [], "parent": None}


def objects(node: Any) -> list[dict[str, Any]]:
    inner = list(node.values()) if isinstance(node, dict) else node if isinstance(node, list) else []
    here = [node] if isinstance(node, dict) and node.get("type") == "object" else []
    return [*here, *(found for one in inner for found in objects(one))]


@pytest.mark.parametrize("lengths", [True, False])
def test_every_object_of_a_schema_is_closed_and_every_field_required(lengths: bool) -> None:
    schema = answer_schema(Idea, lengths=lengths)
    found = objects(schema)
    assert len(found) == 2
    for one in found:
        assert one["additionalProperties"] is False and one["required"] == list(one["properties"])
    assert schema["properties"]["default"] == {"type": "integer"}
    assert ("maxLength" in json.dumps(schema)) is lengths and schema["properties"]["settings"]["maxItems"] == 2
    Draft202012Validator.check_schema(schema)
    assert Draft202012Validator(schema).is_valid(IDEA)
    assert not Draft202012Validator(schema).is_valid(IDEA | {"more": 1})


def test_an_open_mapping_is_refused_where_it_is_written() -> None:
    class Loose(BaseModel):
        values: dict[str, float]

    with pytest.raises(TypeError, match=r"Loose\.values: is an open mapping"):
        answer_schema(Loose, lengths=True)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(IDEA),
        f"\n\n  {json.dumps(IDEA, indent=2)}\n",
        f"```json\n{json.dumps(IDEA)}\n```",
        f"Here it is:\n```\n{json.dumps(IDEA)}\n```\nGood luck!",
        f"<think>{{'no': json}} maybe {{}}?</think>{json.dumps(IDEA)}",
        f"A set {{1, 2}} and then {json.dumps(IDEA)} as asked.",
        f'{{"other": 1}} {json.dumps(IDEA)}',
    ],
    ids=["bare", "indented", "fenced", "fenced in talk", "after thoughts", "in talk", "the second"],
)
def test_the_answer_is_found_in_what_stands_around_it(text: str) -> None:
    assert parsed_answer(Idea, text).value == Idea.model_validate(IDEA)


@pytest.mark.parametrize("text", ["", "no braces", "{oops", "[1, 2]", "{" * 5000, '{"a":' * 3000, "null"])
def test_where_there_is_none_that_is_said(text: str) -> None:
    parsed = parsed_answer(Idea, text)
    assert (parsed.value, parsed.problem, parsed.breaks_schema) == (None, "the answer holds no JSON object", True)


def test_halves_of_characters_are_replaced_and_whole_ones_stay() -> None:
    halves = r'{"title": "a\ud83d\ude00\ud800b", "kind": "code", "settings": [{"name": "\udfff", "value": 1}]}'
    value = parsed_answer(Idea, halves).value
    assert value is not None and (value.title, value.settings[0].name) == ("a😀?b", "?")
    assert parsed_answer(Idea, json.loads(halves)).value == value
    assert Idea.model_validate_json(value.model_dump_json()) == value


def test_what_no_server_that_follows_the_schema_gives_is_told_from_what_it_may_give() -> None:
    missing = parsed_answer(Idea, {"kind": "code", "settings": [{"name": "lr"}]})
    assert missing.breaks_schema and missing.problem.startswith("settings.0.value")
    assert parsed_answer(Idea, IDEA | {"kind": "magic"}).breaks_schema
    long = parsed_answer(Idea, IDEA | {"title": "x" * 50})
    assert not long.breaks_schema and "at most 20 characters" in long.problem


def test_many_faults_are_told_in_few_words() -> None:
    class Many(BaseModel):
        settings: list[Setting]

    parsed = parsed_answer(Many, {"settings": [{"x\n": "y" * 5000}] * 40})
    assert len(parsed.problem) < 1200 and parsed.problem.endswith("and 75 more") and "\n" not in parsed.problem
