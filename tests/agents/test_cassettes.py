"""The wire format as recorded: each way of asking a real server, and each fault, read without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.llm import LanguageModel
from nightlab.agents.prompts import Prompt
from nightlab.configs.brain import Endpoint
from nightlab.tools.chat import METHODS, ask
from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.json_answers import parsed_answer
from tests.agents.lab import new_lab
from tests.agents.recording import FOLDER, HOST, REAL, SCRIPTED, Mood, cassette, request_of


@pytest.mark.parametrize("method", METHODS)
def test_each_way_of_asking(method: str) -> None:
    with cassette(method):
        reply = ask(request_of((REAL | SCRIPTED)[method]))
    assert reply.input_tokens and reply.output_tokens and reply.refusal is None
    if method in ("json_schema", "function_calling"):
        parsed = parsed_answer(Mood, reply.arguments or reply.content)
        assert parsed.value is not None and (reply.arguments is not None) is (method == "function_calling")


def test_a_real_server_that_takes_no_notice_of_tools() -> None:
    with cassette("ignored_tools"):
        reply = ask(request_of(REAL["ignored_tools"]))
    assert reply.arguments is None and reply.content


def test_a_real_server_says_that_it_cut_an_answer() -> None:
    with cassette("truncated"):
        reply = ask(request_of(REAL["truncated"]))
    assert reply.is_cut and reply.output_tokens == REAL["truncated"].max_output_tokens
    assert parsed_answer(Mood, reply.content).value is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("rate_limit", FaultKind.BUSY),
        ("server_error", FaultKind.BUSY),
        ("wrong_key", FaultKind.KEY),
        ("unknown_model", FaultKind.MODEL),
        ("too_long", FaultKind.TOO_LONG),
        ("no_json_schema", FaultKind.UNSUPPORTED),
        ("no_tools", FaultKind.UNSUPPORTED),
    ],
)
def test_each_fault_is_told_apart(name: str, kind: FaultKind) -> None:
    with cassette(name), pytest.raises(ChatError) as raised:
        ask(request_of(SCRIPTED[name]))
    assert raised.value.kind is kind and not raised.value.was_sent
    assert raised.value.retry_after_seconds == (0.0 if name == "rate_limit" else None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("invalid_json", "the answer holds no JSON object"),
        ("empty", "the answer holds no JSON object"),
        ("refusal", "the answer holds no JSON object"),
        ("fenced", ""),
    ],
)
def test_each_poor_answer_is_read(name: str, says: str) -> None:
    with cassette(name):
        reply = ask(request_of(SCRIPTED[name]))
    assert parsed_answer(Mood, reply.arguments or reply.content).problem == says
    assert reply.refusal == ("I cannot help with that." if name == "refusal" else None)
    assert reply.is_empty is (name in ("empty", "refusal"))


def test_no_cassette_names_a_host_or_a_key() -> None:
    cassettes = sorted(FOLDER.glob("*.yaml"))
    assert {file.stem for file in cassettes} == {*REAL, *SCRIPTED}
    for file in cassettes:
        text = file.read_text(encoding="utf-8").lower()
        assert HOST in text
        assert not [word for word in ("authorization", "key-0123", "127.0.0.1", "localhost", ".gguf") if word in text]


@pytest.mark.skipif("NIGHTLAB_TEST_BASE_URL" not in os.environ, reason="NIGHTLAB_TEST_BASE_URL is not set")
def test_a_live_server_gives_a_typed_answer(tmp_path: Path) -> None:
    environment = {"NIGHTLAB_API_KEY": os.environ.get("NIGHTLAB_TEST_API_KEY", "")}
    model = os.environ.get("NIGHTLAB_TEST_MODEL", "default")
    settings: dict[str, Any] = {"model": model, "base_url": os.environ["NIGHTLAB_TEST_BASE_URL"]}
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 100_000}) as lab:
        live = LanguageModel([Endpoint(**settings, max_output_tokens=256)], environment)
        prompt = Prompt("live", 1, "You judge training curves. Answer in JSON.", "The loss went from 3.0 to 1.2.")
        answer = live.structured(lab, Mood, prompt, purpose="live", key="live/1")
        assert answer.value.mood in ("good", "bad")
        assert lab.ledger.calls()[-1].tokens > 0
