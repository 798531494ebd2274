"""A plan that waits for a person: asked once, answered at any time, never in the way of what runs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from langgraph.types import Command
from pydantic import ValidationError

from nightlab.agents.context import Lab
from nightlab.errors import LedgerError
from nightlab.graph.budget import answered_spend
from nightlab.graph.checkpoints import open_checkpoints
from nightlab.graph.decisions import answered_failure, failure_question, spend_question
from nightlab.graph.driver import run_lab
from nightlab.graph.questions import (
    AUTO,
    DEADLINE,
    PLAN,
    ask_plan,
    blocking,
    decides_the_end,
    is_held,
    plan_is_declined,
    plan_is_open,
    settle_overdue,
)
from nightlab.graph.supervisor import build_supervisor
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import RunState, StudyStatus, utc_now
from nightlab.tools.failures.breaker import Trip
from tests.agents.lab import new_lab, opened
from tests.face.gated import wait_until
from tests.task import study_data

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
        first = ask_plan(lab)
        assert ask_plan(lab) == first and asked(lab) == 1
        with pytest.raises(LedgerError, match="'maybe' is not among yes, no"):
            lab.ledger.answer(PLAN, "maybe", by="ada")


def test_a_plan_approved_beforehand_is_never_open(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        assert not plan_is_open(lab) and not plan_is_declined(lab)


def test_without_an_answer_by_the_deadline_the_lab_goes_on_by_itself(tmp_path: Path) -> None:
    approvals = {"plan": {"policy": "ask-with-default", "deadline": 0.05}}
    with new_lab(tmp_path, **(ASKING | {"approvals": approvals})) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        question = lab.ledger.question(PLAN)
        assert question is not None and (question.answer, question.answered_by) == ("yes", DEADLINE)
        assert question.deadline is not None and question.answered_at is not None
        assert question.asked_at < question.deadline <= question.answered_at
        assert {run.number for run in lab.ledger.runs()} == {0, 1}


def test_an_answer_reaches_a_lab_that_waits(tmp_path: Path) -> None:
    approvals = {"plan": {"policy": "ask-with-default", "deadline": "9h"}}

    def answer(path: Path) -> None:
        with Ledger.open(path) as ledger:
            wait_until(lambda: ledger.question(PLAN) is not None)
            ledger.answer(PLAN, "no", by="ada")

    with new_lab(tmp_path, **(ASKING | {"approvals": approvals})) as lab:
        person = threading.Thread(target=answer, args=(lab.paths.ledger,))
        person.start()
        assert run_lab(lab) is StudyStatus.FINISHED
        person.join()
        assert {run.number for run in lab.ledger.runs()} == {0}


def test_who_no_longer_wants_to_be_asked_has_said_yes(study: Path) -> None:
    study.write_text(yaml.safe_dump(study_data(**(ASKING | {"approvals": {"plan": "auto"}}))))
    with opened(study) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        question = lab.ledger.question(PLAN)
        assert question is not None and (question.answer, question.answered_by) == ("yes", AUTO)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    """A lab whose study asks about everything, nothing begun."""
    approvals = {"spend": "ask", "repeated_failure": "ask", "base_model": "ask", "winner": "ask"}
    with new_lab(tmp_path, **(ASKING | {"approvals": approvals})) as lab:
        yield lab


TRIP = Trip(cause="out-of-memory", factor="lr", numbers=(3, 5), failures=3)
STUDY_TRIP = Trip(cause="exit-status", factor=None, numbers=(0,), failures=3)


def test_spending_more_holds_up_planning_until_it_is_answered(lab: Lab) -> None:
    assert answered_spend(lab, "gpu-hours", 10) is None and not is_held(lab)
    question = spend_question(lab, "gpu-hours", 9.5, 10)
    assert spend_question(lab, "gpu-hours", 9.9, 10) == question and asked(lab) == 1
    assert (question.default, question.deadline) == ("no", None)
    assert answered_spend(lab, "gpu-hours", 10) is None and is_held(lab)
    lab.ledger.answer(question.id, "yes", by="ada")
    assert answered_spend(lab, "gpu-hours", 10) is True and not is_held(lab)
    assert spend_question(lab, "gpu-hours", 20, 20).id != question.id


def test_where_nobody_is_to_be_asked_nothing_more_is_spent(tmp_path: Path) -> None:
    with new_lab(tmp_path, **(ASKING | {"approvals": {"spend": "auto"}})) as lab:
        question = spend_question(lab, "cost", 5, 5)
        assert (question.answer, question.answered_by) == ("no", AUTO)
        assert answered_spend(lab, "cost", 5) is False and not is_held(lab)


def test_a_failing_factor_holds_up_only_itself(lab: Lab) -> None:
    question = failure_question(lab, TRIP)
    assert question.options == ["leave-out", "go-on", "stop"]
    assert blocking(lab) == {"factor:lr"} and not is_held(lab)
    assert answered_failure(lab, TRIP) is None
    lab.ledger.answer(question.id, "leave-out", by="ada")
    assert answered_failure(lab, TRIP) == "leave-out" and blocking(lab) == set()
    assert failure_question(lab, TRIP).answer == "leave-out" and not decides_the_end(lab)


def test_a_failing_study_is_stopped_by_the_answer(lab: Lab) -> None:
    question = failure_question(lab, STUDY_TRIP)
    assert (question.options, question.default) == (["stop", "go-on"], "stop") and is_held(lab)
    lab.ledger.answer(question.id, "stop", by="ada")
    assert decides_the_end(lab) and run_lab(lab) is StudyStatus.FINISHED
    assert lab.ledger.jobs() == []


def test_deadlines_that_have_passed_are_settled_and_told(tmp_path: Path) -> None:
    with new_lab(tmp_path, **ASKING) as lab:
        question = failure_question(lab, TRIP)
        assert settle_overdue(lab) == []
        lab.now = lambda: utc_now() + timedelta(minutes=31)
        (settled,) = settle_overdue(lab)
        assert (settled.id, settled.answer, settled.answered_by) == (question.id, "leave-out", DEADLINE)
        assert settle_overdue(lab) == [] and lab.ledger.events()[-1].kind == "answered"


def test_at_the_end_of_the_time_no_question_holds_up_anything(lab: Lab) -> None:
    spend_question(lab, "cost", 5, 5)
    lab.deadline = lab.now() - timedelta(seconds=1)
    assert not is_held(lab) and blocking(lab) == set()


def test_a_program_answers_the_interrupt_and_a_wrong_answer_can_be_mended(lab: Lab) -> None:
    failure_question(lab, TRIP)
    config: Any = {"configurable": {"thread_id": "tiny"}, "recursion_limit": 10_000}
    assert run_lab(lab) is StudyStatus.WAITING, "everything else was done first"
    assert lab.ledger.experiments()[0].card_commit is not None
    with open_checkpoints(lab.paths.checkpoints) as saver:
        graph = build_supervisor(saver)
        (pending,) = graph.get_state(config).interrupts
        for wrong in ({"answer": "perhaps", "by": "ada"}, {"answer": "go-on"}, "go-on"):
            with pytest.raises(ValidationError):
                graph.invoke(Command(resume={pending.id: wrong}), config, context=lab)
        assert lab.ledger.questions(open_only=True) and graph.get_state(config).interrupts == (pending,)
        given = {"answer": "leave-out", "by": "a program"}
        graph.invoke(Command(resume={pending.id: given}), config, context=lab)
    assert answered_failure(lab, TRIP) == "leave-out"
    assert lab.ledger.study_row().finished_at is not None


def test_a_paused_lab_starts_nothing_and_stays(tmp_path: Path) -> None:
    with new_lab(tmp_path, **(ASKING | {"approvals": {}})) as lab:
        lab.ledger.update_study(paused=True)
        looks = iter(range(12))
        lab.stop_requested = lambda: next(looks, None) is None
        assert run_lab(lab) is StudyStatus.STOPPED and lab.ledger.runs() == []
        lab.ledger.update_study(paused=False)
        lab.stop_requested = lambda: False
        assert run_lab(lab) is StudyStatus.FINISHED


def test_when_nothing_helps_a_person_is_asked_about_the_base_model(tmp_path: Path) -> None:
    changes = ASKING | {"approvals": {}, "space": {"color": {"levels": ["blue"]}}, "budget": {"runs": 30}}
    with new_lab(tmp_path, **changes) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        (question,) = lab.ledger.questions()
        assert (question.kind, question.default, question.blocks) == ("base-model", "keep", [])
