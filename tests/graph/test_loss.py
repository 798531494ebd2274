"""Jobs that vanish, a machine that dies, a person who ends jobs, a deadline that passes: nothing of it is a result."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from nightlab.agents.context import Lab
from nightlab.configs.loading import load_study
from nightlab.graph.driver import run_lab
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import ExperimentState, JobState, Run, RunState, StudyStatus, utc_now
from nightlab.night import run_night
from tests.agents.lab import new_lab, opened
from tests.task import git, study_data, write_study

WAITS = """\
import os
while os.path.exists(os.environ["GATE"]) and os.path.basename(os.getcwd()) != "experiment-00":
    time.sleep(0.02)
"""
SMALL: dict[str, Any] = {
    "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1},
    "space": {"lr": {"levels": [0.01]}},
    "budget": {"runs": 12},
    "backend": study_data()["backend"] | {"pass_env": ["GATE"]},
}


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file exists every job but the baseline's first waits."""
    file = tmp_path / "gate"
    monkeypatch.setenv("GATE", str(file))
    file.touch()
    return file


@pytest.fixture
def study(tmp_path: Path, gate: Path) -> Iterator[Path]:
    """A study that has begun; whatever still runs at the end is ended."""
    with new_lab(tmp_path, append=WAITS, **SMALL) as lab:
        file = lab.study_file
    yield file
    with opened(file) as lab:
        lab.backend.cancel({job.key: Path(job.directory) for job in lab.ledger.jobs(states=(JobState.RUNNING,))})


def run_until(file: Path, enough: Callable[[Lab], bool]) -> None:
    """Run the lab and stop it as soon as `enough` holds, its jobs left alone."""
    with opened(file) as lab:
        lab.stop_requested = lambda: enough(lab)
        assert run_lab(lab) is StudyStatus.STOPPED


def jobs_wait(lab: Lab) -> bool:
    """Whether all that runs are two jobs that wait at the gate."""
    return len(lab.ledger.jobs(states=(JobState.RUNNING,))) == 2 and bool(lab.ledger.runs(states=(RunState.REVIEWED,)))


def kill_jobs(file: Path) -> list[Run]:
    """SIGKILL the runners of all jobs in flight, as a dying machine does; returns their runs."""
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        jobs = ledger.jobs(states=(JobState.RUNNING,))
        processes = [psutil.Process(int(job.native_id or "")) for job in jobs]
        for process in processes:
            os.kill(process.pid, signal.SIGKILL)
        psutil.wait_procs(processes, timeout=30)
        return [ledger.run(job.key) for job in jobs]


def finish(file: Path) -> None:
    with opened(file) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED


def test_a_study_whose_machine_died_goes_on_and_counts_each_run_once(study: Path, gate: Path) -> None:
    run_until(study, jobs_wait)
    lost = kill_jobs(study)
    gate.unlink()
    finish(study)
    with opened(study) as lab:
        for run in lost:
            attempts = [r for r in lab.ledger.runs(run.number) if r.seed == run.seed]
            assert [(r.attempt, r.state, r.cause) for r in attempts] == [
                (1, RunState.FAILED, "lost"),
                (2, RunState.REVIEWED, None),
            ]
        assert all(e.state is not ExperimentState.FAILED for e in lab.ledger.experiments())
        assert not [one for one in read(lab.lessons_path).lessons if one.cause]
        assert lab.ledger.spend_totals().runs == len(lab.ledger.runs()) <= 12
        measured = {(r.number, r.seed) for r in lab.ledger.runs(states=(RunState.REVIEWED,))}
        assert measured == {(r.number, r.seed) for r in lab.ledger.runs()}
    assert git(study.parent, "status", "--porcelain") == ""


def test_jobs_outlive_a_stopped_lab_and_are_adopted(study: Path, gate: Path) -> None:
    run_until(study, jobs_wait)
    gate.unlink()
    finish(study)
    with opened(study) as lab:
        assert {(run.attempt, run.state) for run in lab.ledger.runs()} == {(1, RunState.REVIEWED)}


def test_a_run_lost_twice_is_given_up_as_failed(study: Path, gate: Path) -> None:
    run_until(study, jobs_wait)
    first = kill_jobs(study)
    run_until(study, lambda lab: jobs_wait(lab) and len(lab.ledger.runs(states=(RunState.FAILED,))) == 2)
    kill_jobs(study)
    gate.unlink()
    finish(study)
    with opened(study) as lab:
        assert [run.attempt for run in lab.ledger.runs() if run.cause == "lost"] == [1, 1, 2, 2]
        for run in first:
            assert max(r.attempt for r in lab.ledger.runs(run.number) if r.seed == run.seed) == 2


def test_jobs_a_person_ended_are_run_again_and_are_no_failures(study: Path, gate: Path) -> None:
    run_until(study, jobs_wait)
    with opened(study) as lab:
        jobs = lab.ledger.jobs(states=(JobState.RUNNING,))
        lab.backend.cancel({job.key: Path(job.directory) for job in jobs})
    gate.unlink()
    finish(study)
    with opened(study) as lab:
        stopped = [run for run in lab.ledger.runs() if run.cause == "stopped"]
        assert {run.key for run in stopped} == {job.key for job in jobs}
        for run in stopped:
            assert [r.state for r in lab.ledger.runs(run.number) if r.seed == run.seed] == [
                RunState.CANCELLED,
                RunState.REVIEWED,
            ]


def test_the_deadline_ends_what_runs_and_more_time_takes_it_up_again(study: Path, gate: Path) -> None:
    budget = {"runs": 12, "duration": "1h"}
    write_study(study.parent, **{**SMALL, "budget": budget})
    assert run_study(study, later=timedelta(0), until=jobs_wait) is StudyStatus.STOPPED
    assert run_study(study, later=timedelta(hours=2)) is StudyStatus.FINISHED
    with opened(study) as lab:
        cut = lab.ledger.runs(states=(RunState.CANCELLED,))
        assert cut and {run.cause for run in cut} == {"deadline"}
        assert not lab.ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING))
        assert not lab.ledger.runs(states=(RunState.FAILED,)), "a run cut short has not failed"
        spent = lab.ledger.spend_totals().runs
    gate.unlink()
    write_study(study.parent, **{**SMALL, "budget": {"runs": 12, "duration": "9h"}})
    assert run_study(study, later=timedelta(hours=2)) is StudyStatus.FINISHED
    with opened(study) as lab:
        again = [run for run in lab.ledger.runs() if run.attempt == 2]
        assert {(r.number, r.seed) for r in again} >= {(r.number, r.seed) for r in cut if r.number == 0}
        assert spent < lab.ledger.spend_totals().runs <= 12
        reviewed = [(run.number, run.seed) for run in lab.ledger.runs(states=(RunState.REVIEWED,))]
        assert len(set(reviewed)) == len(reviewed) >= 2 + 1 + 2 * 2


def run_study(file: Path, *, later: timedelta, until: Callable[[Lab], bool] | None = None) -> StudyStatus:
    """`nightlab run` of a study that has begun, the lab's clock ahead by `later`."""

    def watch(lab: Lab) -> None:
        lab.now = lambda: utc_now() + later
        if until:
            lab.stop_requested = lambda: until(lab)

    return run_night(file, say=lambda _: None, watch=watch).status
