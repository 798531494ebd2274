"""What a reviewer proves to be no gain: the code idea its evidence points at is left alone, until a person says no."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nightlab.agents.code_space import accepted, factors_of, with_ideas
from nightlab.agents.context import Lab
from nightlab.agents.opinions import HOLD, QUESTIONED, STAND, question_id, questioned_ideas
from nightlab.configs.approvals import Approval
from nightlab.configs.study import Scalar
from nightlab.graph.questions import raise_question
from nightlab.graph.reviewing import without_questioned
from nightlab.knowledge.records import (
    Edit,
    IdeaState,
    Phase,
    Review,
    ReviewItem,
    ReviewState,
    Verdict,
    VerdictKind,
)
from nightlab.search.history import History, Trial
from tests.agents.lab import opened, planned
from tests.code_task import make_code_repository

EDITS = {"honest": "    return [1.0, x, x * x]\n", "leak": "    return [1.0, x, answers[x]]\n"}
HONEST, LEAK = "code/honest", "code/leak"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with opened(make_code_repository(tmp_path / "repo", "http://127.0.0.1:9/v1")) as lab:
        for name, text in EDITS.items():
            idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
            edits = [Edit(path="train.py", search="    return [1.0, x]\n", replace=text)]
            lab.ledger.update_idea(idea.number, state=IdeaState.ACCEPTED, name=name, edits=edits, asked=None)
        lab.study = with_ideas(lab.study, accepted(lab.ledger))
        yield lab


def question(lab: Lab, changed: dict[str, Scalar], evidence: str) -> int:
    """An experiment that the reviewer questions with this evidence; its number."""
    number = planned(lab, changed).number
    begun = lab.ledger.begin_review(Review(key=f"review/{number}", number=number, basis=Phase.SCREEN, asked={}))
    item = ReviewItem(check="leakage", answer="failed", evidence=evidence, reason="it is")
    lab.ledger.end_review(begun.key, ReviewState.ANSWERED, items=[item], model="m")
    verdict = Verdict(number=number, kind=VerdictKind.INCONCLUSIVE, basis=Phase.SCREEN, label=QUESTIONED, reason="r")
    lab.ledger.record_verdict(verdict)
    return number


def history(lab: Lab, *numbers: int) -> History:
    def trial(number: int) -> Trial:
        experiment = lab.ledger.experiment(number)
        parameters = {HONEST: False, LEAK: False, **experiment.parameters}
        return Trial(number, parameters, experiment.changed, 0, Phase.SCREEN, "measured", 1.0)

    return History(factors=factors_of(accepted(lab.ledger)), trials=tuple(trial(number) for number in numbers))


@pytest.mark.parametrize(
    ("changed", "evidence", "blamed"),
    [
        ({HONEST: True, LEAK: True}, "+    return [1.0, x, answers[x]]", {LEAK}),
        ({LEAK: True}, "the least gain worth having", {LEAK}),
        ({HONEST: True, LEAK: True}, "the least gain worth having", set()),
        ({"lr": 0.1}, "the least gain worth having", set()),
    ],
)
def test_its_evidence_says_which_idea_is_meant(
    lab: Lab, changed: dict[str, Scalar], evidence: str, blamed: set[str]
) -> None:
    question(lab, changed, evidence)
    assert questioned_ideas(lab.ledger) == blamed


def test_neither_the_configuration_nor_the_idea_is_built_upon(lab: Lab) -> None:
    both = question(lab, {HONEST: True, LEAK: True}, "answers[x]")
    honest, other = planned(lab, {HONEST: True}).number, planned(lab, {LEAK: True, "lr": 0.1}).number
    left = without_questioned(lab, history(lab, both, honest, other))
    assert [factor.name for factor in left.factors] == [HONEST]
    assert {trial.number: trial.valid for trial in left.trials} == {both: False, honest: True, other: False}


def test_a_person_may_let_it_stand(lab: Lab) -> None:
    number = question(lab, {LEAK: True}, "answers[x]")
    seen = history(lab, number)
    assert without_questioned(lab, seen) != seen
    asked = Approval(policy="ask")
    raise_question(lab, asked, "review", question_id(number), "?", options=[HOLD, STAND], default=HOLD)
    lab.ledger.answer(question_id(number), STAND, by="a person")
    assert without_questioned(lab, seen) == seen
