"""Whether values a model proposes enter the plan: asked, answered, recorded, and a whole night with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import ScriptedModel
from nightlab.agents.analysis import rewrite_improve_guide
from nightlab.agents.brain import Advice, NewLevels
from nightlab.agents.context import Lab
from nightlab.agents.design import Design, read_design, write_design
from nightlab.agents.factors import design_of
from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.graph.proposals import FACTORS, LEAVE_OUT, TAKE, settle_proposals
from nightlab.graph.questions import AUTO, blocking, is_held, settle_overdue
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyStatus
from nightlab.night import run_night
from tests.agents.lab import new_lab, opened
from tests.task import make_repository

PARAMETERS: dict[str, Any] = {
    "lr": 0.001,
    "width": 32,
    "color": "red",
    "crash": "no",
    "seconds": 0,
    "steps": 10,
    "dropout": 0.0,
}
ADVICE = Advice(model="m", factors=(NewLevels("dropout", (0.1,), False, "it is there"),))


@contextmanager
def advised(folder: Path, policy: Any, **changes: Any) -> Iterator[Lab]:
    """A lab whose design stands, with a proposal in it."""
    with new_lab(folder, parameters=PARAMETERS, approvals={"factors": policy}, **changes) as lab:
        design = design_of(lab, [], [], advice=ADVICE)
        lab.ledger.update_study(design=write_design(design))
        rewrite_improve_guide(lab, design)
        yield lab


def factors_in(lab: Lab) -> list[str]:
    return [factor.name for factor in read_design(lab.ledger.study_row().design).factors]


def guide_of(lab: Lab) -> str:
    return lab.paths.improve_guide.read_text()


def test_a_person_is_asked_once_and_nothing_waits_for_the_answer(tmp_path: Path) -> None:
    with advised(tmp_path, "ask") as lab:
        for _ in range(2):
            settle_proposals(lab)
        (question,) = lab.ledger.questions()
        assert question.id == FACTORS and question.options == [LEAVE_OUT, TAKE] and question.default == LEAVE_OUT
        assert "dropout = 0.1" in question.text and question.deadline is None
        assert not is_held(lab) and blocking(lab) == {FACTORS}
        assert "dropout" not in factors_in(lab) and "wait for the answer" in guide_of(lab)


def test_taken_they_enter_the_design_and_the_guide_says_so(tmp_path: Path) -> None:
    with advised(tmp_path, "ask") as lab:
        settle_proposals(lab)
        lab.ledger.answer(FACTORS, TAKE, by="anna")
        for _ in range(2):
            settle_proposals(lab)
        assert factors_in(lab)[-1] == "dropout"
        assert [event.kind for event in lab.ledger.events()].count("design") == 1
        assert "They entered the plan" in guide_of(lab) and "answered by anna" in guide_of(lab)
        assert "proposed by m" in guide_of(lab)
        with opened(lab.study_file) as again:
            assert factors_in(again)[-1] == "dropout"


def test_who_sleeps_through_the_deadline_gets_the_study_as_it_was_written(tmp_path: Path) -> None:
    with advised(tmp_path, {"policy": "ask-with-default", "deadline": "10m"}) as lab:
        settle_proposals(lab)
        late = replace(lab, now=lambda: lab.ledger.questions()[0].asked_at + timedelta(minutes=11))
        settle_overdue(late)
        settle_proposals(late)
        assert lab.ledger.questions()[0].answer == LEAVE_OUT and "dropout" not in factors_in(lab)


def test_auto_takes_them_at_once_also_where_a_question_was_open(tmp_path: Path) -> None:
    with advised(tmp_path / "auto", "auto") as lab:
        settle_proposals(lab)
        assert factors_in(lab)[-1] == "dropout" and lab.ledger.questions()[0].answered_by == AUTO
    with advised(tmp_path / "later", "ask") as lab:
        settle_proposals(lab)
        approvals = lab.study.approvals.model_validate({"factors": "auto"})
        settle_proposals(replace(lab, study=lab.study.model_copy(update={"approvals": approvals})))
        assert factors_in(lab)[-1] == "dropout"


@pytest.mark.parametrize("advice", [None, Advice(failure="nobody answered"), Advice(model="m")])
def test_without_a_proposal_nobody_is_asked(tmp_path: Path, advice: Advice | None) -> None:
    with advised(tmp_path, "auto") as lab:
        lab.ledger.update_study(design=write_design(Design(advice=advice)))
        settle_proposals(lab)
        assert not lab.ledger.questions() and not factors_in(lab)


def test_a_night_with_a_model_asks_it_once_and_tries_what_it_proposed(tmp_path: Path) -> None:
    said = {
        "dimensions": [{"dimension": "Training method", "finding": "Too slow.", "symptoms": ["slow_convergence"]}],
        "ranking": [{"technique": "lr", "reason": "It is small."}],
        "factors": [{"parameter": "dropout", "levels": [0.1], "scale": "linear", "reason": "It overfits."}],
    }
    with ScriptedModel(lambda _: said) as model:
        brain = {"kind": "llm", "review": "nothing", "endpoints": [{"model": "scripted", "base_url": model.base_url}]}
        file = make_repository(
            tmp_path / "repo", brain=brain, parameters=PARAMETERS, approvals={"factors": "auto"}, budget={"runs": 16}
        )
        outcome = run_night(file, say=lambda _: None)
        assert outcome.status is StudyStatus.FINISHED and len(model.requests) == 1
    paths = locate(load_study(file)).paths
    with Ledger.open(paths.ledger) as ledger:
        assert 0.1 in [experiment.parameters["dropout"] for experiment in ledger.experiments()]
        assert read_design(ledger.study_row().design).advice is not None
    assert "Too slow." in paths.analysis_report.read_text()
