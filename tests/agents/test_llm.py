"""The one door to language models, over real HTTP: ways to ask, repairs, retries, fail-over, budgets, records."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field, field_validator

from bench.scripted_model import Fault, Script, ScriptedModel
from nightlab.agents.aside import StoppedError
from nightlab.agents.context import Lab
from nightlab.agents.llm import FALLBACK, LanguageModel, models_of
from nightlab.agents.model_calls import settle_calls_of_the_dead
from nightlab.agents.prompts import Prompt
from nightlab.agents.servers import FIRST_REST_SECONDS, LONGEST_REST_SECONDS, Servers, address_of
from nightlab.configs.brain import BrainSettings, Endpoint
from nightlab.errors import BudgetError, ModelError
from nightlab.knowledge.records import CallState, ModelCall
from nightlab.report.load import load_report
from nightlab.report.markdown import render_markdown
from nightlab.tools.chat_pace import Pace
from tests.agents.lab import new_lab, opened
from tests.task import make_repository

QUICK = Pace(attempts=3, first_wait_seconds=0.01, longest_wait_seconds=5.0)
PROMPT = Prompt("analysis", 3, "You read training logs.", "What do you see?")


class Finding(BaseModel):
    value: str = Field(min_length=1)
    share: float
    side: Literal["left", "right"]

    @field_validator("share")
    @classmethod
    def _a_share(cls, share: float) -> float:
        if share > 1:
            raise ValueError("a share is at most 1")
        return share


GOOD: dict[str, Any] = {"value": "loss stands still", "share": 0.5, "side": "left"}


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def endpoint(server: ScriptedModel, **changes: Any) -> Endpoint:
    return Endpoint(model=server.model, base_url=server.base_url, **changes)


def door(*servers: ScriptedModel, clock: Clock | None = None, key: str = "", **changes: Any) -> LanguageModel:
    environment = {"NIGHTLAB_API_KEY": key} if key else {}
    endpoints = [endpoint(server, **changes) for server in servers]
    return LanguageModel(endpoints, environment, Servers(clock or Clock()), QUICK)


def asked(lab: Lab, model: LanguageModel, key: str = "analysis/1", prompt: Prompt = PROMPT) -> Finding:
    return model.structured(lab, Finding, prompt, purpose="analysis", key=key).value


def taking(*answers: Any, then: Any = None) -> Script:
    """The answers one after the other, then the last or `then` for ever."""
    left, lock = list(answers), threading.Lock()

    def answer(_request: dict[str, Any]) -> Any:
        with lock:
            return left.pop(0) if left else GOOD if then is None else then

    return answer


@contextmanager
def one(folder: Path, script: Script, **server: Any) -> Iterator[tuple[Lab, ScriptedModel]]:
    with new_lab(folder, budget={"runs": 9, "llm_tokens": 1_000_000}) as lab, ScriptedModel(script, **server) as stub:
        yield lab, stub


def how(calls: list[ModelCall]) -> list[tuple[str, str]]:
    return [(call.method, call.state.value) for call in calls]


def told(lab: Lab, kind: str) -> list[str]:
    return [event.text for event in lab.ledger.events() if event.kind == kind]


def test_an_answer_is_typed_and_its_call_stands_in_the_ledger(tmp_path: Path) -> None:
    prices = {"models": {"scripted": {"input_million_usd": 1.0, "cached_million_usd": 0.1, "output_million_usd": 2.0}}}
    with new_lab(tmp_path, prices=prices) as lab, ScriptedModel(taking(GOOD), cached_tokens=3) as stub:
        answer = door(stub).structured(lab, Finding, PROMPT, purpose="analysis", key="analysis/1")
        assert (answer.model, answer.value) == ("scripted", Finding(**GOOD))
        (call,) = lab.ledger.calls()
        assert (call.key, call.purpose, call.prompt, call.prompt_hash) == (
            "analysis/1",
            "analysis",
            "analysis@3",
            PROMPT.digest,
        )
        assert (call.endpoint, call.method, call.state) == (
            address_of(endpoint(stub)),
            "json_schema",
            CallState.SETTLED,
        )
        assert call.cached_tokens == 3 < call.input_tokens < call.reserved_input_tokens
        fresh = call.input_tokens - 3
        assert call.cost_usd == pytest.approx((fresh * 1.0 + 3 * 0.1 + call.output_tokens * 2.0) / 1e6)
        assert call.seconds is not None and call.outcome == ""
        (seen,) = stub.requests
        schema = seen.body["response_format"]["json_schema"]
        assert schema["strict"] and schema["schema"]["required"] == ["value", "share", "side"]
        assert (seen.body["max_tokens"], seen.body["model"]) == (4096, "scripted")
        assert "temperature" not in seen.body and not seen.body["stream"]


@pytest.mark.parametrize(
    ("server", "tried"),
    [
        ({}, ["json_schema"]),
        ({"json_schema": "ignored"}, ["json_schema"]),
        ({"json_schema": "rejected"}, ["json_schema", "function_calling"]),
        ({"json_schema": "rejected", "function_calling": "rejected"}, ["json_schema", "function_calling", "json_mode"]),
        (
            {"json_schema": "rejected", "function_calling": "rejected", "json_mode": "rejected"},
            ["json_schema", "function_calling", "json_mode", "text"],
        ),
    ],
    ids=["all", "ignores it", "DeepSeek", "JSON mode alone", "text alone"],
)
def test_what_a_server_can_do_is_found_once_and_remembered(
    tmp_path: Path, server: dict[str, Any], tried: list[str]
) -> None:
    with one(tmp_path, taking(), **server) as (lab, stub):
        model = door(stub)
        assert asked(lab, model) == Finding(**GOOD)
        asked(lab, model, "analysis/2")
        # A new process knows it from the ledger.
        asked(lab, door(stub), "analysis/3")
        assert [seen.method for seen in stub.requests] == [*tried, tried[-1], tried[-1]]
        states = ["released"] * (len(tried) - 1) + ["settled"] * 3
        assert [state for _, state in how(lab.ledger.calls())] == states, "a refused way costs nothing"
        if tried[-1] in ("json_mode", "text"):
            assert "JSON schema" in stub.requests[-1].text and '"share"' in stub.requests[-1].text


def test_a_server_that_takes_no_notice_of_the_schema_is_asked_another_way(tmp_path: Path) -> None:
    def guessing(request: dict[str, Any]) -> Any:
        # It sees the schema only where it stands in the prompt.
        return GOOD if "JSON schema" in request["messages"][0]["content"] else "I think the loss stands still."

    with one(tmp_path, guessing) as (lab, stub):
        model = door(stub)
        assert asked(lab, model) == Finding(**GOOD)
        asked(lab, model, "analysis/2")
        assert [seen.method for seen in stub.requests] == ["json_schema", "function_calling", "json_mode", "json_mode"]
        outcomes = [call.outcome for call in lab.ledger.calls()]
        assert outcomes == ["the answer holds no JSON object"] * 2 + ["", ""], "they were answers: they are paid"


@pytest.mark.parametrize(
    ("faulty", "quoted"),
    [
        ({**GOOD, "share": 7}, "share: Value error, a share is at most 1"),
        (Fault("truncated"), "cut at its longest, 4096 tokens"),
    ],
    ids=["against a bound", "truncated"],
)
def test_a_faulty_answer_goes_back_with_what_is_wrong(tmp_path: Path, faulty: Any, quoted: str) -> None:
    with one(tmp_path, taking(faulty)) as (lab, stub):
        assert asked(lab, door(stub)) == Finding(**GOOD)
        first, second = stub.requests
        assert first.method == second.method == "json_schema"
        assert [turn["role"] for turn in second.body["messages"]] == ["system", "user", "assistant", "user"]
        assert quoted in second.body["messages"][-1]["content"]
        calls = lab.ledger.calls()
        assert quoted in calls[0].outcome and calls[0].answer is None and calls[1].outcome == ""
        assert {call.prompt_hash for call in calls} == {PROMPT.digest}


@pytest.mark.parametrize("json_schema", ["yes", "rejected"])
def test_halves_of_characters_harm_nobody(tmp_path: Path, json_schema: str) -> None:
    half = {**GOOD, "value": "half \ud800"}
    with one(tmp_path, taking({**half, "share": 7}, half), json_schema=json_schema) as (lab, stub):
        found = asked(lab, door(stub))
        assert found.value == "half ?" and asked(lab, door(stub)) == found, "also as it was recorded"
        assert lab.ledger.call_totals().reserved_tokens == 0


def test_what_stays_faulty_is_given_up_after_two_repairs(tmp_path: Path) -> None:
    with one(tmp_path, taking(then={**GOOD, "share": 7})) as (lab, stub):
        with pytest.raises(ModelError, match=r"scripted at 127.*: share: .*at most 1"):
            asked(lab, door(stub))
        assert len(stub.requests) == 3
        assert told(lab, "fallback")[0].startswith("analysis: by the rules; no language model answered")


@pytest.mark.parametrize("fault", ["empty", "garbage", "no choices"])
def test_nothing_is_a_failure(tmp_path: Path, fault: Any) -> None:
    with one(tmp_path, taking(then=Fault(fault))) as (lab, stub):
        with pytest.raises(ModelError):
            asked(lab, door(stub))
        assert all(call.outcome and call.answer is None for call in lab.ledger.calls())
        assert 2 <= len(stub.requests) <= 6


@pytest.mark.parametrize("fault", ["refusal", "filtered"])
def test_a_refusal_is_not_argued_with(tmp_path: Path, fault: Any) -> None:
    with one(tmp_path, taking(Fault(fault, message="I cannot help with that."))) as (lab, stub):
        with ScriptedModel(taking(), model="second") as second:
            assert asked(lab, door(stub, second)) == Finding(**GOOD)
        assert len(stub.requests) == 1 and lab.ledger.calls()[0].outcome.startswith("refused: ")


BUSY = Fault("status", 429, "slow down", {"Retry-After": "1"})


@pytest.mark.parametrize(
    "passing",
    [
        [Fault("status", 500)],
        [Fault("status", 503), Fault("status", 502)],
        [Fault("close")],
        [Fault("status", 429, headers={"retry-after-ms": "20"})],
        [Fault("error body", 502, "provider returned an error")],
    ],
    ids=["500", "503 502", "cut", "429", "200 with an error"],
)
def test_a_passing_fault_is_waited_out_each_try_a_call(tmp_path: Path, passing: list[Fault]) -> None:
    with one(tmp_path, taking(*passing)) as (lab, stub):
        assert asked(lab, door(stub)) == Finding(**GOOD)
        assert {seen.method for seen in stub.requests} == {"json_schema"}
        *before, last = lab.ledger.calls()
        assert len(before) == len(passing) and last.state is CallState.SETTLED
        expected = CallState.LOST if passing[0].kind == "close" else CallState.RELEASED
        assert {call.state for call in before} == {expected}
        assert lab.ledger.call_totals().reserved_tokens == 0


def test_a_short_pause_that_is_asked_for_is_made_and_a_long_one_is_not_waited_for(tmp_path: Path) -> None:
    waits: list[float] = []
    with one(tmp_path, taking(BUSY, Fault("status", 429, headers={"Retry-After": "90"}))) as (lab, stub):
        clock = Clock()
        with ScriptedModel(taking(), model="second") as second:
            model = door(stub, second, clock=clock)
            assert asked(lab, model) == Finding(**GOOD)
            assert (len(stub.requests), len(second.requests)) == (2, 1)
            waits.append(model.servers.rest_seconds(model.endpoints[0]))
            assert waits == [90.0], "it is left alone for as long as it asked"
            clock.seconds = 91
            asked(lab, model, "analysis/2")
            assert (len(stub.requests), len(second.requests)) == (3, 1)


def test_a_server_that_hangs_is_asked_twice_and_counted_at_its_most(tmp_path: Path) -> None:
    with one(tmp_path, taking(then=Fault("hang"))) as (lab, stub):
        with pytest.raises(ModelError, match="timed out"):
            asked(lab, door(stub, timeout="0.2s"))
        assert len(stub.requests) == 2
        assert [call.state for call in lab.ledger.calls()] == [CallState.LOST] * 2
        assert lab.ledger.call_totals().tokens == sum(call.tokens for call in lab.ledger.calls()) > 2 * 4096


def test_a_dead_endpoint_costs_one_look_and_then_nothing_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    with one(tmp_path, taking()) as (lab, alive):
        with ScriptedModel(taking(), model="dead") as dead:
            pass
        model = door(dead, alive, clock=clock)
        for number in range(5):
            asked(lab, model, f"analysis/{number}")
        dead_calls = [call for call in lab.ledger.calls() if call.model == "dead"]
        assert [call.state for call in dead_calls] == [CallState.RELEASED] * QUICK.attempts, "never sent: free"
        assert len(told(lab, "model")) == 1 and "refused" in told(lab, "model")[0].lower()
        rests = []
        for number in range(8):
            rests.append(model.servers.rest_seconds(model.endpoints[0]))
            clock.seconds += rests[-1]
            asked(lab, model, f"analysis/again/{number}")
        assert rests[:3] == [FIRST_REST_SECONDS, 2 * FIRST_REST_SECONDS, 4 * FIRST_REST_SECONDS]
        assert rests[-1] == LONGEST_REST_SECONDS
        after = [call for call in lab.ledger.calls() if call.model == "dead"]
        assert len(after) == len(dead_calls) + 8, "one try each time"
        assert len(told(lab, "model")) == 1, "told once"
        with dead:
            clock.seconds += LONGEST_REST_SECONDS
            assert model.structured(lab, Finding, PROMPT, purpose="analysis", key="back").model == "dead"
            assert model.servers.rest_seconds(model.endpoints[0]) == 0


@pytest.mark.parametrize(
    ("key", "name", "mend"),
    [
        ("wrong-key-0123", "scripted", "401 Incorrect API key provided. (correct the key in its variable"),
        ("right-key-0123", "typo", "404 The model `typo` does not exist. (correct `model` or `base_url`"),
    ],
)
def test_what_only_a_person_can_mend_is_told_once_and_the_next_one_asked(
    tmp_path: Path, key: str, name: str, mend: str
) -> None:
    with one(tmp_path, taking(), key="right-key-0123") as (lab, stub):
        with ScriptedModel(taking(), model="second") as second:
            model = door(stub, second, key=key)
            model.endpoints = [Endpoint(model=name, base_url=stub.base_url), endpoint(second)]
            for number in range(3):
                asked(lab, model, f"analysis/{number}")
            assert (len(stub.requests), len(second.requests)) == (1, 3)
        (text,) = told(lab, "model")
        assert mend in text and key not in text
        assert lab.ledger.calls()[0].state is CallState.RELEASED


def test_an_address_where_something_else_answers_is_told_and_costs_nothing(tmp_path: Path) -> None:
    with one(tmp_path, taking(then=Fault("page"))) as (lab, stub):
        with pytest.raises(ModelError, match="another page"):
            asked(lab, door(stub))
        assert len(stub.requests) == 1 and lab.ledger.call_totals().tokens == 0
        assert "correct `model` or `base_url`" in told(lab, "model")[0]


def test_a_prompt_that_is_too_long_for_one_is_given_to_the_next(tmp_path: Path) -> None:
    fault = Fault("status", 400, "This model's maximum context length is 4096 tokens.", code="context_length_exceeded")
    with one(tmp_path, taking(fault)) as (lab, stub):
        with ScriptedModel(taking(), model="second") as second:
            model = door(stub, second)
            asked(lab, model)
        assert [seen.method for seen in stub.requests] == ["json_schema"], "no other way to ask makes it shorter"
        asked(lab, model, "analysis/2")
        assert len(stub.requests) == 2, "the next prompt may fit"


def test_the_longest_answer_is_called_as_the_server_wants_it(tmp_path: Path) -> None:
    with one(tmp_path, taking(), newer_limit=True) as (lab, stub):
        model = door(stub)
        asked(lab, model)
        asked(lab, model, "analysis/2")
        limits = [sorted({"max_tokens", "max_completion_tokens"} & seen.body.keys()) for seen in stub.requests]
        assert limits == [["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"]]


def test_asked_again_after_a_crash_the_recorded_answer_is_given(tmp_path: Path) -> None:
    with one(tmp_path, taking(GOOD, then=GOOD | {"value": "something else"})) as (lab, stub):
        first = asked(lab, door(stub))
        # Another process; the server is not even there.
        assert asked(lab, door(stub)) == first
        assert len(stub.requests) == 1
        other = Prompt("analysis", 3, PROMPT.system, "And now?")
        assert asked(lab, door(stub), prompt=other).value == "something else"
        assert asked(lab, door(stub), key="analysis/2").value == "something else"


DYING = """
import sys
from pathlib import Path
from tests.agents.lab import opened
from tests.agents.test_llm import asked, by_address

