"""What a dead lab, a dead machine and a polite stop leave to the next lab."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from nightlab.graph.process import running_lab
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import RunState
from tests.torture.bootstrap import Fault
from tests.torture.chaos import STOPPED
from tests.torture.invariants import Night, examine
from tests.torture.nights import Nursery, Task, family, kill_family

MIDDLE = Fault("observe", "after", 2)


def dead_process(own: str) -> str:
    return own


def recycled_process_id(own: str) -> str:
    """The process id lives, but another process has it now."""
    return json.dumps(json.loads(own) | {"pid": os.getpid()})


def other_boot(own: str) -> str:
    """Process id and start time may both be met again after the machine has started anew."""
    now = psutil.Process(os.getpid())
    return json.dumps({key: now.pid if key == "pid" else f"{value}0" for key, value in json.loads(own).items()})


def torn(own: str) -> str:
    return own[: len(own) // 2]


def empty(own: str) -> str:
    return ""


STALE = [dead_process, recycled_process_id, other_boot, torn, empty]


def test_what_dead_labs_left_of_their_lock_heals(nursery: Nursery, tmp_path: Path) -> None:
    task = Task(tmp_path / "task", gated=True)
    assert nursery.run(task, MIDDLE) == -signal.SIGKILL
    for stale in STALE:
        own = task.paths.lab_process.read_text()
        task.paths.lab_process.write_text(stale(own))
        assert running_lab(task.paths) is None, stale.__name__
        assert nursery.run(task, MIDDLE) == -signal.SIGKILL, task.said()
    # The labs went on with the night, each from where the one before was killed; how far in each turn is up to chance.
    assert ended(task) >= 2
    kill_family(family(task))


def test_the_dry_run_of_a_killed_preflight_is_ended_by_the_next(nursery: Nursery, tmp_path: Path) -> None:
    task = Task(tmp_path / "task", seconds=30)
    assert nursery.run(task, Fault("submit", "after", 1)) == -signal.SIGKILL
    until(lambda: len(task.executions()) == 1)
    first = [process for process in family(task) if "train.py" in process.cmdline()]
    assert len(first) == 1
    assert nursery.run(task, Fault("submit", "before", 1)) == -signal.SIGKILL
    assert family(task) == []
    assert len(list(task.paths.worktrees.iterdir())) == 1


def test_jobs_that_died_with_the_machine_are_tried_again_and_count(nursery: Nursery, tmp_path: Path) -> None:
    task = Task(tmp_path / "task", slots=2, seconds=0.3, runs=12)
    lab = nursery.start(task)
    until(lambda: submitted(task) >= 2)
    assert kill_family(family(task)) >= 3, "the lab and two runners at least"
    assert nursery.wait(lab) == -signal.SIGKILL
    assert nursery.run(task) == 0, task.said()
    night = Night.of(task)
    assert [str(breach) for breach in examine(night)] == []
    lost = [run for run in night.runs if run.cause == "lost"]
    again = {(run.number, run.seed) for run in night.runs if run.attempt == 2 and run.state is RunState.REVIEWED}
    assert lost and {(run.number, run.seed) for run in lost} == again
    assert night.reserved_runs == len(night.runs)


def test_jobs_of_a_stopped_lab_go_on_and_are_adopted(nursery: Nursery, tmp_path: Path) -> None:
    task = Task(tmp_path / "task", slots=2, seconds=0.1, runs=12)
    moment = random.Random(0)  # noqa: S311
    for number in (signal.SIGTERM, signal.SIGINT) * 2:
        lab = nursery.start(task)
        time.sleep(moment.uniform(0.0, 0.8))
        if lab is not None and lab.is_running():
            lab.send_signal(number)
        assert nursery.wait(lab) in STOPPED, task.said()
    assert nursery.run(task) == 0, task.said()
    night = Night.of(task)
    assert [str(breach) for breach in examine(night)] == []
    assert all(run.attempt == 1 for run in night.runs)


def submitted(task: Task) -> int:
    if not task.paths.ledger.exists():
        return 0
    with Ledger.open(task.paths.ledger) as ledger:
        return len(ledger.runs(states=(RunState.SUBMITTED,))) if ledger.has_study() else 0


def ended(task: Task) -> int:
    with Ledger.open(task.paths.ledger) as ledger:
        return len(ledger.runs(states=(RunState.REVIEWED, RunState.FAILED)))


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
