"""`approvals: {plan: ask}` and budgets of time, as a person meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.types import Command

from nightlab.configs.loading import load_study
from nightlab.graph.checkpoints import open_checkpoints
from nightlab.graph.opening import locate, open_lab
from nightlab.graph.supervisor import build_supervisor
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import RunState
from tests.face.calling import call
from tests.face.gated import GatedStudy
from tests.task import make_repository

ASK = {"approvals": {"plan": "ask"}, "budget": {"experiments": 1}}


def test_a_plan_that_is_approved_is_carried_out(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", **ASK).parent
    asked = call(root, "run")
    assert asked.status == 0
    assert "Go on with the plan in .nightlab/tiny/improve_guide.md?" in asked.out
    assert "answer   nightlab answer plan yes|no\n" in asked.out
    assert "waiting for an answer" in call(root, "status").out
    again = call(root, "run")
    assert again.status == 0 and "nightlab answer plan yes|no" in again.out
    wrong = call(root, "answer", "plan", "maybe")
    assert wrong.status == 2 and wrong.err == "nightlab: question plan: 'maybe' is not among yes, no\n"
    assert call(root, "answer", "plan", "yes").out == "plan: yes. Go on: nightlab run\n"
    assert call(root, "answer", "plan", "no").status == 2
    done = call(root, "run")
    assert done.status == 0 and "finished: every verdict is in" in done.out
    assert "No confirmed improvement. None of 1 experiment beat" in call(root, "results").out


def test_a_plan_that_is_refused_ends_the_study_with_a_report(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", **ASK).parent
    call(root, "run")
    call(root, "answer", "plan", "no")
    done = call(root, "run")
    assert done.status == 0 and "No experiment beyond the baseline" in done.out
    assert "No experiment beyond the baseline" in (root / ".nightlab" / "tiny" / "final_report.md").read_text()
    assert "finished already" in call(root, "run").out


def test_the_question_is_an_interrupt_of_the_graph(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", **ASK)
    call(file.parent, "run")
    loaded = load_study(file)
    place = locate(loaded)
    config: Any = {"configurable": {"thread_id": "tiny"}, "recursion_limit": 10_000}
    with open_lab(place, loaded.study) as lab, open_checkpoints(place.paths.checkpoints) as saver:
        graph = build_supervisor(saver)
        (question,) = graph.get_state(config).interrupts
        assert question.value["id"] == "plan" and question.value["options"] == ["yes", "no"]
        graph.invoke(Command(resume={question.id: {"answer": "no", "by": "a program"}}), config, context=lab)
        assert lab.ledger.question("plan").answered_by == "a program"  # type: ignore[union-attr]
        assert lab.ledger.study_row().finished_at is not None


def test_jobs_cut_at_the_deadline_are_cancelled_and_the_report_says_so(tmp_path: Path) -> None:
    study = GatedStudy(tmp_path, budget={"duration": "7s"})
    done = call(study.root, "run")
    assert done.status == 1
    with Ledger.open(study.root / ".nightlab" / "tiny" / "ledger.sqlite") as ledger:
        row = ledger.study_row()
        assert row.deadline and row.finished_at and row.finished_at >= row.deadline
        assert {run.state for run in ledger.runs()} == {RunState.CANCELLED}
        assert {run.cause for run in ledger.runs()} == {"deadline"}
    assert study.busy_slots() == 0
    assert "No run was measured. The time ran out before the first run had ended." in done.out
