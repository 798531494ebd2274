"""`kill -9` in the middle of a night: what is finished stays, nothing is done twice, the end is the same."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import RunState
from tests.task import git, make_repository, study_data

KILLS = 5


def lab(file: Path, counter: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "RUN_COUNTER": str(counter)}
    return subprocess.Popen(
        [sys.executable, "-m", "nightlab", "run", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    )


def results(file: Path) -> dict[str, list[tuple[int, str]]]:
    """Variable → its runs' seeds and states, for nights that must end alike."""
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        return {
            e.variable: sorted((r.seed, r.state.value) for r in ledger.runs(e.number)) for e in ledger.experiments()
        }


def wait_for_runs(file: Path, process: subprocess.Popen[str], count: int) -> bool:
    """True once the ledger holds `count` runs; False when the lab has ended before."""
    path = locate(load_study(file)).paths.ledger
    while process.poll() is None:
        if path.exists():
            with Ledger.open(path) as ledger:
                if len(ledger.runs()) >= count:
                    return True
        time.sleep(0.05)
    return False


def test_killed_again_and_again_the_night_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    # One slot: what is known when the next run is planned does then not depend on which of two jobs ended first.
    backend = study_data()["backend"] | {"slots": 1}
    calm, rough = (make_repository(tmp_path / name, backend=backend) for name in ("calm", "rough"))
    counters = tmp_path / "calm.count", tmp_path / "rough.count"
    process = lab(calm, counters[0])
    output, _ = process.communicate()
    assert process.returncode == 0, output

    chance = random.Random(7)  # noqa: S311
    killed = 0
    for kill in range(KILLS):
        process = lab(rough, counters[1])
        if wait_for_runs(rough, process, 1 + 4 * kill):
            time.sleep(chance.uniform(0, 0.4))
            process.send_signal(signal.SIGKILL)
            killed += 1
        process.communicate()
    process = lab(rough, counters[1])
    output, _ = process.communicate()
    assert process.returncode == 0, output

    assert killed >= 3
    assert results(rough) == results(calm)
    with Ledger.open(locate(load_study(rough)).paths.ledger) as ledger:
        reviewed = [r for r in ledger.runs() if r.state is RunState.REVIEWED]
        ran = [line.split()[-1] for line in counters[1].read_text().splitlines()]
        dry_runs = len(ran) - len(reviewed)
        assert dry_runs >= 1, "every measured run was executed"
        assert len(counters[0].read_text().splitlines()) == len(reviewed) + 1, "and none of them twice"
        # A preflight killed before the study began is made again; nothing else is.
        assert dry_runs <= KILLS + 1
        names = [lesson.evidence["experiment"] for lesson in read(locate(load_study(rough)).paths.lessons).lessons]
        assert len(names) == len(set(names)) or all(
            lesson.supersedes for lesson in read(locate(load_study(rough)).paths.lessons).lessons[len(set(names)) :]
        )
    assert git(rough.parent, "status", "--porcelain") == ""
    assert len(git(rough.parent, "worktree", "list").splitlines()) == 1


def test_jobs_outlive_a_stopped_lab_and_are_adopted(tmp_path: Path) -> None:
    counter = tmp_path / "count"
    parameters = study_data()["parameters"] | {"seconds": 3}
    file = make_repository(tmp_path / "repo", parameters=parameters, budget={"runs": 10})
    process = lab(file, counter)
    path = locate(load_study(file)).paths.ledger
    assert wait_for_runs(file, process, 2)
    while True:
        with Ledger.open(path) as ledger:
            submitted = ledger.runs(states=(RunState.SUBMITTED,))
        if len(submitted) >= 2:
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 0, output
    assert "Stopped" in output
    process = lab(file, counter)
    try:
        with Ledger.open(path) as ledger:
            while ledger.run(submitted[0].key).state is RunState.SUBMITTED:
                assert process.poll() is None
                time.sleep(0.05)
            assert ledger.run(submitted[0].key).attempt == 1
            assert ledger.run(submitted[0].key).state is not RunState.FAILED
    finally:
        stop = subprocess.run(
            [sys.executable, "-m", "nightlab", "stop", "--kill-jobs", "--study", str(file)],
            capture_output=True,
            text=True,
            check=False,
        )
        process.communicate()
    assert stop.returncode == 0, stop.stderr
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(file.parent) in " ".join(p.info["cmdline"] or [])]


def test_a_second_lab_is_refused(tmp_path: Path) -> None:
    parameters = study_data()["parameters"] | {"seconds": 1}
    file = make_repository(tmp_path / "repo", parameters=parameters)
    first = lab(file, tmp_path / "count")
    try:
        assert wait_for_runs(file, first, 1)
        second = lab(file, tmp_path / "count")
        output, _ = second.communicate()
        assert second.returncode == 2
        assert f"is being run by process {first.pid} already" in output
    finally:
        first.send_signal(signal.SIGTERM)
        first.communicate()
        subprocess.run(
            [sys.executable, "-m", "nightlab", "stop", "--kill-jobs", "--study", str(file)],
            capture_output=True,
            check=True,
        )


@pytest.mark.parametrize("what", ["run", "status", "results"])
def test_outside_a_repository_each_command_says_so_in_one_line(tmp_path: Path, what: str) -> None:
    (tmp_path / "study.yaml").write_text((make_repository(tmp_path / "repo")).read_text())
    arguments = (
        ["run", str(tmp_path / "study.yaml")] if what == "run" else [what, "--study", str(tmp_path / "study.yaml")]
    )
    done = subprocess.run(
        [sys.executable, "-m", "nightlab", *arguments], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 2
    assert done.stderr.startswith("nightlab: ") and done.stderr.count("\n") == 1
    assert "not" in done.stderr and "git" in done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["repo", "study.yaml"]
