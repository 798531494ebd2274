"""From a trainer's files to what the lab says of a run: failures, findings, runs that were not the ones asked for."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from nightlab.agents.analysis import gather_facts
from nightlab.agents.audit import check_effective
from nightlab.agents.cards import result_files
from nightlab.agents.context import Lab
from nightlab.agents.diagnosis import diagnose
from nightlab.agents.evaluation import evaluation_agent, record_end
from nightlab.agents.run_findings import keep_findings, kept_findings
from nightlab.agents.training import record_submission
from nightlab.configs.paths import JobPaths
from nightlab.configs.study import Scalar
from nightlab.knowledge.records import ExperimentState, Job, JobState, Run, RunState, utc_now
from nightlab.tools.backends.base import JobStatus
from nightlab.tools.launchers.script import ScriptLauncher
from nightlab.tools.metrics.findings import findings_of
from tests.agents.lab import new_lab, planned
from tests.tools.metrics.recorded import FIXTURES

SOURCES = {"val_loss": {"kind": "trainer", "key": "eval_loss"}, "memory_mb": {"kind": "trainer", "key": "epoch"}}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One study for all tests whose metrics come from a trainer; each takes a seed of its own."""
    with new_lab(tmp_path_factory.mktemp("findings"), metrics=SOURCES) as lab:
        first = planned(lab, {})
        lab.ledger.update_experiment(first.number, state=ExperimentState.PREPARED, commit=lab.base_commit)
        yield lab


def job_of(lab: Lab, run: Run) -> Job:
    job = lab.ledger.job(run.key)
    assert job is not None
    return job


def after(lab: Lab, recorded: str, files: Mapping[str, str] | None = None, *, stdout: str | None = None) -> Run:
    """A run of the baseline that ended well and left what was recorded, and these files in its output folder."""
    run = planned(lab, {}, seed=len(lab.ledger.runs()))
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    tree = lab.paths.worktree(run.number, replica=f"seed-{run.seed}")
    tree.mkdir(parents=True, exist_ok=True)
    shutil.copytree(FIXTURES / recorded, paths.directory)
    paths.output.mkdir(exist_ok=True)
    for name, text in (files or {}).items():
        (paths.output / name).write_text(text, encoding="utf-8")
    if stdout is not None:
        paths.stdout.write_text(stdout, encoding="utf-8")
    lab.ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory=str(paths.directory), worktree=str(tree)))
    record_submission(lab, run, 0, "1")
    ended = JobStatus(JobState.ENDED, "1", None, utc_now(), exit_code=0, wall_seconds=2.0)
    record_end(lab, lab.ledger.run(run.key), ended)
    evaluation_agent.invoke({"keys": [run.key]}, context=lab)
    return lab.ledger.run(run.key)


def test_a_diverged_run_that_exits_well_is_a_failure_with_a_remedy(lab: Lab) -> None:
    run = after(lab, "llamafactory/div")
    assert (run.state, run.cause) == (RunState.FAILED, "diverged")
    assert lab.signatures.get("loss_diverge").remedy in run.detail
    assert lab.ledger.observation(run.key) is None


def test_a_run_without_gradients_is_a_failure(lab: Lab) -> None:
    lost = "{'loss': 0.0, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 1.0}\n"
    run = after(lab, "llamafactory/bad", stdout=lost + "{'eval_loss': 1.0, 'epoch': 1}\n")
    assert (run.state, run.cause) == (RunState.FAILED, "loss-not-finite")
    assert lab.signatures.get("nan_loss").remedy in run.detail


@pytest.mark.parametrize(("recorded", "value"), [("llamafactory/sft", 5.504546), ("llamafactory/full", 0.6257499)])
def test_a_healthy_run_is_measured_from_the_trainers_files(lab: Lab, recorded: str, value: float) -> None:
    run = after(lab, recorded)
    observation = lab.ledger.observation(run.key)
    assert run.state is RunState.MEASURED, run.detail
    assert observation is not None
    assert observation.values["val_loss"] == pytest.approx(value)
    assert observation.sources["val_loss"] == "eval_results.json"
    assert kept_findings(JobPaths(Path(job_of(lab, run).directory))) == []


def test_thinking_left_on_is_told_in_the_story_the_card_and_the_diagnosis(lab: Lab) -> None:
    rows = [{"prompt": "p", "predict": f"<think>\nhm {n}", "label": f"shoes {n}"} for n in range(20)]
    files = {
        "generated_predictions.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "predict_results.json": '{"predict_bleu-4": 1.82}',
        "eval_results.json": '{"eval_loss": 0.05, "epoch": 1}',
    }
    run = after(lab, "llamafactory/sft", files)
    assert run.state is RunState.MEASURED
    told = [event.text for event in lab.ledger.events() if event.kind == "finding"]
    assert len(told) == 1
    assert "thinking-left-on: eval_loss is excellent (0.05) while predict_bleu-4 is 1.82" in told[0]
    assert "enable_thinking: false" in told[0]
    experiment, job = lab.ledger.experiment(run.number), job_of(lab, run)
    entry = (run, job, lab.ledger.observation(run.key))
    card = json.loads(
        result_files(lab.study, experiment, [entry], None, lab.launcher, lab.paths.root, lab.redactor)["RESULT.json"]
    )
    assert card["runs"][0]["findings"][0]["name"] == "thinking-left-on"
    diagnosis = diagnose(gather_facts(lab))
    assert {"think_tags", "low_loss_low_metric"} <= set(diagnosis.symptoms)


class TellingLauncher(ScriptLauncher):
    """A launcher that states the arguments of a run."""

    arguments: Mapping[str, object] = {}

    def document(self, _parameters: Mapping[str, Scalar], _tree: Path) -> Mapping[str, object]:
        return self.arguments


def test_a_run_that_was_not_the_one_asked_for_is_not_believed(lab: Lab) -> None:
    run = after(lab, "llamafactory/sft")
    job = job_of(lab, run)
    assert check_effective(lab, job, {}) is None, "a script's arguments are not known"
    launcher = TellingLauncher(lab.study)
    launcher.arguments = yaml.safe_load((FIXTURES / "llamafactory/sft/train.yaml").read_text(encoding="utf-8"))
    asked = replace(lab, launcher=launcher)
    assert check_effective(asked, job, {}) is None
    launcher.arguments = {**launcher.arguments, "learning_rate": 1e-4}
    reason = check_effective(asked, job, {})
    assert reason is not None
    assert reason.startswith(
        "the run was not the one asked for: learning_rate 0.0001 was asked for, the run logged 0.00"
    )


def test_findings_survive_as_a_file_and_a_broken_file_is_none(lab: Lab, tmp_path: Path) -> None:
    paths = JobPaths(tmp_path)
    findings = findings_of({"eval_loss": 0.1, "predict_rouge-l": 2.0})
    keep_findings(paths, findings, lab.redactor)
    assert kept_findings(paths) == findings
    for text in ("", "[1]", '[{"name": 1}]', "{}"):
        paths.findings.write_text(text, encoding="utf-8")
        assert kept_findings(paths) == []
