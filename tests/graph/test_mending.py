"""A failure that only a person can mend: asked about at once, in nobody's way but its own experiment's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.graph.driver import run_lab
from nightlab.graph.mending import SPENT
from nightlab.graph.questions import AUTO
from nightlab.knowledge.records import Question, Run, RunState, StudyStatus
from tests.agents.lab import new_lab, opened

LICENCE = {
    "id": "licence",
    "regex": "accept the licence of",
    "example": "accept the licence of blue first",
    "cause": "nobody has accepted the licence",
    "remedy": "accept it on the model's page",
    "action": "ask_user",
}


@contextmanager
def lab_where(folder: Path, fails: str, *, signature: dict[str, str] = LICENCE, **changes: Any) -> Iterator[Lab]:
    """A lab whose runs fail with the signature where `fails` holds and the file `accepted` is not there."""
    # The task has reported already; a failed run's metric is not looked at.
    body = f"if {fails} and not os.path.exists({str(folder / 'accepted')!r}):\n    sys.exit({signature['example']!r})\n"
    settings: dict[str, Any] = {
        "failures": {"file": "signatures.yaml"},
        "approvals": {"repeated_failure": "ask"},
        "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1},
        "space": {"lr": {"levels": [0.01]}, "color": {"levels": ["blue"]}},
        "forbid": [{"lr": 0.01, "color": "blue"}],
        "budget": {"runs": 14},
    }
    files = {"signatures.yaml": json.dumps({"signatures": [signature]})}
    with new_lab(folder, append=body, extra=files, **(settings | changes)) as lab:
        yield lab


BLUE = "p['color'] == 'blue'"


def blue_runs(lab: Lab) -> list[Run]:
    number = next(e.number for e in lab.ledger.experiments() if e.changed.get("color") == "blue")
    return lab.ledger.runs(number)


def only_question(lab: Lab) -> Question:
    (question,) = [question for question in lab.ledger.questions() if question.kind == "failure"]
    return question


@pytest.fixture
def asking(tmp_path: Path) -> Path:
    """A night that has done everything but what waits for an answer."""
    with lab_where(tmp_path, BLUE) as lab:
        assert run_lab(lab) is StudyStatus.WAITING
        return lab.study_file


def test_it_is_asked_at_the_first_failure_and_everything_else_goes_on(asking: Path) -> None:
    with opened(asking) as lab:
        question, (run,) = only_question(lab), blue_runs(lab)
        assert question.id == f"failure-{run.number:02d}-licence" and question.answer is None
        assert question.options == ["give-up", "retry", "stop"] and question.default == "give-up"
        assert question.blocks == [f"experiment:{run.number:02d}"]
        assert "needs a person: licence. nobody has accepted the licence: accept the licence of blue" in question.text
        assert question.evidence == str(lab.paths.experiment_logs(run.number))
        assert run.number not in lab.ledger.verdicts(), "nothing is known of it yet"
        lr = next(e.number for e in lab.ledger.experiments() if e.changed == {"lr": 0.01})
        assert lr in lab.ledger.verdicts()


def test_mended_and_tried_again_it_counts_as_any_other(asking: Path) -> None:
    with opened(asking) as lab:
        (asking.parent.parent / "accepted").touch()
        lab.ledger.answer(only_question(lab).id, "retry", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        first, second = blue_runs(lab)[:2]
        assert (first.next_step, second.attempt, second.state) == ("retry", 2, RunState.REVIEWED)
        assert lab.ledger.verdicts()[first.number].kind != "failed"


def test_not_mended_after_all_it_is_a_new_question(asking: Path) -> None:
    with opened(asking) as lab:
        lab.ledger.answer(only_question(lab).id, "retry", by="ada")
        assert run_lab(lab) is StudyStatus.WAITING
        (second,) = lab.ledger.questions(open_only=True)
        assert second.id.endswith("-licence-2")
        lab.ledger.answer(second.id, "give-up", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        assert [run.next_step for run in blue_runs(lab)] == ["retry", "give_up"]
        assert lab.ledger.verdicts()[blue_runs(lab)[0].number].kind == "failed"


def test_stop_ends_the_study(asking: Path) -> None:
    with opened(asking) as lab:
        runs = len(lab.ledger.runs())
        lab.ledger.answer(only_question(lab).id, "stop", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        assert len(lab.ledger.runs()) == runs


def test_a_baseline_that_needs_a_person_waits_for_one(tmp_path: Path) -> None:
    with lab_where(tmp_path, "True") as lab:
        assert run_lab(lab) is StudyStatus.WAITING
        assert {run.number for run in lab.ledger.runs()} == {0}
        (tmp_path / "accepted").touch()
        for question in lab.ledger.questions(open_only=True):
            lab.ledger.answer(question.id, "retry" if question.kind == "failure" else "go-on", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        assert {run.state for run in lab.ledger.runs() if run.attempt == 2} == {RunState.REVIEWED}
        assert len(lab.ledger.verdicts()) >= 2


def test_auto_gives_it_up_at_once(tmp_path: Path) -> None:
    with lab_where(tmp_path, BLUE, approvals={"repeated_failure": "auto"}) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        question = only_question(lab)
        assert (question.answer, question.answered_by) == ("give-up", AUTO)
        assert [run.next_step for run in blue_runs(lab)] == ["give_up"]
        assert lab.ledger.verdicts()[blue_runs(lab)[0].number].kind == "failed"


def test_without_budget_for_another_attempt_nothing_is_waited_for(tmp_path: Path) -> None:
    with lab_where(tmp_path, BLUE, budget={"runs": 4}) as lab:
        assert run_lab(lab) is StudyStatus.FINISHED
        assert len(lab.ledger.runs()) == 4
        for question in lab.ledger.questions():
            assert question.kind != "failure" or question.answered_by == SPENT
        assert [run.next_step for run in blue_runs(lab)] == ["give_up"]


def test_where_a_remedy_exists_it_is_offered_and_taken(tmp_path: Path) -> None:
    login = LICENCE | {"id": "tracker_login"}
    with lab_where(tmp_path, BLUE + " and 'WANDB_MODE' not in os.environ", signature=login) as lab:
        assert run_lab(lab) is StudyStatus.WAITING
        question = only_question(lab)
        assert question.options == ["give-up", "retry", "retry-changed", "stop"]
        lab.ledger.answer(question.id, "retry-changed", by="ada")
        assert run_lab(lab) is StudyStatus.FINISHED
        second = blue_runs(lab)[1]
        assert (second.attempt, second.remedies, second.state) == (2, ["tracker_login"], RunState.REVIEWED)
        assert second.extra_env == {"WANDB_MODE": "offline"}