with opened(Path(sys.argv[1])) as lab:
    asked(lab, by_address(sys.argv[2]))
"""


def by_address(base_url: str) -> LanguageModel:
    return LanguageModel([Endpoint(model="scripted", base_url=base_url)], {}, pace=QUICK)


def test_killed_while_it_waits_the_next_lab_counts_it_and_asks_again(tmp_path: Path) -> None:
    came = threading.Event()

    def answer(_request: dict[str, Any]) -> Any:
        is_first = not came.is_set()
        came.set()
        return Fault("hang") if is_first else GOOD

    file = make_repository(tmp_path / "repo", budget={"runs": 9, "llm_tokens": 100_000})
    with ScriptedModel(answer) as stub:
        child = subprocess.Popen([sys.executable, "-c", DYING, str(file), stub.base_url], cwd=Path(__file__).parents[2])
        assert came.wait(60)
        child.kill()
        assert child.wait() == -signal.SIGKILL
        with opened(file) as lab:
            (lost,) = settle_calls_of_the_dead(lab)
            assert asked(lab, by_address(stub.base_url)) == Finding(**GOOD)
            assert asked(lab, by_address(stub.base_url)) == Finding(**GOOD)
            assert [call.state for call in lab.ledger.calls()] == [CallState.LOST, CallState.SETTLED]
            assert lost.tokens > 4096 and len(stub.requests) == 2


def test_a_recorded_answer_that_is_none_any_more_is_asked_for_anew(tmp_path: Path) -> None:
    class Wider(Finding):
        more: int

    with one(tmp_path, taking(GOOD, GOOD | {"more": 1})) as (lab, stub):
        asked(lab, door(stub))
        answer = door(stub).structured(lab, Wider, PROMPT, purpose="analysis", key="analysis/1")
        assert answer.value.more == 1 and len(stub.requests) == 2


def test_secrets_go_neither_out_nor_into_the_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, mark = "hunter2-hunter2-hunter2", "[redacted:EXAMPLE_TOKEN]"
    monkeypatch.setenv("EXAMPLE_TOKEN", secret)
    with new_lab(tmp_path) as lab, ScriptedModel(taking(GOOD | {"value": f"it is {secret}"})) as stub:
        prompt = Prompt("analysis", 3, "Read.", f"token = {secret} \ud800 end")
        answer = asked(lab, door(stub, key="key-0123456789"), prompt=prompt)
        assert answer.value == f"it is {mark}"
        assert secret not in stub.requests[0].text and mark in stub.requests[0].text
        assert stub.requests[0].authorization == "Bearer key-0123456789"
        held = lab.paths.ledger.read_bytes() + lab.paths.ledger.with_name("ledger.sqlite-wal").read_bytes()
        assert secret.encode() not in held and b"key-0123456789" not in held
        assert asked(lab, door(stub), prompt=prompt) == answer and len(stub.requests) == 1


def test_the_key_of_another_program_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "key-of-another-program")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with one(tmp_path, taking()) as (lab, stub):
        asked(lab, door(stub))
        assert stub.requests[0].authorization == "Bearer no-key-needed"


def test_a_budget_of_tokens_fails_closed(tmp_path: Path) -> None:
    with new_lab(tmp_path, budget={"runs": 9, "llm_tokens": 6_000}) as lab, ScriptedModel(taking()) as stub:
        model = door(stub, max_output_tokens=500)
        asked(lab, model)
        with pytest.raises(BudgetError, match=r"llm_tokens"):
            for number in range(100):
                asked(lab, model, f"analysis/{number + 2}", Prompt("analysis", 3, "Read.", "x" * 1500))
        sent = len(stub.requests)
        assert lab.ledger.call_totals().tokens <= 6_000 and 1 < sent < 20
        assert told(lab, "fallback")[0].startswith("analysis: by the rules; ")


def test_a_model_without_a_price_is_passed_over_where_money_is_counted(tmp_path: Path) -> None:
    budget = {"runs": 9, "cost_usd": 1.0}
    prices: dict[str, Any] = {"models": {"second": {}}, "run_usd": 0.01}
    with new_lab(tmp_path, budget=budget, prices=prices) as lab, ScriptedModel(taking()) as stub:
        with ScriptedModel(taking(), model="second") as second:
            assert door(stub, second).structured(lab, Finding, PROMPT, purpose="a", key="a/1").model == "second"
        assert stub.requests == []
        with pytest.raises(BudgetError, match="has no price"):
            asked(lab, door(stub))


def test_a_server_that_does_not_tell_its_tokens_is_booked_at_their_most(tmp_path: Path) -> None:
    with one(tmp_path, taking(), tells_usage=False) as (lab, stub):
        asked(lab, door(stub, max_output_tokens=500))
        (call,) = lab.ledger.calls()
        assert (call.input_tokens, call.output_tokens) == (call.reserved_input_tokens, 500)


def test_threads_may_ask_at_once(tmp_path: Path) -> None:
    with one(tmp_path, taking(), json_schema="rejected") as (lab, stub):
        model = door(stub)
        with ThreadPoolExecutor(6) as pool:
            answers = list(pool.map(lambda number: asked(lab, model, f"idea/{number}"), range(18)))
        assert answers == [Finding(**GOOD)] * 18
        good = [call for call in lab.ledger.calls() if call.outcome == ""]
        assert sorted(call.key for call in good) == sorted(f"idea/{number}" for number in range(18))
        assert lab.ledger.call_totals().reserved_tokens == 0


def test_a_lab_that_is_to_stop_does_not_wait_for_a_busy_server(tmp_path: Path) -> None:
    with one(tmp_path, taking(then=BUSY)) as (lab, stub), ScriptedModel(taking(GOOD)) as other:
        lab.stop_requested = lambda: len(stub.requests) > 0
        # It says nothing of the models: nobody may go on by the rules for it.
        with pytest.raises(StoppedError):
            asked(lab, door(stub, other))
        assert (len(stub.requests), other.requests) == (1, [])
        assert not any(event.kind == FALLBACK for event in lab.ledger.events())


def test_a_lab_that_has_ended_asks_nothing_and_tells_nothing_more(tmp_path: Path) -> None:
    with one(tmp_path, taking(GOOD)) as (lab, stub):
        lab.aside.close()
        before = lab.ledger.events()
        with pytest.raises(StoppedError):
            asked(lab, door(stub))
        assert (stub.requests, lab.ledger.events()) == ([], before)


def test_the_reviewer_is_another_one_than_the_proposer_where_there_are_two() -> None:
    endpoints = [Endpoint(model="a", base_url="http://localhost:1/v1"), Endpoint(model="b")]
    models = models_of(BrainSettings(kind="llm", endpoints=endpoints), {"NIGHTLAB_BASE_URL": "http://localhost:2/v1"})
    assert models is not None
    assert [one.model for one in models.proposer.endpoints] == ["a", "b"]
    assert [one.model for one in models.reviewer.endpoints] == ["b", "a"]
    assert models.proposer.endpoints[1].base_url == "http://localhost:2/v1"
    assert models.proposer.servers is models.reviewer.servers
    named = models_of(BrainSettings(kind="llm", endpoints=endpoints, reviewers=[Endpoint(model="c")]), {})
    assert named is not None and [one.model for one in named.reviewer.endpoints] == ["c"]
    assert models_of(BrainSettings(kind="llm"), {}) is None
    assert models_of(BrainSettings(), {"NIGHTLAB_MODEL": "m"}) is None
    by_variables = models_of(BrainSettings(kind="llm"), {"NIGHTLAB_MODEL": "m"})
    assert by_variables is not None and by_variables.proposer.endpoints[0].base_url == "https://api.openai.com/v1"


def test_the_report_says_what_the_models_did_and_when_the_rules_took_over(tmp_path: Path) -> None:
    script: Callable[[dict[str, Any]], Any] = taking(GOOD, {**GOOD, "share": 7}, GOOD)
    with one(tmp_path, script) as (lab, stub):
        assert load_report(lab.ledger, lab.study, lab.paths).models is None
        model = door(stub)
        asked(lab, model)
        asked(lab, model, "analysis/2")
        report = load_report(lab.ledger, lab.study, lab.paths)
        assert report.models is not None
        tokens = lab.ledger.call_totals().tokens
        assert report.models.sentence == f"3 calls, {tokens:,} tokens; 1 answer could not be used."
        stub.__exit__(None, None, None)
        with pytest.raises(ModelError):
            asked(lab, model, "analysis/3")
        report = load_report(lab.ledger, lab.study, lab.paths)
        assert report.models is not None
        assert re.search(
            r"From \d\d:\d\d UTC on the rules decided, because no language.*refused", report.models.sentence
        )
    with ScriptedModel(taking(), model="gone") as gone:
        pass
    with new_lab(tmp_path / "other") as lab:
        for number in range(3):
            with pytest.raises(ModelError):
                model = door(gone)
                model.structured(lab, Finding, PROMPT, purpose="explain", key=f"explain/{number}")
        report = load_report(lab.ledger, lab.study, lab.paths)
        assert report.models is not None
        assert "In all of it the rules decided, because no language model answered: gone at" in report.models.sentence
        (row,) = report.models.rows
        assert (row.purpose, row.answers, row.unanswered, row.by_rules) == ("explain", "0", "9", "3")
        assert not [text for text in report.events if "by the rules" in text]
        assert "## Language models" in render_markdown(report)
