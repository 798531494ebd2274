"""Whether the models can be asked: seen before the night, told in one line each; tried by `nightlab check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import Fault, ScriptedModel
from nightlab.agents.model_setup import model_faults, open_models, try_models
from nightlab.agents.secrecy import redactor_of
from nightlab.configs.loading import load_study
from nightlab.configs.study import Study
from nightlab.errors import ConfigError
from tests.agents.lab import new_lab, opened
from tests.face.calling import call
from tests.task import make_repository, study_data

LOCAL = {"model": "m", "base_url": "http://localhost:8000/v1"}
REMOTE = {"model": "m", "base_url": "https://api.example.com/v1", "api_key_env": "EXAMPLE_LLM"}


def study(**changes: Any) -> Study:
    return Study.model_validate(study_data(**changes))


def faults(environment: dict[str, str] | None = None, **changes: Any) -> list[str]:
    return [str(fault) for fault in model_faults(study(**changes), Path("study.yaml"), environment or {})]


def llm(*endpoints: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "llm", "endpoints": list(endpoints), **more}


def test_a_study_that_can_ask_has_no_faults() -> None:
    assert faults() == []
    assert faults(brain=llm(LOCAL)) == [], "a server of one's own needs no key"
    assert faults({"EXAMPLE_LLM": "k-0123456789"}, brain=llm(REMOTE)) == []
    assert faults({"NIGHTLAB_MODEL": "m", "NIGHTLAB_BASE_URL": "http://10.1.2.3/v1"}, brain=llm()) == []
    money = {"runs": 9, "cost_usd": 1.0}
    assert faults(brain=llm(LOCAL), budget=money, prices={"models": {"m": {}}}) == []


@pytest.mark.parametrize(
    ("environment", "changes", "key", "says"),
    [
        ({}, {"brain": llm()}, "brain.endpoints", "names no language model (name one there, or set NIGHTLAB_MODEL"),
        (
            {},
            {"brain": llm(REMOTE)},
            "brain.endpoints[0].api_key_env",
            "EXAMPLE_LLM is not set, and api.example.com/v1",
        ),
        ({"NIGHTLAB_MODEL": "m"}, {"brain": llm()}, "brain.endpoints[0].api_key_env", "NIGHTLAB_API_KEY is not set"),
        ({}, {"brain": llm(LOCAL, reviewers=[REMOTE])}, "brain.reviewers[0].api_key_env", "EXAMPLE_LLM is not set"),
        (
            {"NIGHTLAB_MODEL": "m", "NIGHTLAB_BASE_URL": "localhost:8000"},
            {"brain": llm()},
            "brain.endpoints",
            "NIGHTLAB_BASE_URL is no http address",
        ),
        (
            {},
            {"brain": llm(LOCAL), "budget": {"runs": 9, "cost_usd": 1.0}, "prices": {"run_usd": 0.01}},
            "prices.models",
            "holds no price of m, and with budget.cost_usd it would never be asked",
        ),
        (
            {},
            {"brain": llm(LOCAL), "budget": {"runs": 9, "llm_tokens": 4000}},
            "brain.endpoints[0].max_output_tokens",
            "one answer may take 4,096 tokens, budget.llm_tokens is 4,000",
        ),
        (
            {},
            {"brain": llm(LOCAL), "backend": {"slots": 2, "pass_env": ["HOME", "NIGHTLAB_API_KEY"]}},
            "backend.pass_env[1]",
            "would give the key of the language model to every job",
        ),
    ],
)
def test_what_keeps_a_study_from_asking_is_told(
    environment: dict[str, str], changes: dict[str, Any], key: str, says: str
) -> None:
    told = [line for line in faults(environment, **changes) if says in line]
    assert told and told[0].startswith(f"study.yaml: {key}: ") and "\n" not in told[0]


def test_without_the_library_the_mend_is_the_extra_and_the_rules_decide(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What an absent package looks like.
    monkeypatch.setattr("nightlab.agents.model_setup.find_spec", lambda _name: None)
    told = "brain.kind: `llm` needs langchain-openai (pip install 'nightlab[llm]')"
    assert faults(brain=llm(LOCAL)) == [f"study.yaml: {told}"]
    with new_lab(tmp_path, brain=llm(LOCAL)) as lab:
        assert lab.models is None and lab.ledger.events()[-1].text == f"language models: {told}"


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ({"base_url": "localhost:8000/v1"}, "brain.endpoints[0].base_url: 'localhost:8000/v1' is no http address"),
        ({"base_url": "https://me:secret@host/v1"}, "holds more than an address"),
        ({"base_url": "http://localhost:8000/v1/chat/completions"}, "end it before /chat/completions"),
        ({"api_key_env": "sk-0123456789"}, "is not the name of a variable"),
    ],
)
def test_an_endpoint_that_cannot_be_meant_is_refused_on_loading(
    tmp_path: Path, endpoint: dict[str, str], says: str
) -> None:
    file = make_repository(tmp_path / "repo", brain=llm({"model": "m"} | endpoint))
    with pytest.raises(ConfigError) as refused:
        load_study(file)
    assert says in str(refused.value)


def test_the_key_is_a_secret_whatever_its_variable_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_LLM", "abcdef-123456")
    assert redactor_of(study(brain=llm(REMOTE))).redact("with abcdef-123456 in it") != "with abcdef-123456 in it"
    monkeypatch.setenv("EXAMPLE_LLM", "ollama")
    text = "served by ollama"
    assert redactor_of(study(brain=llm(REMOTE))).redact(text) == text, "a placeholder is none"


def test_a_lab_opens_with_its_models_and_says_what_is_in_their_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NIGHTLAB_MODEL", raising=False)
    with new_lab(tmp_path, brain=llm(LOCAL)) as lab:
        assert lab.models is not None and lab.models.proposer.endpoints[0].model == "m"
    with new_lab(tmp_path / "none", brain=llm()) as lab:
        assert lab.models is None
        assert "names no language model" in lab.ledger.events()[-1].text
    with new_lab(tmp_path / "rules") as lab:
        assert (
            lab.models is None and open_models(lab.study, lab.ledger, lab.study_file, {"NIGHTLAB_MODEL": "m"}) is None
        )


def test_each_endpoint_is_tried_once_and_told_in_a_line() -> None:
    def answer(_: dict[str, Any]) -> Any:
        return {"ready": "yes"}

    with (
        ScriptedModel(answer, model="full") as full,
        ScriptedModel(answer, model="old", json_schema="rejected", newer_limit=True) as old,
        ScriptedModel(lambda _: Fault("status", 503, "loading"), model="busy") as busy,
        ScriptedModel(lambda _: "hello", model="chatty") as chatty,
    ):
        servers = [full, old, busy, chatty]
        endpoints = [{"model": one.model, "base_url": one.base_url} for one in servers]
        asking = study(brain=llm(*endpoints), prices={"models": {"full": {"input_million_usd": 1000}}})
        lines = [one.line(asking) for one in try_models(asking, {})]
        assert "JSON by json schema" in lines[0] and ", $0.0" in lines[0]
        assert "JSON by function calling" in lines[1] and "without a price" in lines[1]
        assert lines[2].startswith("note: model busy at 127.0.0.1") and "503 loading" in lines[2]
        assert "note: model chatty" in lines[3] and "holds no JSON object" in lines[3]
        assert [len(one.requests) for one in servers] == [1, 3, 1, 4]


def test_check_tries_the_endpoints_and_a_dead_one_is_a_note(tmp_path: Path) -> None:
    with ScriptedModel(lambda _: {"ready": "yes"}) as stub, ScriptedModel(lambda _: {}, model="dead") as dead:
        pass
    endpoints = [{"model": one.model, "base_url": one.base_url} for one in (dead, stub)]
    file = make_repository(tmp_path / "repo", brain=llm(*endpoints))
    with stub:
        done = call(file.parent, "check", "study.yaml")
        assert done.status == 0, done.err
        assert "note: model dead at 127.0.0.1" in done.out and "model scripted at 127.0.0.1" in done.out
        assert "no language model answers" not in done.out
    done = call(file.parent, "check", "study.yaml")
    assert done.status == 0 and "note: no language model answers now" in done.out
    with opened(file) as lab:
        assert lab.ledger.calls() == []
