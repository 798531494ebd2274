"""From an ended job to an observation or a failure with its cause; real files, a real ledger."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nightlab.agents.context import Lab
from nightlab.agents.evaluation import cancel_unstarted, evaluation_agent, record_end
from nightlab.agents.failures import last_line
from nightlab.agents.training import free_slots, record_submission
from nightlab.configs.paths import JobPaths
from nightlab.knowledge.records import ExperimentState, Job, JobState, Run, RunState, utc_now
from nightlab.tools.backends.base import JobStatus
from tests.agents.lab import new_lab, planned

WELL = JobStatus(JobState.ENDED, "1", utc_now(), utc_now(), exit_code=0, wall_seconds=2.0)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One study for all tests; each takes a seed of its own."""
    with new_lab(tmp_path_factory.mktemp("evaluation")) as lab:
        first = planned(lab, {"lr": 0.01})
        lab.ledger.update_experiment(first.number, state=ExperimentState.PREPARED, commit=lab.base_commit)
        yield lab


@pytest.fixture
def run(lab: Lab) -> Run:
    """A submitted run whose job's folder and tree exist."""
    run = planned(lab, {"lr": 0.01}, seed=len(lab.ledger.runs()))
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    tree = lab.paths.worktree(run.number, replica=f"seed-{run.seed}")
    for folder in (paths.output, tree):
        folder.mkdir(parents=True)
    lab.ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory=str(paths.directory), worktree=str(tree)))
    record_submission(lab, run, 0, "1")
    return run


def ended(lab: Lab, run: Run, status: JobStatus, *, stdout: str = "", stderr: str = "") -> Run:
    """The run after its job has ended like this and was measured."""
    paths = JobPaths(Path(str(lab.ledger.job(run.key) and lab.ledger.job(run.key).directory)))  # type: ignore[union-attr]
    paths.stdout.write_text(stdout)
    paths.stderr.write_text(stderr)
    record_end(lab, lab.ledger.run(run.key), status)
    evaluation_agent.invoke({"keys": [run.key]}, context=lab)
    return lab.ledger.run(run.key)


GOOD = "val_loss: 1.5\nmemory_mb: 12\n"


def test_a_good_end_becomes_an_observation(lab: Lab, run: Run) -> None:
    after = ended(lab, run, WELL, stdout=GOOD)
    assert after.state is RunState.MEASURED
    observation = lab.ledger.observation(run.key)
    assert observation is not None
    assert observation.values == {"val_loss": 1.5, "memory_mb": 12.0}
    assert set(observation.sources.values()) == {"stdout.log"}


@pytest.mark.parametrize(
    ("status", "stdout", "stderr", "cause", "detail"),
    [
        (
            replace(WELL, exit_code=1),
            GOOD,
            "Traceback\nValueError: lr\n",
            "exit-status",
            "exit status 1: ValueError: lr",
        ),
        (replace(WELL, exit_code=1), "only stdout\n", "", "exit-status", "exit status 1: only stdout"),
        (
            replace(WELL, exit_code=-9),
            GOOD,
            "",
            "exit_137",
            "process was SIGKILLed, nearly always the OOM killer: memory_mb: 12 (exit status -9",
        ),
        (replace(WELL, exit_code=-15, timed_out=True), GOOD, "", "timeout", "ended after 2 s"),
        (replace(WELL, exit_code=-15, timed_out=True, cancelled=True), GOOD, "", "timeout", "ended after 2 s"),
        (WELL, "", "", "metric-absent", "metric val_loss"),
        (WELL, "val_loss: 1.5\n", "", "metric-absent", "metric memory_mb"),
        (WELL, "val_loss: nan\nmemory_mb: 1\n", "", "metric-not-finite", "metric val_loss"),
        (WELL, "val_loss: 0,95\nmemory_mb: 1\n", "", "metric-ambiguous", "metric val_loss"),
    ],
)
def test_each_failure_has_its_cause_and_a_line_that_says_why(
    lab: Lab, run: Run, status: JobStatus, stdout: str, stderr: str, cause: str, detail: str
) -> None:
    after = ended(lab, run, status, stdout=stdout, stderr=stderr)
    assert (after.state, after.cause) == (RunState.FAILED, cause)
    assert after.detail.startswith(detail), after.detail
    assert lab.ledger.observation(run.key) is None
    assert lab.ledger.events()[-1].text.startswith(f"seed {run.seed}: {cause}")


def test_a_job_that_vanished_is_lost_and_its_time_is_settled(lab: Lab, run: Run) -> None:
    after = ended(lab, run, JobStatus(JobState.LOST, detail="its runner ended without a result"))
    assert (after.state, after.cause, after.detail) == (RunState.FAILED, "lost", "its runner ended without a result")
    job = lab.ledger.job(run.key)
    assert job is not None and job.state is JobState.LOST and job.ended_at is not None


@pytest.mark.parametrize("exit_code", [-15, 0])
def test_a_job_somebody_ended_says_nothing_even_when_it_left_a_number(lab: Lab, run: Run, exit_code: int) -> None:
    after = ended(lab, run, replace(WELL, exit_code=exit_code, cancelled=True), stdout=GOOD)
    assert (after.state, after.cause) == (RunState.CANCELLED, "stopped")
    assert lab.ledger.observation(run.key) is None


def test_a_job_cut_short_by_the_deadline_says_so(lab: Lab, run: Run) -> None:
    lab.deadline = lab.now()
    try:
        after = ended(lab, run, replace(WELL, exit_code=-15, cancelled=True))
    finally:
        lab.deadline = None
    assert (after.state, after.cause) == (RunState.CANCELLED, "deadline")


def test_results_whose_tree_was_removed_are_lost_not_wrong(lab: Lab, run: Run) -> None:
    lab.paths.worktree(run.number, replica=f"seed-{run.seed}").rmdir()
    after = ended(lab, run, WELL, stdout=GOOD)
    assert (after.state, after.cause) == (RunState.FAILED, "lost")
    assert "removed before its results were read" in after.detail


def test_recording_and_measuring_again_changes_nothing(lab: Lab, run: Run) -> None:
    ended(lab, run, WELL, stdout=GOOD)
    before = (lab.ledger.run(run.key), lab.ledger.job(run.key), len(lab.ledger.events()), lab.ledger.spend_totals())
    evaluation_agent.invoke({"keys": [run.key]}, context=lab)
    after = (lab.ledger.run(run.key), lab.ledger.job(run.key), len(lab.ledger.events()), lab.ledger.spend_totals())
    assert after == before


def test_what_never_started_gives_back_its_slot_and_its_run(lab: Lab) -> None:
    run = planned(lab, {"lr": 0.01}, seed=5000)
    reserved, free = lab.ledger.spend_totals().runs, free_slots(lab)
    lab.ledger.intend_job(Job(key=run.key, backend="local", slot=free[-1], directory="d", worktree="w"))
    assert free_slots(lab) == free[:-1]
    cancel_unstarted(lab, run)
    assert free_slots(lab) == free
    assert lab.ledger.spend_totals().runs == reserved - 1
    assert lab.ledger.run(run.key).state is RunState.CANCELLED


def test_the_last_line_of_a_log_is_the_last_that_says_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == ""
    log.write_text("\n  \n")
    assert last_line(log) == ""
    log.write_bytes(b"x" * 10_000 + b"\nCUDA out of memory \xff\n\n")
    assert last_line(log) == "CUDA out of memory �"
    log.write_text("y" * 1000)
    assert len(last_line(log)) == 300
