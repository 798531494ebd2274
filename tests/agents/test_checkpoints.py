"""What is left of checkpoints once an experiment is judged: by the study's policy, for losers and the winner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.agents.review import conclude_experiment
from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Phase, Run, RunState, Verdict, VerdictKind
from tests.agents.lab import executed, new_lab, planned

SAVES = """
import pathlib
out = pathlib.Path(os.environ["NIGHTLAB_OUTPUT_DIR"])
history = [{"step": 1, "val_loss": 3.0}, {"step": 2, "val_loss": 1.0}, {"step": 3, "val_loss": 2.0}]
for step in (1, 2, 3):
    (out / f"checkpoint-{step}").mkdir()
    (out / f"checkpoint-{step}" / "model.safetensors").write_bytes(b"x" * 100_000)
(out / "trainer_state.json").write_text(json.dumps({"log_history": history}))
(out / "model.safetensors").write_bytes(b"x" * 100_000)
"""
TRAINER = f"""
import json, os
print("val_loss: 1.0")
print("memory_mb: 1")
{SAVES}
"""
ARGUMENTS: dict[str, Scalar] = {"learning_rate": 0.001}
BASELINE: dict[str, Scalar] = {}
CHANGE: dict[str, Scalar] = {"lr": 0.1}


@contextmanager
def lab_with(folder: Path, **policy: Any) -> Iterator[Lab]:
    with new_lab(folder, append=SAVES, checkpoints=policy) as lab:
        yield lab


def ran(lab: Lab, changed: dict[str, Scalar]) -> Run:
    (run,) = executed(lab, planned(lab, changed))
    assert run.state is RunState.REVIEWED, run.detail
    return run


def conclude(lab: Lab, run: Run, kind: VerdictKind | None) -> None:
    verdict = Verdict(number=run.number, kind=kind, label=kind.value, reason="", basis=Phase.SCREEN) if kind else None
    conclude_experiment(lab, lab.ledger.experiment(run.number), verdict)


def left(lab: Lab, run: Run) -> list[str]:
    output = lab.paths.job(run.number, run.seed, run.attempt).output
    return sorted(str(file.relative_to(output)) for file in output.rglob("*.safetensors"))


def told(lab: Lab) -> list[str]:
    return [event.text for event in lab.ledger.events() if event.kind == "checkpoints"]


ALL = [*(f"checkpoint-{step}/model.safetensors" for step in (1, 2, 3)), "model.safetensors"]


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ({}, ALL),
        ({"keep": "best"}, [ALL[1], ALL[3]]),
        ({"keep": "last"}, [ALL[2], ALL[3]]),
        ({"keep": "none"}, [ALL[3]]),
        ({"keep": "none", "final_weights": False}, []),
    ],
)
def test_of_a_change_that_did_not_win(policy: dict[str, Any], kept: list[str], tmp_path: Path) -> None:
    with lab_with(tmp_path, **policy) as lab:
        run = ran(lab, CHANGE)
        conclude(lab, run, VerdictKind.DISCARD)
        assert left(lab, run) == kept
        gone = len(ALL) - len(kept)
        assert bool(told(lab)) is bool(gone)
        if gone:
            assert told(lab)[0].startswith(f"{gone} removed by the policy ({policy['keep']})"), told(lab)


def test_of_the_winner_and_the_baseline_the_best_stays(tmp_path: Path) -> None:
    with lab_with(tmp_path, keep="none", final_weights=False) as lab:
        baseline, winner = ran(lab, BASELINE), ran(lab, CHANGE)
        conclude(lab, baseline, None)
        conclude(lab, winner, VerdictKind.KEEP)
        assert left(lab, baseline) == left(lab, winner) == [ALL[1], ALL[3]]
        assert len(told(lab)) == 2
        conclude(lab, winner, VerdictKind.KEEP)
        assert len(told(lab)) == 2, "repeating it changes nothing"


def test_how_the_winners_weights_are_merged_is_told_once(tmp_path: Path) -> None:
    launcher = {
        "kind": "llamafactory",
        "command": "{python} train.py --params nightlab_train.yaml",
        "settings": {"dataset": "d", "finetuning_type": "lora"},
    }
    with new_lab(
        tmp_path, launcher=launcher, extra={"train.py": TRAINER}, parameters=ARGUMENTS, space={}, locked=[]
    ) as lab:
        run = ran(lab, {"learning_rate": 0.01})
        conclude(lab, run, VerdictKind.KEEP)
        conclude(lab, run, VerdictKind.KEEP)
        (merge,) = [event.text for event in lab.ledger.events() if event.kind == "merge"]
        output = lab.paths.job(run.number, run.seed, run.attempt).output
        assert f"--adapter_name_or_path={output}/checkpoint-2" in merge
