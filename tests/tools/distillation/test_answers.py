"""A teacher's answers as training data, over real HTTP against a scripted server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("openai")

from bench.scripted_model import Fault, ScriptedModel
from nightlab.errors import ConfigError
from nightlab.tools.chat_pace import Pace
from nightlab.tools.distillation.answers import AnswerReport, distill_answers, journal_of
from nightlab.tools.distillation.filters import Filters
from nightlab.tools.distillation.journal import Journal
from nightlab.tools.distillation.prompts import Prompt
from nightlab.tools.distillation.teacher import Teacher

FAST = Pace(attempts=3, first_wait_seconds=0.01, longest_wait_seconds=5.0)


def question_of(body: dict[str, Any]) -> str:
    return str(body["messages"][-1]["content"])


def echo(body: dict[str, Any]) -> str:
    return f"The answer to {question_of(body)} is clear."


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    words = ["apple", "bridge", "candle", "dragon", "engine", "forest"]
    file.write_text("".join(json.dumps({"instruction": f"Define {word}."}) + "\n" for word in words))
    return file


def distilled(prompts: Path, server: ScriptedModel, **options: Any) -> AnswerReport:
    settings: dict[str, Any] = {"max_tokens": 64, "timeout_seconds": 5.0}
    settings |= {name: options.pop(name) for name in list(options) if name in ("key", "temperature", "body", "seed")}
    teacher = Teacher(server.model, server.base_url, **settings)
    return distill_answers(prompts, prompts.with_name("out.jsonl"), teacher, pace=FAST, **options)


def rows(prompts: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in prompts.with_name("out.jsonl").read_text(encoding="utf-8").splitlines()]


def test_every_prompt_is_asked_once_and_written_in_its_order(prompts: Path) -> None:
    with ScriptedModel(echo) as server:
        report = distilled(prompts, server, temperature=0.5, body={"top_k": 3})
        assert (report.answers, report.rows, report.missing, report.asked.answered) == (6, 6, 0, 6)
        again = distilled(prompts, server, temperature=0.5, body={"top_k": 3})
    assert (again.answers, again.asked.answered, len(server.requests)) == (6, 0, 6)
    assert rows(prompts)[1] == {
        "instruction": "Define bridge.",
        "input": "",
        "output": "The answer to Define bridge. is clear.",
    }
    sent = server.requests[0].body
    assert (sent["temperature"], sent["top_k"], sent["max_tokens"]) == (0.5, 3, 64)
    assert again.spent_tokens == report.spent_tokens > 0


def test_messages_keep_system_and_history(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    talk = [("system", "Be brief."), ("user", "Hello"), ("assistant", "Hi."), ("user", "Who?"), ("assistant", "old")]
    file.write_text(json.dumps({"messages": [{"role": role, "content": text} for role, text in talk]}))
    with ScriptedModel(lambda _: "A teacher.") as server:
        distilled(file, server, form="openai")
        assert [message["content"] for message in rows(file)[0]["messages"]] == [
            "Be brief.",
            "Hello",
            "Hi.",
            "Who?",
            "A teacher.",
        ]
        distilled(file, server)
    assert rows(file) == [
        {
            "instruction": "Who?",
            "input": "",
            "output": "A teacher.",
            "system": "Be brief.",
            "history": [["Hello", "Hi."]],
        }
    ]
    assert len(server.requests) == 1


def test_samples_are_asked_apart_and_the_majority_is_kept(prompts: Path) -> None:
    said: dict[str, Iterator[str]] = {}

    def vary(body: dict[str, Any]) -> str:
        word = question_of(body)
        five = ["Answer: 4", "Answer: 5.", "So, Answer: 5", "answer is odd", "Answer: 5"]
        return next(said.setdefault(word, iter(["x", "y", "z", "u", "v"] if "apple" in word else five)))

    with ScriptedModel(vary) as server:
        filters = Filters(agreement=0.6, agree_on=r"Answer: (\S+)")
        report = distilled(prompts, server, samples=5, seed=7, workers=1, filters=filters)
    assert len(server.requests) == 30
    assert sorted({seen.body["seed"] for seen in server.requests}) == [7, 8, 9, 10, 11]
    assert [row["output"] for row in rows(prompts)] == ["Answer: 5."] * 5
    assert report.dropped == {"disagreeing": 15, "agreeing with one kept": 10}


def test_a_busy_server_is_asked_again_after_the_time_it_names(prompts: Path) -> None:
    told: list[float] = []

    def busy(body: dict[str, Any]) -> str | Fault:
        told.append(time.monotonic())
        if len(told) == 1:
            return Fault("status", 429, "slow down", {"Retry-After": "1"})
        return echo(body)

    with ScriptedModel(busy) as server:
        report = distilled(prompts, server, workers=1)
    assert report.rows == 6 and len(told) == 7
    assert told[1] - told[0] >= 1.0


def test_a_server_that_asks_for_too_long_a_pause_is_left_alone(prompts: Path) -> None:
    with ScriptedModel(lambda _: Fault("status", 429, "come back tomorrow", {"Retry-After": "86400"})) as server:
        report = distilled(prompts, server, workers=1)
    assert (len(server.requests), report.asked.not_asked) == (1, 5)
    assert "come back tomorrow" in report.asked.stopped


def test_a_server_that_never_answers_is_left_alone_and_asked_again_next_time(prompts: Path) -> None:
    with ScriptedModel(lambda _: Fault("status", 503, "overloaded")) as server:
        report = distilled(prompts, server, workers=1)
        assert (report.answers, report.asked.not_asked, report.missing) == (0, 1, 6)
        assert "overloaded" in report.asked.stopped and report.spent_tokens == 0
        assert len(server.requests) == 5 * FAST.attempts
    with ScriptedModel(echo) as server:
        assert distilled(prompts, server).rows == 6


def test_a_wrong_key_ends_it_at_once_and_the_key_is_written_nowhere(prompts: Path, tmp_path: Path) -> None:
    with ScriptedModel(echo, key="sk-right-and-secret") as server:
        report = distilled(prompts, server, key="sk-wrong-but-secret", workers=1)
        assert "Incorrect API key" in report.asked.stopped and len(server.requests) == 1
        assert distilled(prompts, server, key="sk-right-and-secret").rows == 6
    for file in tmp_path.iterdir():
        assert "secret" not in file.read_text()


def test_the_budget_is_reserved_before_asking(prompts: Path) -> None:
    teacher = Teacher("scripted", "", max_tokens=64)
    most = teacher.tokens_at_most(Prompt((("user", "Define bridge."),)))
    with ScriptedModel(echo) as server:
        report = distilled(prompts, server, budget_tokens=most - 10, workers=3)
        assert (report.rows, len(server.requests), report.asked.out_of_budget) == (0, 0, True)
        report = distilled(prompts, server, budget_tokens=most + 60, workers=3)
        assert 1 < report.rows < 6 and report.asked.out_of_budget and report.spent_tokens <= most + 60
        assert report.missing == 6 - report.rows == report.asked.not_asked
        assert distilled(prompts, server, budget_tokens=10_000).rows == 6


def test_a_server_that_tells_no_usage_is_charged_at_its_most(prompts: Path) -> None:
    teacher = Teacher("scripted", "", max_tokens=64)
    most = teacher.tokens_at_most(Prompt((("user", "Define bridge."),)))
    with ScriptedModel(echo, tells_usage=False) as server:
        report = distilled(prompts, server, budget_tokens=2 * most)
    assert report.rows == 2 and report.spent_tokens <= 2 * most


def test_what_may_have_been_worked_on_stays_charged(prompts: Path) -> None:
    answers: Iterator[Fault | str] = iter([Fault("close"), "Fine, here it is."])
    prompts.write_text(json.dumps({"instruction": "Define bridge."}))
    with ScriptedModel(lambda _: next(answers)) as server:
        report = distilled(prompts, server)
    most = Teacher("scripted", "", max_tokens=64).tokens_at_most(Prompt((("user", "Define bridge."),)))
    assert report.rows == 1 and report.spent_tokens > most


def test_a_prompt_the_server_does_not_take_is_not_asked_again(prompts: Path) -> None:
    def picky(body: dict[str, Any]) -> str | Fault:
        if "bridge" in question_of(body):
            return Fault("status", 400, "the prompt is too long for this model's maximum context length")
        return echo(body)

    with ScriptedModel(picky) as server:
        first, second = (distilled(prompts, server, workers=2) for _ in range(2))
    assert len(server.requests) == 6
    assert (first.rows, second.missing) == (5, 0)
    assert next(iter(second.refused_by_server)).startswith("too long")


def test_filters_change_without_asking_again(prompts: Path) -> None:
    faults: dict[str, Fault] = {
        "apple": Fault("truncated"),
        "bridge": Fault("empty"),
        "candle": Fault("refusal", message="no"),
    }

    def some(body: dict[str, Any]) -> str | Fault:
        word = question_of(body).removeprefix("Define ").rstrip(".")
        if word == "dragon":
            return "I'm sorry, but I can't help with that."
        if word == "engine":
            return '<think>\nhm\n</think>\n{"a": 1}'
        return faults.get(word, "A wood.")

    with ScriptedModel(some) as server:
        report = distilled(prompts, server)
        assert [row["output"] for row in rows(prompts)] == ['{"a": 1}', "A wood."]
        assert report.dropped == {"truncated": 1, "empty": 1, "refusal": 2}
        report = distilled(prompts, server, filters=Filters(json=True, thinking="keep"))
        assert [row["output"] for row in rows(prompts)] == ['<think>\nhm\n</think>\n\n{"a": 1}']
        assert report.dropped["not JSON"] == 1
        report = distilled(prompts, server, filters=Filters(shortest=9))
        assert report.rows == 0 and report.dropped["too short"] == 2
    assert len(server.requests) == 6


def test_two_runs_do_not_share_a_journal(prompts: Path) -> None:
    with (
        ScriptedModel(echo) as server,
        Journal(journal_of(prompts.with_name("out.jsonl"))),
        pytest.raises(ConfigError, match="in use by another process"),
    ):
        distilled(prompts, server)


def test_a_file_without_prompts_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"output": "x"}\n')
    with ScriptedModel(echo) as server:
        with pytest.raises(ConfigError, match="holds no prompt; row 1: is no prompt"):
            distilled(file, server)
        with pytest.raises(ConfigError, match="cannot be read"):
            distilled(tmp_path / "none.jsonl", server)


KILLED = """
import sys
from pathlib import Path
from nightlab.tools.distillation.answers import distill_answers
from nightlab.tools.distillation.teacher import Teacher
folder, url = Path(sys.argv[1]), sys.argv[2]
distill_answers(folder / "prompts.jsonl", folder / "out.jsonl", Teacher("scripted", url, max_tokens=64), workers=2)
"""


def test_killed_at_any_moment_no_answer_is_asked_for_twice(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": f"Number {n} times {n * n + 7}?"}) + "\n" for n in range(40)))
    journal = journal_of(tmp_path / "out.jsonl")
    with ScriptedModel(echo) as server:
        for answers in (5, 15, 25):
            job = subprocess.Popen(
                [sys.executable, "-c", KILLED, str(tmp_path), server.base_url], cwd=Path(__file__).parents[3]
            )
            while job.poll() is None and _answers_in(journal) < answers:
                time.sleep(0.002)
            job.send_signal(signal.SIGKILL)
            job.wait()
        known = _answers_in(journal)
        # What a power cut would leave of the last line.
        os.truncate(journal, journal.stat().st_size - 3)
        before = len(server.requests)
        report = distilled(file, server, filters=Filters(near_copies=False))
    assert report.rows == 40
    assert len(server.requests) - before in (40 - known, 40 - known + 1)
    # Two workers a kill may have been waiting for an answer nobody wrote down.
    assert len(server.requests) <= 40 + 3 * 2 + 1


def _answers_in(journal: Path) -> int:
    return journal.read_bytes().count(b'"event": "answer"') if journal.exists() else 0
