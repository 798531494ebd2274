"""Load on a real HTTP endpoint: what is counted, and what each figure rests on. Nothing here measures time."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import Fault, ScriptedModel
from nightlab.errors import StressError
from nightlab.tools.stress.figures import LevelTally
from nightlab.tools.stress.load import LoadPlan, LoadTest, read_prompts
from tests.face.calling import call


def loaded(server: ScriptedModel, **changes: Any) -> dict[str, Any]:
    plan: dict[str, Any] = {"base_url": server.base_url, "model": server.model, "concurrency": (1, 3), "requests": 8}
    test = LoadTest(LoadPlan(**(plan | changes)))
    asyncio.run(test.run())
    return test.result


def test_every_level_counts_its_own_requests_and_leaves_the_warm_up_out() -> None:
    with ScriptedModel(lambda _: "five words in one answer") as server:
        result = loaded(server)
    assert [(level["concurrency"], level["requests"]) for level in result["levels"]] == [(1, 8), (3, 8)]
    assert result["hardest"] == result["by_concurrency"]["3"] == result["levels"][-1]
    level = result["hardest"]
    assert (level["answered"], level["errors"], level["warm_up"]) == (8, 0, 3)
    latency = level["latency_ms"]
    assert latency["count"] == 8 and 0 < latency["p50"] <= latency["p90"] <= latency["p99"] <= latency["max"]
    assert level["first_token_ms"] is None and level["tokens_from"] == "usage" and level["tokens"] > 0
    assert len(server.requests) == 1 + 8 + 3 + 8


def test_no_more_requests_are_open_than_the_level_says() -> None:
    open_now, most, lock, all_in = 0, 0, threading.Lock(), threading.Barrier(3, timeout=30)

    def answer(_: dict[str, Any]) -> str:
        nonlocal open_now, most
        with lock:
            open_now += 1
            most = max(most, open_now)
        # Three at a time get on together, or nobody does.
        all_in.wait()
        with lock:
            open_now -= 1
        return "yes"

    with ScriptedModel(answer) as server:
        result = loaded(server, concurrency=(3,), requests=9)
    assert result["hardest"]["answered"] == 9 and most == 3


@pytest.mark.parametrize(("tells_usage", "tokens_from"), [(True, "usage"), (False, "counted")])
def test_a_stream_tells_its_first_token(tells_usage: bool, tokens_from: str) -> None:
    with ScriptedModel(lambda _: "one two three", tells_usage=tells_usage) as server:
        level = loaded(server, concurrency=(2,), requests=4, stream=True)["hardest"]
    assert level["first_token_ms"]["count"] == 4
    assert level["first_token_ms"]["max"] <= level["latency_ms"]["max"]
    assert level["tokens_from"] == tokens_from
    assert tells_usage or level["tokens"] == 4 * 3


def test_errors_are_counted_by_kind_and_are_no_latency() -> None:
    faults = iter([Fault("status", status=429)] * 2 + [Fault("close")] + [Fault("page")] * 2)
    warm_up = threading.Event()

    def answer(_: dict[str, Any]) -> str | Fault:
        if not warm_up.is_set():
            warm_up.set()
            return "warm"
        return next(faults, "good")

    with ScriptedModel(answer) as server:
        level = loaded(server, concurrency=(1,), requests=8)["hardest"]
    assert level["error_kinds"] == {"status 429": 2, "RemoteProtocolError": 1, "no chat completion": 2}
    assert (level["answered"], level["errors"], level["error_share"]) == (3, 5, 5 / 8)
    assert level["latency_ms"]["count"] == 3


def test_percentiles_are_those_of_numpy_and_kinds_of_errors_are_bounded() -> None:
    tally = LevelTally(1, seconds=2.0)
    for value in range(101):
        tally.answered(float(value), 2, told=True, first_token_ms=None)
    for number in range(50):
        tally.failed(f"status {number}")
    figures = tally.figures
    assert [figures["latency_ms"][name] for name in ("p50", "p90", "p99", "count")] == [50.0, 90.0, 99.0, 101]
    assert figures["tokens_per_second"] == 101.0
    assert len(figures["error_kinds"]) == 21 and figures["error_kinds"]["others"] == 30


def test_the_command_writes_what_it_shows(tmp_path: Path) -> None:
    prompts = '{"prompt": "How tall?"}\n{"messages": [{"role": "user", "content": "Go"}]}\n'
    (tmp_path / "prompts.jsonl").write_text(prompts)
    with ScriptedModel(lambda _: "so tall") as server:
        words = ["--base-url", server.base_url, "--model", "scripted", "--concurrency", "2", "--requests", "4"]
        done = call(tmp_path, "load", *words, "--prompts", "prompts.jsonl", "--json", "load.json")
        asked = {seen.text for seen in server.requests}
    assert done.status == 0 and "p99 ms" in done.out
    assert asked == {"How tall?", "Go"}
    assert json.loads((tmp_path / "load.json").read_text())["hardest"]["answered"] == 4


def test_nobody_there_is_a_failure_and_not_a_figure(tmp_path: Path) -> None:
    with ScriptedModel(lambda _: "") as server:
        gone = server.base_url
    done = call(tmp_path, "load", "--base-url", gone, "--model", "m", "--concurrency", "1", "--requests", "2")
    assert done.status == 1 and "ConnectError" in done.out


def test_interrupted_it_tells_what_there_is(tmp_path: Path) -> None:
    hung = threading.Event()

    def answer(request: dict[str, Any]) -> str | Fault:
        if "(3)" in request["messages"][0]["content"]:
            hung.set()
            return Fault("hang")
        return "yes"

    with ScriptedModel(answer) as server:
        words = ["--base-url", server.base_url, "--model", "scripted", "--concurrency", "1", "--requests", "9"]
        command = [sys.executable, "-m", "nightlab", "load", *words, "--json", str(tmp_path / "load.json")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"})
        assert hung.wait(60)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "Interrupted" in out
    result = json.loads((tmp_path / "load.json").read_text())
    assert result["interrupted"] and result["hardest"]["answered"] == 3


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "holds no prompt"),
        ('{"a": 1}\n', ":1: has no field"),
        ("{oops\n", ":1: is no JSON"),
        ('{"a":' * 50_000, ":1: is no JSON"),
    ],
    ids=["nothing", "no field", "no JSON", "too deep"],
)
def test_prompts_of_no_use_are_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "prompts"
    file.write_text(text)
    with pytest.raises(StressError, match=told):
        read_prompts(file)


def test_levels_of_no_use_are_told(tmp_path: Path) -> None:
    done = call(tmp_path, "load", "--base-url", "http://x", "--model", "m", "--concurrency", "1,0")
    assert done.status == 2 and "--concurrency" in done.err


def test_what_is_no_address_is_told_before_anything_is_sent(tmp_path: Path) -> None:
    done = call(tmp_path, "load", "--base-url", "localhost:8000/v1", "--model", "m")
    assert done.status == 2 and "--base-url" in done.err and not done.out
    done = call(tmp_path, "load", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--json", ".")
    assert done.status == 2 and "is a folder" in done.err and not done.out
