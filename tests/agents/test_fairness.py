"""Runs with other means than the baseline: rejected where a declared quantity differs, else noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.agents.fairness import fairness_notes
from nightlab.errors import ConfigError
from nightlab.knowledge.records import RunState
from tests.agents.lab import executed, new_lab, planned

TOKENS = "print(f\"eval_tokens: {4000 if p['lr'] == 0.01 else 8000}\")\n"


def test_a_run_measured_on_fewer_tokens_than_the_baseline_is_rejected(tmp_path: Path) -> None:
    with new_lab(tmp_path, append=TOKENS, same=["eval_tokens"]) as lab:
        executed(lab, planned(lab, {}))
        cheat, honest = executed(lab, planned(lab, {"lr": 0.01}), planned(lab, {"width": 64}))
        assert (cheat.state, honest.state) == (RunState.REJECTED, RunState.REVIEWED)
        assert "eval_tokens is 4000, the baseline's 8000" in cheat.detail


def test_longer_runs_are_noted_and_believed(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        executed(lab, baseline := planned(lab, {}))
        (run,) = executed(lab, planned(lab, {"width": 64}))
        experiment = lab.ledger.experiment(1)
        assert run.state is RunState.REVIEWED and fairness_notes(lab, experiment) == []
        lab.ledger.update_job(baseline.key, wall_seconds=10.0)
        lab.ledger.update_job(run.key, wall_seconds=14.0)
        assert fairness_notes(lab, experiment) == [], "a larger model may take a little longer"
        lab.ledger.update_job(run.key, wall_seconds=40.0)
        assert fairness_notes(lab, experiment) == ["its runs took 40 s, the baseline's 10 s"]
        assert fairness_notes(lab, lab.ledger.experiment(0)) == []


def test_what_is_improved_cannot_be_what_stays_the_same(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is what is to be improved"), new_lab(tmp_path, same=["val_loss"]):
        pass
