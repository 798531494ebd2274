"""Trees, commits and submissions: each step repeated, and broken off before it was written down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.agents.context import Lab
from nightlab.agents.training import adopt_started, due, free_slots, prepare, training_agent
from nightlab.knowledge.records import ExperimentState, Job, JobState, RunState
from nightlab.tools.backends.base import JobSpec
from tests.agents.lab import executed, finish, new_lab, opened, planned
from tests.task import git, study_data, write_study


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every run of the task adds a line here."""
    file = tmp_path / "counter"
    file.touch()
    monkeypatch.setenv("RUN_COUNTER", str(file))
    return file


def test_a_commit_that_was_not_written_down_is_found_again(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        tree = prepare(lab, run)
        commit = lab.ledger.experiment(run.number).commit
        # As a kill between git's commit and the ledger's leaves it.
        lab.ledger.update_experiment(run.number, commit=None)
        lab.prepared.clear()
        assert prepare(lab, run) == tree
        experiment = lab.ledger.experiment(run.number)
        assert (experiment.commit, experiment.state) == (commit, ExperimentState.PREPARED)
        assert git(lab.paths.root, "rev-list", "--count", f"{lab.base_commit}..{experiment.branch}") == "1"


def test_preparing_again_after_the_tree_was_lost_gives_the_same_commit(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        tree = prepare(lab, run)
        lab.worktrees.remove_all()
        assert prepare(lab, run) == tree
        assert json.loads((tree / "params.json").read_text())["lr"] == 0.01
        assert git(tree, "rev-parse", "HEAD") == lab.ledger.experiment(run.number).commit


def submit_and_forget(lab: Lab, key: str, slot: int) -> None:
    """Start a run's job as a lab does that is killed before it writes that down."""
    run = lab.ledger.run(key)
    tree = prepare(lab, run)
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    lab.ledger.intend_job(Job(key=key, backend="local", slot=slot, directory=str(paths.directory), worktree=str(tree)))
    parameters = lab.ledger.experiment(run.number).parameters
    launch = lab.launcher.launch(parameters, seed=run.seed, tree=tree, output=paths.output)
    lab.backend.submit(JobSpec(key, launch.command, launch.cwd, launch.env, paths.directory, slot))


def test_a_submission_that_was_not_written_down_is_adopted(tmp_path: Path, counter: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        submit_and_forget(lab, run.key, 1)
        lab.prepared.clear()
        adopt_started(lab)
        job = lab.ledger.job(run.key)
        assert job is not None and job.state is JobState.RUNNING and job.native_id
        assert lab.ledger.run(run.key).state is RunState.SUBMITTED
        assert lab.ledger.experiment(run.number).state is ExperimentState.RUNNING
        events = [event.text for event in lab.ledger.events() if event.kind == "submitted"]
        assert events == ["lr-0-01 seed 0 on slot 1"]
        (after,) = finish(lab, run)
        assert after.state is RunState.REVIEWED
        assert len(counter.read_text().splitlines()) == 1


def test_submitting_again_what_had_started_starts_nothing(tmp_path: Path, counter: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        submit_and_forget(lab, run.key, 0)
        assert executed(lab, run)[0].state is RunState.REVIEWED
        assert len(counter.read_text().splitlines()) == 1


def test_an_intent_that_came_to_nothing_keeps_its_slot_and_is_carried_out(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        directory = lab.paths.job(run.number, 0, 1).directory
        lab.ledger.intend_job(Job(key=run.key, backend="local", slot=1, directory=str(directory), worktree="w"))
        adopt_started(lab)
        assert free_slots(lab) == [0]
        assert due(lab) == [run.key]
        assert executed(lab, run)[0].state is RunState.REVIEWED
        job = lab.ledger.job(run.key)
        assert job is not None and (job.slot, job.state) == (1, JobState.ENDED)
        assert free_slots(lab) == [0, 1]


def test_an_intent_for_a_slot_that_is_gone_takes_another(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        directory = lab.paths.job(run.number, 0, 1).directory
        lab.ledger.intend_job(Job(key=run.key, backend="local", slot=1, directory=str(directory), worktree="w"))
        file = lab.study_file
    write_study(file.parent, backend=study_data()["backend"] | {"slots": 1})
    with opened(file) as lab:
        assert executed(lab, run)[0].state is RunState.REVIEWED
        job = lab.ledger.job(run.key)
        assert job is not None and job.slot == 0


def test_further_seeds_run_side_by_side_in_trees_of_the_same_commit(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        runs = [planned(lab, {"lr": 0.01}, seed) for seed in (0, 1)]
        after = executed(lab, *runs)
        assert [run.state for run in after] == [RunState.REVIEWED, RunState.REVIEWED]
        trees = [Path(job.worktree) for run in runs if (job := lab.ledger.job(run.key))]
        assert [tree.name for tree in trees] == ["experiment-01", "experiment-01.seed-1-attempt-1"]
        commit = lab.ledger.experiment(1).commit
        assert {git(tree, "rev-parse", "HEAD") for tree in trees} == {commit}
        assert git(trees[1], "branch", "--show-current") == ""


def test_with_full_slots_only_trees_that_are_still_to_make_are_due(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        runs = [planned(lab, {"lr": 0.01}, seed) for seed in range(3)]
        assert due(lab) == [run.key for run in runs]
        training_agent.invoke({"keys": due(lab)}, context=lab)
        assert [lab.ledger.run(run.key).state for run in runs] == [
            RunState.SUBMITTED,
            RunState.SUBMITTED,
            RunState.PLANNED,
        ]
        assert due(lab) == [], "the third is prepared and waits for a slot"
        finish(lab, *runs[:2])
        assert due(lab) == [runs[2].key]


def test_what_cannot_be_turned_into_a_command_fails_alone(tmp_path: Path) -> None:
    launcher = {
        "command": "{python} -c \"print('val_loss: 1'); print('memory_mb: 1')\" {lr}",
        "parameters": {"via": "template"},
    }
    space = {"lr": {"levels": [0.01]}}
    with new_lab(tmp_path, launcher=launcher, space=space, frozen=[]) as lab:
        bad, good = planned(lab, {"width": 64}), planned(lab, {"lr": 0.01})
        after = executed(lab, bad, good)
        assert (after[0].state, after[0].cause) == (RunState.FAILED, "launcher")
        assert "width is to be 64, but the command has no place for it" in after[0].detail
        assert after[1].state is RunState.REVIEWED


def test_inputs_are_linked_and_seen_by_the_run(tmp_path: Path) -> None:
    append = 'assert open("data/x.bin").read() == "weights"\n'
    with new_lab(tmp_path, append=append, inputs=["data"]) as lab:
        (lab.paths.root / "data").mkdir()
        (lab.paths.root / "data" / "x.bin").write_text("weights")
        (run,) = executed(lab, planned(lab, {"lr": 0.01}))
        assert run.state is RunState.REVIEWED, run.detail
