"""Rows of every format become examples; what a trainer would drop is broken, with its reason."""

from __future__ import annotations

from typing import Any

import pytest

from nightlab.tools.datasets.layouts import BrokenRowError, guess_layout, to_example

USER, ASSISTANT = {"role": "user", "content": "1+1?"}, {"role": "assistant", "content": "2"}
HUMAN, GPT = {"from": "human", "value": "你好"}, {"from": "gpt", "value": "您好！"}


@pytest.mark.parametrize(
    ("row", "prompt", "response"),
    [
        ({"instruction": "Add.", "input": "1+1", "output": "2"}, "Add.\n1+1", "2"),
        ({"instruction": "翻译", "input": "", "output": "translate"}, "翻译", "translate"),
        (
            {"system": "Be short.", "history": [["a", "b"]], "instruction": "c", "output": "d"},
            "Be short.\na\nb\nc",
            "d",
        ),
        ({"prompt": "p", "completion": "c"}, "p", "c"),
        ({"question": "q", "answer": "a"}, "q", "a"),
        ({"input": "x", "output": "y"}, "x", "y"),
        ({"问题": "几点？", "答案": "三点"}, "几点？", "三点"),
        ({"prompt": [USER], "completion": [ASSISTANT]}, "1+1?", "2"),
        ({"conversations": [HUMAN, GPT]}, "你好", "您好！"),
        (
            {"conversations": [{"from": "system", "value": "S"}, HUMAN, GPT, HUMAN, GPT]},
            "S\n你好\n您好！\n你好",
            "您好！",
        ),
        ({"messages": [USER, ASSISTANT]}, "1+1?", "2"),
        ({"messages": [{"role": "system", "content": "S"}, USER, ASSISTANT]}, "S\n1+1?", "2"),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "see"}]}, ASSISTANT]}, "see", "2"),
        ({"text": "just text"}, "", "just text"),
        ({"sentence": "fine", "label": 1}, "", "fine"),
    ],
)
def test_a_row_is_read_by_its_keys(row: dict[str, Any], prompt: str, response: str) -> None:
    layout = guess_layout(row, {})
    assert layout is not None
    example = to_example(row, layout)
    assert (example.prompt, example.response) == (prompt, response)
    assert (example.prompt_length, example.response_length) == (len(prompt), len(response))


@pytest.mark.parametrize(
    "row",
    [
        {"instruction": "q", "input": "", "chosen": "good", "rejected": "bad"},
        {"prompt": "q", "chosen": "good", "rejected": "bad"},
        {
            "conversations": [{"from": "human", "value": "q"}],
            "chosen": {"from": "gpt", "value": "good"},
            "rejected": {"from": "gpt", "value": "bad"},
        },
        {
            "input": {"messages": [{"role": "user", "content": "q"}]},
            "preferred_output": [{"role": "assistant", "content": "good"}],
            "non_preferred_output": [{"role": "assistant", "content": "bad"}],
        },
        {
            "prompt": [{"role": "user", "content": "q"}],
            "chosen": [{"role": "assistant", "content": "good"}],
            "rejected": [{"role": "assistant", "content": "bad"}],
        },
    ],
    ids=["llamafactory", "trl", "sharegpt", "openai", "trl-messages"],
)
def test_preference_pairs_of_every_framework(row: dict[str, Any]) -> None:
    layout = guess_layout(row, {})
    assert layout is not None
    assert layout.ranking
    example = to_example(row, layout)
    assert (example.prompt, example.response, example.rejected) == ("q", "good", "bad")


def test_a_thumb_is_a_label_and_must_be_true_or_false() -> None:
    row = {"instruction": "q", "output": "a", "kto_tag": True}
    layout = guess_layout(row, {})
    assert layout is not None
    assert to_example(row, layout).label == "true"
    with pytest.raises(BrokenRowError, match="kto_tag is not true or false"):
        to_example({**row, "kto_tag": 1}, layout)


def test_tool_results_in_a_row_count_as_one() -> None:
    tool = {"role": "tool", "content": "42"}
    row = {"messages": [USER, {"role": "assistant", "tool_calls": [{}]}, tool, tool, ASSISTANT]}
    layout = guess_layout(row, {})
    assert layout is not None
    assert to_example(row, layout).response == "2"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([1], "is no object of columns but a list"),
        ("text", "is no object of columns but text"),
        ({"instruction": "q"}, "has no column output"),
        ({"instruction": "q", "output": None}, "output is not text but empty"),
        ({"instruction": "q", "output": 3}, "output is not text but a number"),
        ({"instruction": ["q"], "output": "a"}, "has a message that is no object"),
        ({"instruction": "q", "output": "a", "history": "none"}, "history is no list"),
    ],
)
def test_what_is_no_alpaca_row(row: object, reason: str) -> None:
    layout = guess_layout({"instruction": "q", "output": "a", "history": []}, {})
    assert layout is not None
    with pytest.raises(BrokenRowError, match=reason):
        to_example(row, layout)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (None, "messages is no list of messages"),
        ([], "messages is no list of messages"),
        ([USER], "does not end with an answer"),
        ([USER, USER], "roles do not take turns"),
        ([ASSISTANT, USER], "roles do not take turns"),
        ([USER, {"role": "robot", "content": "2"}], "has the unknown role robot"),
        ([USER, {"role": "assistant", "content": None}], "content is not text"),
        ([USER, {"content": "2"}], "has a message without role"),
        ([USER, "2"], "has a message that is no object"),
    ],
)
def test_what_is_no_conversation(messages: object, reason: str) -> None:
    layout = guess_layout({"messages": [USER, ASSISTANT]}, {})
    assert layout is not None
    with pytest.raises(BrokenRowError, match=reason):
        to_example({"messages": messages}, layout)


def test_named_columns_come_before_usual_ones_and_unknown_ones_tell_nothing() -> None:
    row = {"a": "q", "b": "r"}
    assert guess_layout(row, {}) is None
    layout = guess_layout(row, {"prompt": "a", "response": "b"})
    assert layout is not None
    assert to_example(row, layout).response == "r"
