"""`nightlab distill` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("openai")

from bench.scripted_model import ScriptedModel
from tests.face.calling import call


def prompts(folder: Path) -> None:
    (folder / "p.txt").write_text("What is a ferry?\nWhy do leaves fall?\nWhy do leaves fall?\n")


def test_answers_are_written_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts(tmp_path)
    monkeypatch.setenv("TEACHER_KEY", "sk-teacher-1234567890")
    with ScriptedModel(lambda body: body["messages"][-1]["content"][::-1], key="sk-teacher-1234567890") as server:
        words: tuple[str, ...] = (
            "distill",
            "answers",
            "--prompts",
            "p.txt",
            "--out",
            "out.jsonl",
            "--model",
            "scripted",
        )
        words += ("--base-url", server.base_url, "--key-env", "TEACHER_KEY", "--format", "openai")
        said = call(tmp_path, *words)
        again = call(tmp_path, *words, "--json")
    assert (said.status, said.err) == (0, "")
    assert said.out.splitlines()[0] == "prompts   2, each 1 time; 1 copy asked once"
    assert "rows      2 in out.jsonl" in said.out
    told = json.loads(again.out)
    assert (told["answers"], told["asked"]["answered"], told["rows"], told["missing"]) == (2, 0, 2, 0)
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert rows[0]["messages"][-1] == {"role": "assistant", "content": "?yrref a si tahW"}
    assert len(server.requests) == 2


def test_what_is_missing_ends_with_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts(tmp_path)
    monkeypatch.setenv("NIGHTLAB_API_KEY", "sk-wrong-1234567890")
    with ScriptedModel(lambda _: "Yes.", key="another") as server:
        words: tuple[str, ...] = (
            "distill",
            "answers",
            "--prompts",
            "p.txt",
            "--out",
            "out.jsonl",
            "--model",
            "scripted",
        )
        words += ("--base-url", server.base_url, "--workers", "1")
        said = call(tmp_path, *words)
        assert said.status == 2 and "2 answers are missing: 401 Incorrect API key" in said.err
        said = call(tmp_path, *words, "--budget-tokens", "9")
    assert said.status == 2 and "the budget of 9 tokens does not bear another question: 2 are missing" in said.err
    assert (tmp_path / "out.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--base-url", "nowhere"), "--base-url: is no http address"),
        (("--body", "[1]"), "--body: is no JSON object"),
        (("--format", "xml"), "--format is alpaca or openai"),
        (("--agree-on", "x", "--agreement", "0.5"), "agree_on: has no group"),
    ],
)
def test_wrong_options_are_named(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    prompts(tmp_path)
    said = call(tmp_path, "distill", "answers", "--prompts", "p.txt", "--out", "o", "--model", "m", *words)
    assert said.status == 2 and told in said.err
    assert not (tmp_path / "o").exists()


def test_where_nothing_can_be_written_nothing_is_asked(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_text("a question\n")
    words = ("distill", "answers", "--prompts", "p.txt", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--out")
    said = call(tmp_path, *words, "p.txt/answers.jsonl")
    assert said.status == 2 and said.err.startswith("nightlab: p.txt/answers.jsonl: cannot be written: p.txt is no ")
    said = call(tmp_path, *words, ".")
    assert said.status == 2 and "is a folder" in said.err
    cache = call(tmp_path, "distill", "logits", "--teacher", "t", "--examples", "p.txt", "--out", "p.txt")
    assert cache.status == 2 and "p.txt is no folder" in cache.err
    assert [file.name for file in tmp_path.iterdir()] == ["p.txt"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--learn", "some"), "--learn is last or all"),
        (("--template-args", "[1]"), "--template-args: is no JSON object"),
        (("--chat-template", "gone.jinja"), "gone.jinja: cannot be read: No such file"),
        (("--dtype", "int8"), "--dtype is auto, bfloat16 or float32"),
    ],
)
def test_wrong_options_of_logits_are_named_before_anything_is_loaded(
    tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    said = call(tmp_path, "distill", "logits", "--teacher", "t", "--examples", "e.jsonl", "--out", "c", *words)
    assert said.status == 2 and told in said.err
    assert not (tmp_path / "c").exists()
