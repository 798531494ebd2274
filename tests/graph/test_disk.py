"""Whole nights on a small disk: no new job while room is short, a pause when there is none, and the same end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import JobState, RunState
from nightlab.night import run_night
from tests.small_disk import SmallDisk, small_disk
from tests.task import make_repository, study_data

BUDGET = {"runs": 16}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 64) as made:
        yield made


class Night:
    """A night on the disk, run by the command line."""

    def __init__(self, small: SmallDisk, counter: Path, **changes: Any) -> None:
        backend = study_data()["backend"] | {"slots": 1}
        self.file = make_repository(small.folder / "repo", budget=BUDGET, backend=backend, **changes)
        self.paths = locate(load_study(self.file)).paths
        self.counter = counter
        self.environment = {**os.environ, "RUN_COUNTER": str(counter)}

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "nightlab", "run", str(self.file)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
        )

    def ran(self) -> int:
        return len(self.counter.read_text().splitlines()) if self.counter.exists() else 0

    def ledger(self) -> Ledger:
        return Ledger.open(self.paths.ledger)

    def open_questions(self) -> list[str]:
        if not self.paths.ledger.exists():
            return []
        with self.ledger() as ledger:
            return [question.id for question in ledger.questions(open_only=True)]

    def status(self) -> dict[str, Any]:
        command = [sys.executable, "-m", "nightlab", "status", "--study", str(self.file), "--json"]
        told: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        return told


def until(lab: subprocess.Popen[str], condition: Callable[[], bool]) -> None:
    while not condition():
        assert lab.poll() is None, lab.communicate()
        time.sleep(0.05)


def test_a_full_disk_pauses_the_night_and_the_same_command_ends_it(disk: SmallDisk, tmp_path: Path) -> None:
    night = Night(disk, tmp_path / "count", disk={"min_free": "1MB"})
    lab = night.start()
    until(lab, lambda: night.ran() >= 4)
    disk.fill()
    _, stderr = lab.communicate()

    assert lab.returncode == 2, stderr
    assert stderr.startswith("nightlab: ") and stderr.count("\n") == 1
    assert "free on its disk; make room there, then the same command goes on" in stderr
    now = night.status()
    assert (now["status"], now["lab_pid"], [q["id"] for q in now["questions"]]) == ("waiting", None, ["disk-1"])

    disk.free()
    lab = night.start()
    stdout, stderr = lab.communicate()
    assert lab.returncode == 0, stdout + stderr
    with night.ledger() as ledger:
        runs = ledger.runs()
        assert all(run.state in (RunState.REVIEWED, RunState.FAILED) for run in runs)
        assert {run.cause for run in runs if run.state is RunState.FAILED} <= {"exit-status", "lost"}
        assert night.ran() >= sum(run.state is RunState.REVIEWED for run in runs) + 1
        assert [(q.answer, q.answered_by) for q in ledger.questions() if q.id.startswith("disk")] == [
            ("made", "nightlab")
        ]
        assert ledger.verdicts()
    assert "tiny" in night.paths.final_report_md.read_text()
    assert not night.paths.reserve.exists()


def test_with_little_room_no_job_is_started_and_the_lab_goes_on_by_itself(disk: SmallDisk, tmp_path: Path) -> None:
    night = Night(disk, tmp_path / "count", disk={"min_free": "40MB"})
    lab = night.start()
    until(lab, lambda: night.ran() >= 4)
    disk.fill(leave_bytes=30_000_000)
    until(lab, lambda: night.open_questions() == ["disk-1"])
    with night.ledger() as ledger:
        text = ledger.questions()[0].text
        assert "disk.min_free is 40.0 MB" in text and "Make room" in text
        while ledger.jobs(states=[JobState.RUNNING]):
            time.sleep(0.05)
        ended = len(ledger.runs(states=[RunState.REVIEWED, RunState.FAILED]))
    ran = night.ran()
    now = night.status()
    assert now["status"] == "running" and now["lab_pid"] == lab.pid and "No new job" in now["questions"][0]["text"]
    assert night.ran() == ran and ended < BUDGET["runs"]

    disk.free()
    stdout, stderr = lab.communicate()
    assert lab.returncode == 0, stdout + stderr
    with night.ledger() as ledger:
        assert ended < len(ledger.runs()) <= BUDGET["runs"]
        assert [(q.answer, q.answered_by) for q in ledger.questions() if q.id.startswith("disk")] == [
            ("made", "nightlab")
        ]
        assert night.ran() == len(ledger.runs(states=[RunState.REVIEWED])) + 1


def test_a_night_that_could_start_no_job_does_not_begin(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", disk={"min_free": "900PB"})
    with pytest.raises(ConfigError, match=r"disk.min_free: only .* are free on the disk of .*below 900\.0 PB"):
        run_night(file, say=lambda _: None)
    assert not locate(load_study(file)).paths.folder.exists()
