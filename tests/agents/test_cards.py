"""What an experiment's branch tells a person, and that its command does what it says."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.cards import Entry, Rerun, describe, experiment_files, recorded_batch, result_files
from nightlab.agents.code_space import NO_CODE
from nightlab.agents.context import Lab
from nightlab.knowledge.records import (
    Effect,
    Experiment,
    Job,
    Observation,
    Phase,
    Run,
    RunState,
    Verdict,
    VerdictKind,
)
from nightlab.search.attribution import Move
from nightlab.tools.launchers import launcher_for
from nightlab.tools.redaction import Redactor
from tests.agents.lab import executed, new_lab, planned
from tests.face.calling import call
from tests.task import git

ENVIRONMENT = {
    "command": "{python} ../train.py",
    "cwd": "sub",
    "parameters": {"via": "environment", "prefix": "HP_"},
}
BY_ENVIRONMENT = """\
import os
print("val_loss:", float(os.environ["HP_LR"]) + int(os.environ["NIGHTLAB_SEED"]))
print("memory_mb: 1")
"""


def shell_lines(text: str) -> list[str]:
    match = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert match, text
    return match.group(1).splitlines()


def run_again(lab: Lab, run: Run, folder: Path) -> str:
    """Follow EXPERIMENT.md in a fresh clone; returns what the command printed."""
    branch = lab.ledger.experiment(run.number).branch
    git(lab.paths.root, "clone", "-q", "--no-local", str(lab.paths.root), str(folder))
    lines = shell_lines(git(lab.paths.root, "show", f"{branch}:EXPERIMENT.md"))
    script = "\n".join(["set -e", *lines])
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_command_on_the_branch_repeats_the_run_anywhere(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        (run,) = executed(lab, planned(lab, {"lr": 0.01}))
        observation = lab.ledger.observation(run.key)
        assert observation is not None
        assert f"val_loss: {observation.values['val_loss']:.6f}" in run_again(lab, run, tmp_path / "clone")
        configuration = json.loads((tmp_path / "clone" / "experiment.json").read_text())
        assert configuration["command"] == ["python", "train.py", "--params", "params.json", "--seed", "{seed}"]
        assert str(tmp_path) not in (tmp_path / "clone" / "experiment.json").read_text()


def test_so_does_one_that_gets_its_parameters_by_the_environment_in_a_folder(tmp_path: Path) -> None:
    files = {"sub/.keep": "", "train.py": BY_ENVIRONMENT}
    with new_lab(tmp_path, extra=files, launcher=ENVIRONMENT) as lab:
        (run,) = executed(lab, planned(lab, {"lr": 0.01}))
        assert run.state is RunState.REVIEWED, run.detail
        assert "val_loss: 0.01\n" in run_again(lab, run, tmp_path / "clone")
        experiment = lab.ledger.experiment(run.number)
        rerun = Rerun.of(launcher_for(lab.study), experiment, lab.paths.worktree(run.number))
        line = rerun.line(7)
        assert line.startswith("cd sub && ") and "NIGHTLAB_SEED=7" in line and "HP_LR=0.01" in line
        assert line.endswith("python ../train.py")


BATCHED: dict[str, Any] = {
    "parameters": {"lr": 0.001, "micro_batch": 4, "grad_accum": 2, "width": 32, "color": "red", "crash": "no"}
    | {"seconds": 0, "steps": 10},
    "space": {"grad_accum": {"levels": [8]}},
}


def test_the_effective_batch_stands_on_the_branch_and_is_shown(tmp_path: Path) -> None:
    line = "Effective batch: 32 = 1 × 4 × 8 (world size × per-device batch × accumulation)."
    with new_lab(tmp_path, **BATCHED) as lab:
        (run,) = executed(lab, planned(lab, {"grad_accum": 8}))
        experiment, tree = lab.ledger.experiment(run.number), lab.paths.worktree(run.number)
        written = git(lab.paths.root, "show", f"{experiment.branch}:EXPERIMENT.md")
        ended = result_files(lab.study, experiment, [], None, lab.launcher, tree, lab.redactor)["EXPERIMENT.md"]
        root = lab.paths.root
    assert line in written and line in ended
    shown = call(root, "show", str(run.number))
    assert (shown.status, shown.err) == (0, "") and line in shown.out
    told = json.loads(call(root, "show", str(run.number), "--json").out)["effective_batch"]
    assert told == {"world_size": 1, "per_device": 4, "accumulation": 8, "size": 32}
    git(root, "worktree", "remove", "--force", str(tree))
    git(root, "branch", "-D", experiment.branch)
    git(root, "reflog", "expire", "--expire=now", "--all")
    git(root, "gc", "-q", "--prune=now")
    gone = call(root, "show", str(run.number))
    assert gone.status == 0 and "Effective batch" not in gone.out


def test_where_nothing_is_named_like_a_batch_nothing_is_told(lab: Lab) -> None:
    files = experiment_files(lab.study, EXPERIMENT, lab.launcher, lab.paths.root, lab.redactor, NO_CODE)
    assert "ffective" not in "".join(files.values())
    assert recorded_batch(files["experiment.json"]) is None


EXPERIMENT = Experiment(
    study="tiny",
    number=7,
    scenario="toy",
    method="pretrain",
    base_model="none",
    variable="lr-0-01",
    technique="lr",
    parameters={"lr": 0.01},
    changed={"lr": 0.01},
    phase=Phase.SCREEN,
    reason="single change: lr 0.001 → 0.01",
    branch="experiment-07-toy-pretrain-lr-0-01",
    base_commit="b" * 40,
    commit="c" * 40,
)
RUN = Run(key="tiny/07/1/0", study="tiny", number=7, seed=0, phase=Phase.SCREEN, reason="r", state=RunState.REVIEWED)
JOB = Job(key=RUN.key, backend="local", native_id="4711", slot=1, directory="/secret/path", worktree="/secret/tree")
OBSERVATION = Observation(key=RUN.key, values={"val_loss": 1.812345678, "memory_mb": 12.5})
EFFECT = Effect(delta=0.2, low=0.15, high=0.25, unit="nats", runs=1, baseline_runs=3)


def verdict(kind: VerdictKind, label: str) -> Verdict:
    return Verdict(number=7, kind=kind, effect=EFFECT, basis=Phase.SCREEN, label=label, reason="because of it")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    with new_lab(tmp_path_factory.mktemp("cards")) as lab:
        return lab


def test_before_its_first_run_it_says_what_and_why(lab: Lab) -> None:
    text = describe(lab.study, EXPERIMENT, [], None)
    assert "# Experiment 07: lr-0-01" in text
    assert "- `lr`: `0.001` → `0.01`" in text and "single change" in text
    assert "None yet: no run has ended." in text and "Wait for its runs" in text
    assert "nightlab catalog show lr" in text


def test_a_move_around_an_earlier_experiment_is_told_against_it(lab: Lab) -> None:
    both = EXPERIMENT.model_copy(update={"changed": {"lr": 0.01, "color": "blue"}})
    move = Move("color", None, "blue", 3, {"color": "blue"}, {"color": "red"}, EFFECT)
    text = describe(lab.study, both, [(RUN, JOB, OBSERVATION)], verdict(VerdictKind.DISCARD, "worse"), move=move)
    against, alone = text.index("Against experiment 03"), text.index("What `color` alone did, against experiment 03")
    assert text.index("Against the baseline:") < text.index("- `lr`: `0.001` → `0.01`") < against < alone
    assert "- `color`: `red` → `blue`" in text[against:alone] and "`lr`: " not in text[against:alone]
    assert "Against the baseline:" not in describe(lab.study, EXPERIMENT, [], None)


def test_afterwards_it_tells_each_run_and_the_verdict(lab: Lab) -> None:
    failed = RUN.model_copy(
        update={"seed": 1, "state": RunState.FAILED, "cause": "exit-status", "detail": "boom | out\nof luck"}
    )
    waiting = RUN.model_copy(update={"seed": 2, "state": RunState.REJECTED, "detail": "frozen path changed: a"})
    entries = [(RUN, JOB, OBSERVATION), (failed, None, None), (waiting, JOB, OBSERVATION)]
    text = describe(lab.study, EXPERIMENT, entries, verdict(VerdictKind.DISCARD, "worse"))
    assert "**Discard** (worse): because of it." in text
    assert "| 0 | screen | 1 | val_loss 1.81235, memory_mb 12.5 | 4711 | seed-0-attempt-1 |" in text
    assert "| 1 | screen | 1 | failed: exit-status. boom \\| out of luck | – | – |" in text
    assert "**rejected**: frozen path changed: a" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}


@pytest.mark.parametrize(
    ("kind", "label", "step"),
    [
        (VerdictKind.KEEP, "confirmed", "git merge experiment-07-toy-pretrain-lr-0-01"),
        (VerdictKind.INCONCLUSIVE, "promising", "not confirmed on fresh seeds"),
        (VerdictKind.INCONCLUSIVE, "not confirmed", "not sure any more"),
        (VerdictKind.INCONCLUSIVE, "unstable", "nightlab logs 7"),
        (VerdictKind.INCONCLUSIVE, "too close to call", "More seeds"),
        (VerdictKind.DISCARD, "worse", "not worth having"),
        (VerdictKind.REJECTED, "rejected", "what the review found"),
        (VerdictKind.FAILED, "failed", "nightlab logs 7"),
        (VerdictKind.PRUNED, "pruned", "clearly behind"),
    ],
)
def test_each_verdict_has_its_next_step(lab: Lab, kind: VerdictKind, label: str, step: str) -> None:
    assert step in describe(lab.study, EXPERIMENT, [(RUN, JOB, OBSERVATION)], verdict(kind, label))


def test_the_card_holds_everything_but_this_machines_paths(lab: Lab) -> None:
    tree = lab.paths.root
    keep = verdict(VerdictKind.KEEP, "confirmed")
    files = result_files(lab.study, EXPERIMENT, [(RUN, JOB, OBSERVATION)], keep, lab.launcher, tree, lab.redactor)
    card = json.loads(files["RESULT.json"])
    assert Verdict.model_validate(card["verdict"]) == keep
    (entry,) = card["runs"]
    assert Run.model_validate(entry["run"]) == RUN
    assert Observation.model_validate(entry["observation"]) == OBSERVATION
    assert entry["job"]["native_id"] == "4711"
    assert "/secret" not in files["RESULT.json"] + files["EXPERIMENT.md"]
    assert card["metric"] == {"name": "val_loss", "direction": "minimize", "unit": "nats"}


def test_card_and_description_are_written_without_secrets(lab: Lab) -> None:
    told = verdict(VerdictKind.KEEP, "confirmed").model_copy(update={"reason": "better with key s3cret-of-ours"})
    redactor = Redactor([("OUR_KEY", "s3cret-of-ours")])
    entries: list[Entry] = [(RUN, JOB, OBSERVATION)]
    files = result_files(lab.study, EXPERIMENT, entries, told, lab.launcher, lab.paths.root, redactor)
    assert all("better with key [redacted:OUR_KEY]" in text for text in files.values())
    assert not any("s3cret" in text for text in files.values())
