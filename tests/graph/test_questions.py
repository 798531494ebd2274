"""A plan that waits for a person: asked once, answered at any time, never in the way of what runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.errors import LedgerError
from nightlab.graph.driver import run_lab
from nightlab.graph.questions import PLAN, plan_is_declined, plan_is_open, plan_question
from nightlab.knowledge.records import RunState, StudyStatus
from tests.agents.lab import new_lab, opened

ASKING: dict[str, Any] = {
    "approvals": {"plan": "ask"},
    "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1},
    "space": {"lr": {"levels": [0.01]}},
    "budget": {"runs": 8},
}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study whose baseline is measured and whose plan waits."""
    with new_lab(tmp_path, **ASKING) as lab:
        assert run_lab(lab) is StudyStatus.WAITING
        return lab.study_file


def asked(lab: Lab) -> int:
    return sum(event.kind == "question" for event in lab.ledger.events())


def test_only_the_baseline_runs_before_the_answer(study: Path) -> None:
    with opened(study) as lab:
        assert {run.number for run in lab.ledger.runs()} == {0}
        assert {run.state for run in lab.ledger.runs()} == {RunState.REVIEWED}
        assert lab.paths.improve_guide.exists()
        (question,) = lab.ledger.questions(open_only=True)
        assert (question.id, question.default) == (PLAN, "no")
        assert plan_is_open(lab) and not plan_is_declined(lab)
        # A person may take days: what is settled is written down first.
        assert lab.ledger.experiment(0).card_commit is not None
        assert not any(lab.paths.worktrees.iterdir())


def test_running_again_without_an_answer_waits_on_and_asks_nothing_new(study: Path) -> None:
    for _ in range(2):
        with opened(study) as lab:
            assert run_lab(lab) is StudyStatus.WAITING
            assert asked(lab) == 1 and len(lab.ledger.questions()) == 1


def test_yes_goes_on_to_the_end(study: Path) -> None:
    with opened(study) as lab:
        lab.ledger.answer(PLAN, "yes", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        assert {run.number for run in lab.ledger.runs()} == {0, 1}
        question = lab.ledger.question(PLAN)
        assert question is not None and (question.answer, question.answered_by) == ("yes", "ada")


def test_an_answer_survives_a_stop_before_it_was_acted_on(study: Path) -> None:
    with opened(study) as lab:
        lab.ledger.answer(PLAN, "yes", by="ada")
        lab.stop_requested = lambda: True
        assert run_lab(lab) is StudyStatus.STOPPED
        assert {run.number for run in lab.ledger.runs()} == {0}
    with opened(study) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        assert {run.number for run in lab.ledger.runs()} == {0, 1}
        assert asked(lab) == 1


def test_no_ends_the_night_with_the_baseline_alone(study: Path) -> None:
    with opened(study) as lab:
        lab.ledger.answer(PLAN, "no", by="ada")
        assert plan_is_declined(lab)
        assert run_lab(lab) is StudyStatus.FINISHED
        assert {run.number for run in lab.ledger.runs()} == {0}


def test_nobody_answers_before_the_deadline_and_nothing_is_tried(study: Path) -> None:
    with opened(study) as lab:
        lab.deadline = lab.now() - timedelta(seconds=1)
        assert not plan_is_open(lab)
        assert run_lab(lab) is StudyStatus.FINISHED
        assert {run.number for run in lab.ledger.runs()} == {0}
        assert lab.ledger.questions(open_only=True), "with more time it can still be answered"


def test_the_question_stands_as_first_asked(study: Path) -> None:
    with opened(study) as lab:
        first = plan_question(lab)
        assert plan_question(lab) == first and asked(lab) == 1
        with pytest.raises(LedgerError, match="'maybe' is not among yes, no"):
            lab.ledger.answer(PLAN, "maybe", by="ada")


def test_a_plan_approved_beforehand_is_never_open(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        assert not plan_is_open(lab) and not plan_is_declined(lab)
