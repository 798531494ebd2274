"""What becomes of a run that was to be ended for being behind."""

from __future__ import annotations

import json
import time
from pathlib import Path

from nightlab.agents.context import Lab
from nightlab.agents.evaluation import evaluation_agent, observe_jobs
from nightlab.agents.pruning import Intent, intent_of, prune_job
from nightlab.agents.training import training_agent
from nightlab.configs.paths import JobPaths
from nightlab.knowledge.records import Job, RunState
from nightlab.search.pruning import Pruning
from tests.agents.lab import executed, finish, new_lab, planned

REPORTING = """
for n in range(1, 11):
    print(f"step {n} val_loss: {2.0 - n / 10}", flush=True)
if p["color"] == "blue":
    time.sleep(600)
"""
BEHIND = Pruning(3.0, 10.0, 1.7, 1.2, 1.5, diverged=False, reason="at step 3 of 10: 1.7; clearly worse")


def job_of(lab: Lab, key: str) -> Job:
    job = lab.ledger.job(key)
    assert job is not None
    return job


def test_a_run_that_ends_by_itself_before_it_is_ended_counts_as_any_other(tmp_path: Path) -> None:
    with new_lab(tmp_path, append=REPORTING) as lab:
        run = planned(lab, {"lr": 0.01})
        training_agent.invoke({"keys": [run.key]}, context=lab)
        directory = Path(job_of(lab, run.key).directory)
        assert lab.backend.wait({run.key: directory}, 60.0)
        prune_job(lab, job_of(lab, run.key), BEHIND)
        assert intent_of(JobPaths(directory)) is not None
        (ended,) = finish(lab, run)
        assert ended.state is RunState.REVIEWED


def test_an_ended_run_is_written_down_with_an_estimate_and_its_curve(tmp_path: Path) -> None:
    with new_lab(tmp_path, append=REPORTING) as lab:
        run = planned(lab, {"color": "blue"})
        training_agent.invoke({"keys": [run.key]}, context=lab)
        job = job_of(lab, run.key)
        paths = JobPaths(Path(job.directory))
        while "step 10" not in (paths.stdout.read_text() if paths.stdout.exists() else ""):
            time.sleep(0.02)
        prune_job(lab, job, BEHIND)
        assert observe_jobs(lab) == [run.key]
        evaluation_agent.invoke({"keys": [run.key]}, context=lab)
        ended, observation = lab.ledger.run(run.key), lab.ledger.observation(run.key)
        assert (ended.state, ended.cause, ended.next_step) == (RunState.PRUNED, "pruned", None)
        assert observation is not None
        assert (observation.values, observation.sources) == ({"val_loss": 1.5}, {"val_loss": "estimated at step 3"})
        assert json.loads(paths.curve.read_text())[-1] == [10.0, 1.0]
        assert observe_jobs(lab) == [], "it is over"


def test_a_run_that_has_lost_its_loss_has_failed(tmp_path: Path) -> None:
    nan = Pruning(3.0, 10.0, float("nan"), None, float("nan"), diverged=True, reason="not finite twice in a row")
    with new_lab(tmp_path, append=REPORTING) as lab:
        run = planned(lab, {"color": "blue"})
        training_agent.invoke({"keys": [run.key]}, context=lab)
        prune_job(lab, job_of(lab, run.key), nan)
        observe_jobs(lab)
        ended = lab.ledger.run(run.key)
        assert (ended.state, ended.cause) == (RunState.FAILED, "loss-not-finite")


def test_a_whole_run_leaves_its_curve_and_a_damaged_intent_is_none(tmp_path: Path) -> None:
    with new_lab(tmp_path, append=REPORTING) as lab:
        (run,) = executed(lab, planned(lab, {}))
        paths = JobPaths(Path(job_of(lab, run.key).directory))
        assert len(json.loads(paths.curve.read_text())) == 10
        assert intent_of(paths) is None
        paths.ended_by.write_text('{"cause": "no-progress", "detail": "still"}')
        assert intent_of(paths) is None
        paths.ended_by.write_text(Intent(detail="x", step=1, total_steps=None, estimate=None).model_dump_json())
        assert intent_of(paths) is not None
