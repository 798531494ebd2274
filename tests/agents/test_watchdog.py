"""The watchdog on real jobs: what stands still, runs into nan or runs away is ended with its cause."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pytest

from nightlab.agents.watchdog import Watch
from nightlab.configs.watchdog import Watchdog
from nightlab.knowledge.records import RunState
from nightlab.night import run_night
from nightlab.tools.metrics.curve import LossTail
from tests.graph.test_night import ledger_of, quiet
from tests.task import commit_all, make_repository

WATCHDOG = {"no_progress": "2s", "every": "0.5s", "diverging_points": 5}


def night_with(tmp_path: Path, body: str, **watchdog: object) -> Path:
    """A night in which `color: blue` runs `body` before it reports its metric."""
    file = make_repository(tmp_path / "repo", watchdog={**WATCHDOG, **watchdog}, budget={"runs": 14})
    train = file.parent / "train.py"
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    train.write_text(train.read_text() + f"if p['color'] == 'blue':\n{lines}")
    commit_all(file.parent, "body")
    run_night(file, say=quiet)
    return file


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        ("time.sleep(600)", "no-progress"),
        ("for _ in range(600):\n    print('loss: nan', flush=True)\n    time.sleep(0.2)", "loss-not-finite"),
        (
            (
                "print('loss: 1.0', flush=True)\nfor n in range(600):\n"
                "    print(f'loss: {10 + n}', flush=True)\n    time.sleep(0.2)"
            ),
            "diverged",
        ),
    ],
)
def test_a_hopeless_job_is_ended_with_its_cause_and_the_night_goes_on(tmp_path: Path, body: str, cause: str) -> None:
    file = night_with(tmp_path, body)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        runs = ledger.runs(blue.number)
        assert {run.cause for run in runs} == {cause}
        assert {run.state for run in runs} == {RunState.FAILED}
        assert any(run.phase == "confirm" for run in ledger.runs()), "the rest of the night went on"
    left = [p for p in psutil.process_iter(["cwd"]) if str(file.parent) in str(p.info["cwd"])]
    assert not left


def test_a_job_that_computes_silently_is_left_alone(tmp_path: Path) -> None:
    body = "end = time.time() + 5\nwhile time.time() < end:\n    sum(range(1000))"
    file = night_with(tmp_path, body)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        assert {run.state for run in ledger.runs(blue.number)} == {RunState.REVIEWED}


def test_the_tail_gives_each_loss_once_and_waits_for_the_end_of_a_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = LossTail(log)
    assert tail.new_losses() == []
    log.write_text("loss: 2.0\nloss=1.")
    assert tail.new_losses() == [2.0]
    with log.open("a") as more:
        more.write("5\rloss: nan\n")
    first, second = tail.new_losses()
    assert first == 1.5 and second != second
    assert tail.new_losses() == []


def test_looks_are_spaced_and_settings_have_sane_defaults() -> None:
    settings = Watchdog()
    assert settings.no_progress_seconds == 1800 and settings.non_finite
    assert Watch(settings).looked_at < 0
    assert sys.float_info.max > settings.every_seconds > 0
