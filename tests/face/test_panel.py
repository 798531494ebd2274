"""The live panel at a terminal's size, and what is shown where signs are missing."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from nightlab.cli.panel import render
from nightlab.knowledge.records import Effect, Event, Question, StudyStatus
from nightlab.status import Asked, Best, SlotNow, Snapshot, StressNow

START = datetime(2026, 1, 31, 22, 0, tzinfo=UTC)
NOW = START + timedelta(hours=3, minutes=12)


def snapshot(slots: int = 2, **changes: Any) -> Snapshot:
    event = Event(id=1, time=NOW, kind="planned", number=17, text="seed 3 for learning_rate 0.001 → 0.003: " * 3)
    best = Best(
        number=17,
        variable="learning-rate-0-003-warmup-ratio-0-1-plus-2-4fa90c",
        branch="experiment-17-x-y-z",
        value=0.8123,
        runs=4,
        effect=Effect(delta=0.031, low=0.012, high=0.05, runs=3, baseline_runs=3),
        label="promising",
        confirmed=False,
        value_text="81.23 %",
        change_text="+3.1 points, 95 % interval +1.2 … +5.0",
    )
    values: dict[str, Any] = {
        "study": "overnight",
        "status": StudyStatus.RUNNING,
        "phase": "combine",
        "metric": "accuracy",
        "unit": "%",
        "experiments": 41,
        "runs_planned": 97,
        "runs_ended": 93,
        "runs_failed": 1,
        "runs_budget": 120,
        "experiments_budget": None,
        "verdicts": {"keep": 1, "discard": 20, "inconclusive": 9, "failed": 2, "rejected": 1},
        "baseline": 0.78,
        "baseline_runs": 3,
        "baseline_text": "78.1 %",
        "best": best,
        "slots": [SlotNow(slot=i, number=40 + i, variable="lr-3e-4", seed=2, since=START) for i in range(slots)],
        "started_at": START,
        "finished_at": None,
        "deadline": START + timedelta(hours=9),
        "expected_end": START + timedelta(hours=8),
        "questions": [],
        "recent": [event] * 5,
    }
    return Snapshot(**(values | changes))


def drawn(shown: Snapshot, columns: int, *, alive: bool = True, stopping: bool = False) -> list[str]:
    out = Console(file=io.StringIO(), width=columns, color_system=None)
    out.print(render(shown, NOW, Path("study.yaml"), alive=alive, stopping=stopping))
    text: str = out.file.getvalue()  # type: ignore[attr-defined]
    return text.splitlines()


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40)])
@pytest.mark.parametrize("slots", [1, 8, 64])
def test_it_fits_a_terminal(slots: int, columns: int, rows: int) -> None:
    lines = drawn(snapshot(slots), columns)
    assert len(lines) <= rows and max(map(len, lines)) <= columns
    assert sum("slot" in line for line in lines) == min(slots, 8)
    if slots == 64:
        assert any("slots 7–63" in line and "57 of 57 busy" in line for line in lines)


def test_it_says_all_there_is_to_know() -> None:
    text = "\n".join(drawn(snapshot(), 110))
    for words in (
        "running: combining the best changes",
        "41 tried: 1 kept, 20 discarded, 9 inconclusive, 1 rejected by review, 2 failed",
        "accuracy 78.1 %, mean of 3 runs",
        "17 learning-rate-0-003-warmup-ratio-0-1-plus-2-4fa90c: 81.23 %, promising",
        "+3.1 points, 95 % interval +1.2 … +5.0",
        "93 of 120 runs, 1 run failed",
        "3 h 12 min, expected end",
        "40 lr-3e-4, seed 2, 3 h 12 min",
    ):
        assert words in text


def test_it_says_what_is_under_stress_and_what_a_model_is_asked() -> None:
    slot = SlotNow(slot=0, number=17, variable="lr-0-01", check="serving", repeat=1)
    check = StressNow(number=17, check="serving", ended=1, repeats=4)
    asked = [Asked(kind="review", number=17, since=NOW - timedelta(minutes=2))]
    text = "\n".join(
        drawn(snapshot(slots=1).model_copy(update={"slots": [slot], "stress": [check], "asked": asked}), 110)
    )
    for words in (
        "17 lr-0-01, stress serving 2",
        "17 serving: 1 of 4 repeats",
        "a model, about the review of 17, for 2 min",
    ):
        assert words in text
    several = [*asked, *(Asked(kind="idea") for _ in range(4))]
    assert "the review of 17, a code idea, a code idea and 2 more" in "\n".join(drawn(snapshot(asked=several), 110))
    assert "a model" not in "\n".join(drawn(snapshot(asked=several), 110, alive=False))


def test_a_lab_that_is_gone_stops_waits_or_is_stopping() -> None:
    assert "interrupted: its lab is gone; `nightlab run`" in "\n".join(drawn(snapshot(), 100, alive=False))
    assert "stopping at the next step" in "\n".join(drawn(snapshot(), 100, stopping=True))
    question = Question(id="plan", study="s", kind="approve-plan", text="Go on?", options=["yes", "no"], default="no")
    waiting = "\n".join(drawn(snapshot(status=StudyStatus.WAITING, questions=[question]), 100, alive=False))
    assert "waiting for an answer" in waiting and "nightlab answer plan yes|no" in waiting
    assert "expected end" not in waiting and "planned" not in waiting


def nightlab(where: Path, *words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    variables = {"PATH": "/usr/bin:/bin", "COLUMNS": "80"} | env
    command = [sys.executable, "-m", "nightlab", *words]
    return subprocess.run(command, cwd=where, env=variables, capture_output=True, check=False)


def test_an_ascii_terminal_reads_signs_it_has(finished_night: Path) -> None:
    done = nightlab(finished_night.parent, "results", PYTHONIOENCODING="ascii")
    assert done.returncode == 0 and done.stderr == b""
    text = done.stdout.decode("ascii")
    assert re.search(r"val_loss 2\.0+ -> 1\.6\d+ nats", text) and "-0.3" in text and "?" not in text


def test_a_reader_that_leaves_early_is_no_error(finished_night: Path) -> None:
    shell = f"'{sys.executable}' -m nightlab catalog list --json | head -c 1"
    done = subprocess.run(["bash", "-c", shell], cwd=finished_night.parent, capture_output=True, text=True, check=False)
    assert done.stdout == "[" and done.stderr == ""
