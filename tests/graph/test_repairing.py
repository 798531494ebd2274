"""A code idea that fails is mended once by a model and tried again as the same idea, whatever kills the lab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.scripted_model import ScriptedModel
from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import RunState, VerdictKind
from tests.agents.mending import FIX, Mender, make_mending_repository
from tests.task import git

SEARCH = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_seeds_most": 2, "confirm_candidates": 1}


def test_killed_again_and_again_an_idea_is_mended_once_and_its_win_reviewed_once(tmp_path: Path) -> None:
    mender = Mender(FIX)
    with ScriptedModel(mender) as server:
        changes: dict[str, Any] = {"space": {}, "search": SEARCH, "budget": {"runs": 13}}
        file = make_mending_repository(tmp_path / "repo", server.base_url, **changes)
        command = [sys.executable, "-m", "tests.graph.killing", str(file), "20"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 5, "killed often enough to mean something"
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        idea = next(one for one in ledger.ideas() if one.name == "decaying-steps")
        first, second, *_ = ledger.runs(1)
        assert (first.state, second.state) == (RunState.FAILED, RunState.REVIEWED)
        assert (second.seed, second.attempt, idea.mended) == (first.seed, 2, first.cause)
        assert sum("amended by scripted" in event.text for event in ledger.events()) == 1
        # The branch holds what was run, and the audit took it for the idea's own code.
        branch = ledger.experiment(1).branch
        assert "DECAY[min(step, 99)]" in git(file.parent, "show", f"{branch}:train.py")
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP
        assert [(one.key, one.state) for one in ledger.reviews()] == [("review/01/confirm", "answered")]
        assert sum(event.kind == "review" for event in ledger.events()) == 1
    assert mender.repairs and all("IndexError" in text for text in mender.repairs)
