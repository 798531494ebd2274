"""Beginning a study and coming back to it: what may have changed meanwhile, and what may not."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.study import Study
from nightlab.errors import ConfigError
from nightlab.graph.opening import begin_study, resume_study
from nightlab.graph.state import GRAPH_VERSION
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyRow, StudyStatus, utc_now
from nightlab.worktrees.git import Git
from tests.task import make_repository, study_data

FILE = Path("study.yaml")


def study(**changes: Any) -> Study:
    return Study.model_validate(study_data(**changes))


@pytest.fixture(scope="module")
def git(tmp_path_factory: pytest.TempPathFactory) -> Git:
    return Git(make_repository(tmp_path_factory.mktemp("opening") / "repo").parent)


def begun(ledger: Ledger, git: Git, **changes: Any) -> StudyRow:
    return begin_study(ledger, study(**changes), git, git.head())


def test_a_study_begins_whole(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        row = begun(ledger, git, budget={"duration": "2h"})
        assert row == ledger.study_row()
        assert row.started_at is not None and row.deadline == row.started_at + timedelta(hours=2)
        assert row.frozen_hashes.keys() == {"prepare.py"} and row.phase == "understand"
        assert row.graph_version == str(GRAPH_VERSION)
        assert [event.kind for event in ledger.events()] == ["started"]


def test_an_unchanged_study_is_resumed_as_it_stands(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        row = begun(ledger, git)
        assert resume_study(ledger, row, study(), FILE) == row
        assert len(ledger.events()) == 1


def test_every_change_that_would_spoil_the_comparison_is_named_at_once(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        row = begun(ledger, git)
        with pytest.raises(ConfigError) as refused:
            resume_study(ledger, row, study(scenario="other", locked=["steps"], budget={"runs": 99}), FILE)
        assert [fault.key for fault in refused.value.faults] == ["scenario", "locked"]
        assert ledger.study_row() == row and len(ledger.events()) == 1


def test_goal_and_slots_may_change_and_the_story_says_so(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        row = begun(ledger, git)
        backend = study_data()["backend"] | {"slots": 1}
        new = resume_study(ledger, row, study(goal="better", backend=backend), FILE)
        assert (new.study.goal, new.study.backend.slots, new.deadline) == ("better", 1, row.deadline)
        assert ledger.events()[-1].text == "in the study file: goal, backend"


def test_more_budget_opens_a_finished_study_again_and_moves_its_deadline(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        begun(ledger, git, budget={"duration": "1h"})
        row = ledger.update_study(status=StudyStatus.FINISHED, finished_at=utc_now())
        new = resume_study(ledger, row, study(budget={"duration": "3h"}), FILE)
        assert (new.status, new.finished_at) == (StudyStatus.STOPPED, None)
        assert row.started_at is not None and new.deadline == row.started_at + timedelta(hours=3)
        finished = ledger.update_study(status=StudyStatus.FINISHED, finished_at=utc_now())
        again = resume_study(ledger, finished, study(goal="only words", budget={"duration": "3h"}), FILE)
        assert again.status is StudyStatus.FINISHED, "a new goal alone is no reason to go on"


def test_a_study_of_another_graph_is_refused(tmp_path: Path, git: Git) -> None:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        begun(ledger, git)
        row = ledger.update_study(graph_version="0")
        with pytest.raises(ConfigError, match="begun by another version"):
            resume_study(ledger, row, study(), FILE)
