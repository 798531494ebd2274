"""Prompts are read from the rows that trainers know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.tools.distillation.prompts import read_prompts

USER = (("user", "Why?"),)


@pytest.mark.parametrize(
    ("row", "turns"),
    [
        ({"instruction": "Why?", "input": "", "output": "old"}, USER),
        ({"instruction": "Why?", "input": "Because"}, (("user", "Why?\nBecause"),)),
        ({"prompt": "Why?", "system": "Be brief."}, (("system", "Be brief."), *USER)),
        ({"prompt": [{"role": "user", "content": "Why?"}]}, USER),
        ({"text": "Why?"}, USER),
        ({"question": "Why?"}, USER),
        ("Why?", USER),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "Why?"}]}]}, USER),
        ({"conversations": [{"from": "human", "value": "Why?"}, {"from": "gpt", "value": "old"}]}, USER),
        (
            {"instruction": "Why?", "history": [["Hello", "Hi"]]},
            (("user", "Hello"), ("assistant", "Hi"), *USER),
        ),
        ({"messages": [{"role": "user", "content": "Why?"}, {"role": "tool", "content": "x"}]}, None),
        ({"messages": []}, None),
        ({"instruction": " "}, None),
        ({"instruction": 3}, None),
        (7, None),
    ],
)
def test_a_row_is_read(tmp_path: Path, row: object, turns: object) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("\n".join([json.dumps(row), json.dumps({"prompt": "last"})]))
    read = read_prompts(file)
    assert [prompt.turns for prompt in read.prompts] == [*([turns] if turns else []), (("user", "last"),)]
    assert read.broken == ([] if turns else ["row 1: is no prompt"])


def test_copies_and_broken_rows_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a"}\n{"instruction": "a"}\n{"prompt": \n{"prompt": "b"}\n')
    read = read_prompts(file)
    assert (len(read.prompts), read.copies, read.broken, read.rows) == (2, 1, ["row 3: is no JSON"], 4)


def test_plain_lines_are_prompts(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one\n\ntwo\n")
    assert [prompt.text for prompt in read_prompts(file).prompts] == ["one", "two"]
