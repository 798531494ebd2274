"""Which answers are kept: refusals, thoughts, JSON, majorities and copies."""

from __future__ import annotations

import pytest

from nightlab.errors import ConfigError
from nightlab.tools.distillation.filters import Filters, filtered
from nightlab.tools.distillation.prompts import Prompt
from nightlab.tools.distillation.teacher import Said

PROMPT = Prompt((("user", "Why?"),))


def dropped(text: str, **rules: object) -> str:
    """Why this answer is left out; empty where it is kept."""
    kept = filtered([(PROMPT, [Said(text)])], Filters(**rules))  # type: ignore[arg-type]
    return next(iter(+kept.dropped), "")


def kept(*texts: str, **rules: object) -> list[str]:
    found = filtered([(PROMPT, [Said(text) for text in texts])], Filters(**rules), samples=len(texts))  # type: ignore[arg-type]
    return [text for _, text in found.rows]


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry, but I can't help with that.",
        "I’m sorry, but I cannot assist with that request.",
        "I am unable to provide medical advice.",
        "As an AI language model, I do not have opinions.",
        "Sorry, I can't do that.",
        "I cannot fulfill this request.",
        "很抱歉，我无法回答这个问题。",
        "作为一个人工智能，我没有感情。",
    ],
)
def test_refusals_are_left_out(text: str) -> None:
    assert dropped(text) == "refusal"


@pytest.mark.parametrize(
    "text",
    [
        "I'm sorry to hear that. Rest, drink water, and see a doctor if it lasts.",
        "I can't stress enough how much sleep matters.",
        "The error says: I cannot help. It means that the service is down.",
        "我不能不说这本书很好。",
        "As an airline pilot, you need a licence.",
        "I cannot help you. " + "But here is what others did, step by step. " * 30,
    ],
)
def test_answers_that_only_sound_like_one_are_kept(text: str) -> None:
    assert dropped(text) == ""


def test_thoughts_are_taken_out_or_kept() -> None:
    assert kept("<think>a\nb</think>\n\nYes.") == kept("a\nb</think>Yes.") == ["Yes."]
    assert kept("a\nb</think>Yes.", thinking="keep") == ["<think>\na\nb\n</think>\n\nYes."]
    apart = filtered([(PROMPT, [Said("Yes.", thoughts="a b")])], Filters(thinking="keep"))
    assert apart.rows == [(PROMPT, "<think>\na b\n</think>\n\nYes.")]
    assert dropped("<think>never ends") == "empty"


def test_json_is_read_as_json() -> None:
    assert kept('```json\n{"a": 1}\n```', json=True) == ['{"a": 1}']
    assert dropped("Here it is: {}", json=True) == dropped('{"a": NaN}', json=True) == "not JSON"


def test_lengths_are_of_the_answer_alone() -> None:
    assert dropped("<think>" + "long " * 99 + "</think>ok", shortest=3) == "too short"
    assert dropped("<think>" + "long " * 99 + "</think>fine", longest=4) == ""
    assert dropped("longer", longest=4) == "too long"


def test_a_majority_is_of_all_samples_good_or_not() -> None:
    assert kept("Four.", "four", "five", agreement=0.6) == ["Four."]
    assert kept("Four.", "four", "", "", agreement=0.6) == []
    assert kept('{"a": 1, "b": 2}', '{"b":2,"a":1}', '{"a": 3}', json=True, agreement=0.6) == ['{"a": 1, "b": 2}']
    found = filtered([(PROMPT, [Said("Four.")])], Filters(agreement=0.5), samples=4)
    assert found.rows == [] and found.dropped["disagreeing"] == 1


def test_copies_of_one_prompt_are_kept_once() -> None:
    long = "The sky is blue because air scatters short waves of light more than long ones."
    assert kept("Yes.", "Yes.", "12", "21", long, long.replace("blue", "Blue")) == ["Yes.", "12", "21", long]
    assert len(kept(long, long.replace("blue", "Blue"), near_copies=False)) == 2


def test_near_copies_between_prompts_are_kept_once() -> None:
    pytest.importorskip("datasketch")
    asked = ["Explain how a steam engine turns heat into motion.", "Explain how a steam engine turns heat into motion!"]
    asked += ["Name three rivers of Europe and their length.", "What is a prime number?", "Who wrote Faust?"]
    answer = "Steam pushes a piston, which turns a wheel by a rod and a crank."
    said = [(Prompt((("user", text),)), [Said(answer if "steam" in text else f"About: {text}")]) for text in asked]
    found = filtered(said, Filters())
    assert [prompt.text for prompt, _ in found.rows] == [asked[0], *asked[2:]]
    assert found.looked_for_near_copies and found.dropped == {"near copy": 1}


@pytest.mark.parametrize(
    "rules", [{"agreement": 0.0}, {"agreement": 1.5}, {"longest": 0}, {"agree_on": "("}, {"agree_on": "no group"}]
)
def test_rules_that_cannot_be_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(rules))):
        Filters(**rules)  # type: ignore[arg-type]
