"""A night in which a run falls behind: it is ended, written down, and the slot goes to the next."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from nightlab.agents.history import history_of
from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import ExperimentState, RunState, VerdictKind
from nightlab.night import run_night
from tests.graph.test_night import ledger_of, quiet
from tests.task import commit_all, make_repository, study_data
from tests.torture.boundaries import PRUNING

TRAIN = """\
import argparse, json, math, random, time

parser = argparse.ArgumentParser()
parser.add_argument("--params")
parser.add_argument("--seed", type=int)
options = parser.parse_args()
p = json.load(open(options.params))
random.seed(json.dumps([p["lr"], options.seed]))
end = 1.0 - 0.2 * (p["lr"] == 0.01) + random.gauss(0.0, 0.005)
for step in range(1, 21):
    share = step / 20
    loss = end + 2.0 * math.exp(-5 * share)
    if p["color"] == "blue":
        loss = 3.0 - 0.1 * share
    if "late" in (p["lr_schedule"], p["shape"]):
        loss = 3.0 - 2.6 * share**3
        time.sleep(0.15)
    print(f"step {step}/20 | val_loss: {loss:.4f}", flush=True)
    if p["color"] == "blue" and step == p["stuck"]:
        time.sleep(600)
print(f"val_loss: {loss:.6f}")
print("memory_mb: 12.5")
"""
"""Reports its loss at every step. What is blue falls behind and takes ten minutes; what is late is so to its end."""


def repository(folder: Path, space: dict[str, Any], *, stuck: int = 9, **pruning: str) -> Path:
    parameters = {"lr": 0.001, "color": "red", "lr_schedule": "constant", "shape": "plain", "stuck": stuck}
    search = {"replicate_ties": 0, "confirm_seeds": 2, "confirm_candidates": 1, "pruning": pruning}
    file = make_repository(
        folder / "repo",
        parameters=parameters,
        space=space,
        locked=["stuck"],
        watchdog={"every": "0.2s"},
        launcher=study_data()["launcher"] | {"dry_run": {}},
        search=search,
        forbid=[{"color": "blue", "lr": 0.01}] if space == SPACE else [],
        budget={"runs": 12},
    )
    (file.parent / "train.py").write_text(TRAIN)
    (file.parent / "params.json").write_text(json.dumps(parameters))
    commit_all(file.parent, "report every step")
    return file


SPACE = {"color": {"levels": ["blue"], "tier": 1}, "lr": {"levels": [0.01], "tier": 2}}


def assert_blue_was_pruned_once(file: Path) -> None:
    study = load_study(file)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        (run,) = ledger.runs(blue.number)
        assert (run.state, run.cause) == (RunState.PRUNED, "pruned")
        assert run.detail.startswith("pruned at step 9 of 20: 2.95")
        assert [event.number for event in ledger.events() if event.kind == "pruned"] == [blue.number]
        verdict = ledger.verdict(blue.number)
        assert verdict is not None and (verdict.kind, verdict.reason) == (VerdictKind.PRUNED, run.detail)
        assert blue.state is ExperimentState.DISCARDED
        trial = next(trial for trial in history_of(ledger).trials if trial.number == blue.number)
        assert trial.state == "pruned" and trial.usable is None
        assert trial.value is not None and 1.5 < trial.value <= 2.955
        kept = [ledger.verdict(e.number) for e in ledger.experiments() if e.changed == {"lr": 0.01}]
        assert [verdict.kind for verdict in kept if verdict] == [VerdictKind.KEEP], "the night went on"
    lessons = read(locate(study).paths.lessons).lessons
    assert [lesson.verdict for lesson in lessons if lesson.parameters == {"color": "blue"}] == [VerdictKind.PRUNED]
    left = [p for p in psutil.process_iter(["cwd"]) if str(file.parent) in str(p.info["cwd"])]
    assert not left


def test_a_hopeless_run_is_ended_for_real_and_the_night_goes_on(tmp_path: Path) -> None:
    file = repository(tmp_path, SPACE)
    run_night(file, say=quiet)
    assert_blue_was_pruned_once(file)
    report = locate(load_study(file)).paths.final_report_md.read_text()
    assert "pruned at step 9 of 20" in report
    assert "1 run ended early for being clearly behind" in report
    assert "- Clearly behind: `color`" in report, "it did not fail"


def test_with_pruning_off_the_same_run_goes_on_to_its_end(tmp_path: Path) -> None:
    space = {"color": {"levels": ["blue"]}}
    file = repository(tmp_path, space, stuck=99, mode="off")
    run_night(file, say=quiet)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        assert {run.state for run in ledger.runs(blue.number)} == {RunState.REVIEWED}


@pytest.mark.parametrize(("name", "state"), [("lr_schedule", RunState.REVIEWED), ("shape", RunState.PRUNED)])
def test_a_run_of_another_schedule_is_not_compared_half_way(tmp_path: Path, name: str, state: RunState) -> None:
    """The same curve, behind to its very end and then the best: ended where it may be compared, else not."""
    file = repository(tmp_path, {name: {"levels": ["late"]}})
    run_night(file, say=quiet)
    with ledger_of(file) as ledger:
        late = next(e for e in ledger.experiments() if e.changed == {name: "late"})
        assert ledger.runs(late.number)[0].state is state


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", sorted(PRUNING))
def test_killed_around_the_pruning_the_run_is_ended_once_and_nothing_is_lost(
    tmp_path: Path, name: str, when: str
) -> None:
    file = repository(tmp_path, SPACE)
    command = [sys.executable, "-m", "tests.graph.killed_at", str(file), name, when]
    died = subprocess.run(command, capture_output=True, text=True, check=False)
    assert died.returncode == -signal.SIGKILL, died.stdout + died.stderr
    run_night(file, say=quiet)
    assert_blue_was_pruned_once(file)
