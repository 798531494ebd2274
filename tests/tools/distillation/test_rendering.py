"""Conversations become tokens by the chat template, and only the answers are learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tokenizers")

from nightlab.errors import ConfigError
from nightlab.tools.distillation.rendering import Renderer, UnfitRowError, is_tokenised, render_file
from tests.tools.distillation.chat import FORGETFUL, ChatTokenizer

TOKENIZER = ChatTokenizer()
TALK = (("user", "Why?"), ("assistant", "It is."), ("user", "Ça va 🙂?"), ("assistant", "Oui, ça va 🙂"))


def learned(renderer: Renderer, turns: tuple[tuple[str, str], ...]) -> str:
    example = renderer.example(turns)
    assert len(example["input_ids"]) == len(example["labels"])
    pairs = zip(example["input_ids"], example["labels"], strict=True)
    assert all(label in (-100, token) for token, label in pairs)
    return ChatTokenizer().decode([label for label in example["labels"] if label != -100])


def test_the_last_answer_is_learned_as_the_template_closes_it() -> None:
    assert learned(Renderer(TOKENIZER), TALK) == "Oui, ça va 🙂<|im_end|>\n"
    whole = Renderer(TOKENIZER).example(TALK)["input_ids"]
    assert TOKENIZER.decode(whole).startswith("<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\nIt is.")


def test_all_answers_where_that_is_wanted() -> None:
    assert learned(Renderer(TOKENIZER, "all"), TALK) == "It is.<|im_end|>\nOui, ça va 🙂<|im_end|>\n"


def test_the_first_token_is_no_target() -> None:
    bare = ChatTokenizer("{% for message in messages %}{{ message.content }}{% endfor %}")
    assert learned(Renderer(bare), (("user", ""), ("assistant", "abc"))) == "bc"


def test_what_the_template_is_given_reaches_it() -> None:
    plain = Renderer(TOKENIZER, template_args={"enable_thinking": False})
    with pytest.raises(UnfitRowError, match="where its prompt does not lead"):
        plain.example(TALK)
    assert learned(plain, (("user", "a"), ("assistant", "<think></think>b"))) == "b<|im_end|>\n"


def test_thoughts_that_the_template_takes_out_of_earlier_answers() -> None:
    forgetful = ChatTokenizer(FORGETFUL)
    turns = (("user", "a"), ("assistant", "<think>x</think>b"), ("user", "c"), ("assistant", "<think>y</think>d"))
    assert learned(Renderer(forgetful), turns) == "<think>y</think>d<|im_end|>\n"
    with pytest.raises(UnfitRowError, match="earlier answers that the chat template changes"):
        Renderer(forgetful, "all").example(turns)


def test_what_is_too_long_or_refused_is_unfit() -> None:
    size = len(Renderer(TOKENIZER).example(TALK)["input_ids"])
    assert Renderer(TOKENIZER, longest=size).example(TALK)
    with pytest.raises(UnfitRowError, match=f"is longer than {size - 1} tokens"):
        Renderer(TOKENIZER, longest=size - 1).example(TALK)
    strict = ChatTokenizer("{{ messages[0].content.nothing.more }}")
    with pytest.raises(UnfitRowError, match="is refused by the chat template: "):
        Renderer(strict).example(TALK)


def test_a_tokenizer_must_be_able_to_do_it() -> None:
    with pytest.raises(ConfigError, match=r"has no chat template .*--chat-template"):
        Renderer(ChatTokenizer(None))
    slow = ChatTokenizer()
    slow.is_fast = False
    with pytest.raises(ConfigError, match="tells no offsets"):
        Renderer(slow)


def says(role: str, content: object) -> dict[str, object]:
    return {"role": role, "content": content}


ROWS: list[Any] = [
    {"messages": [says("system", "S"), says("user", "Q"), says("assistant", "A")]},
    {"system": "S", "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "A"}]},
    {"system": "S", "instruction": "Q", "input": "", "output": "A"},
    {"system": "S", "prompt": [says("user", "Q")], "completion": [says("assistant", "A")]},
]


def written(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return path


def test_every_form_of_a_conversation_gives_the_same_tokens(tmp_path: Path) -> None:
    source = written(tmp_path / "rows.jsonl", [*ROWS, {"instruction": "Q", "output": "A", "history": [["q", "a"]]}])
    told = render_file(source, tmp_path / "cache" / "examples.jsonl", Renderer(TOKENIZER))
    lines = told.file.read_text().splitlines()
    assert (told.rows, told.written, len(lines), len(set(lines[:4]))) == (5, 5, 5, 1)
    assert TOKENIZER.decode(json.loads(lines[0])["input_ids"]).startswith("<|im_start|>system\nS<|im_end|>")
    assert "user\nq<|im_end|>\n<|im_start|>assistant\na" in TOKENIZER.decode(json.loads(lines[4])["input_ids"])
    before = told.file.read_bytes()
    assert render_file(source, told.file, Renderer(TOKENIZER)).file.read_bytes() == before
    assert is_tokenised(told.file) and not is_tokenised(source) and is_tokenised(tmp_path)


UNFIT: list[Any] = [
    {"messages": [says("user", "Q")]},
    {"messages": [says("user", "Q"), says("tool", "x"), says("assistant", "A")]},
    {"instruction": "Q", "output": " "},
    {"instruction": "Q", "output": 3},
    {"prompt": [says("user", "Q")], "completion": [says("assistant", None)]},
    "plain text",
    7,
]


def test_what_is_no_conversation_is_left_out_and_counted(tmp_path: Path) -> None:
    source = written(tmp_path / "rows.jsonl", [ROWS[0], *(json.dumps(row) for row in UNFIT), "{"])
    told = render_file(source, tmp_path / "examples.jsonl", Renderer(TOKENIZER))
    assert (told.rows, told.written, told.first_left_out) == (9, 1, 2)
    assert told.left_out == {"is no conversation that ends with an answer": 7, "is no JSON": 1}
    none = written(tmp_path / "none.jsonl", UNFIT)
    with pytest.raises(ConfigError, match="holds no conversation that can be rendered: a row is no conversation"):
        render_file(none, tmp_path / "other.jsonl", Renderer(TOKENIZER))
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["examples.jsonl", "none.jsonl", "rows.jsonl"]
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        is_tokenised(tmp_path / "gone.jsonl")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        render_file(tmp_path / "gone.jsonl", tmp_path / "other.jsonl", Renderer(TOKENIZER))
