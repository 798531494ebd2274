"""`kill -9` in the middle of a night: what is finished stays, nothing is done twice, the end is the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import StudyBusyError
from nightlab.graph.opening import locate
from nightlab.graph.process import hold_study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.night import run_night
from tests.agents.lab import new_lab
from tests.task import git, make_repository, study_data


def results(file: Path) -> dict[str, list[tuple[int, str]]]:
    """Variable → its runs' seeds and states, for nights that must end alike."""
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        return {
            e.variable: sorted((r.seed, r.state.value) for r in ledger.runs(e.number)) for e in ledger.experiments()
        }


def story(file: Path) -> list[tuple[str, int, str]]:
    """What happened, each thing as often as it did, but for its time.

    Why a run was planned is left out: while a job was running a run may have been planned ahead of its need.
    """
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        return sorted((e.kind, e.number or 0, "" if e.kind == "planned" else e.text) for e in ledger.events())


def history_of_branches(file: Path) -> dict[str, int]:
    """Branch → its commits since the base."""
    root = file.parent
    names = git(root, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/experiment-*").split()
    return {name: int(git(root, "rev-list", "--count", f"main..{name}")) for name in names}


def test_killed_around_its_commits_the_night_ends_as_if_nothing_had_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One slot: what is known when the next run is planned does then not depend on which of two jobs ended first.
    small = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1}
    changes = {"backend": study_data()["backend"] | {"slots": 1}, "search": small, "budget": {"runs": 11}}
    calm, rough = (make_repository(tmp_path / name, **changes) for name in ("calm", "rough"))
    counters = tmp_path / "calm.count", tmp_path / "rough.count"
    monkeypatch.setenv("RUN_COUNTER", str(counters[0]))
    run_night(calm, say=lambda _: None)

    environment = {**os.environ, "RUN_COUNTER": str(counters[1])}
    command = [sys.executable, "-m", "tests.graph.killing", str(rough), "9"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 12, "killed often enough to mean something"

    assert results(rough) == results(calm)
    assert story(rough) == story(calm), "nothing lost, nothing twice"
    assert history_of_branches(rough) == history_of_branches(calm)
    runs = [line.split()[-1] for line in counters[1].read_text().splitlines()]
    dry_runs = len(runs) - (len(counters[0].read_text().splitlines()) - 1)
    # A preflight killed before the study began is made again; no run is.
    assert 1 <= dry_runs <= 4
    told = read(locate(load_study(rough)).paths.lessons).lessons
    expected = read(locate(load_study(calm)).paths.lessons).lessons
    assert [(one.parameters, one.verdict, one.label) for one in told] == [
        (one.parameters, one.verdict, one.label) for one in expected
    ]
    assert locate(load_study(rough)).paths.final_report_html.exists()
    assert git(rough.parent, "status", "--porcelain") == ""
    assert len(git(rough.parent, "worktree", "list").splitlines()) == 1


def test_a_second_lab_is_refused(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab, hold_study(lab.paths):
        with pytest.raises(StudyBusyError, match=f"is being run by process {os.getpid()} already"):
            run_night(lab.study_file, say=lambda _: None)
        assert lab.ledger.runs() == []
