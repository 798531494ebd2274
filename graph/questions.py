"""Questions to a person, as the graph raises them; answers live in the ledger."""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.knowledge.records import Question

__all__ = ["PLAN", "asked_plan", "plan_is_open", "plan_question"]

PLAN = "plan"
"""Id of the question that approves the plan; a study has one plan."""


def asked_plan(lab: Lab) -> Question | None:
    """The plan's question as the ledger holds it, None before it was asked."""
    return next((question for question in lab.ledger.questions() if question.id == PLAN), None)


def plan_question(lab: Lab) -> Question:
    """The question as it stands in the ledger; asked the first time it is needed."""
    asked = asked_plan(lab)
    if asked:
        return asked
    question = Question(
        id=PLAN,
        study=lab.study.study,
        kind="approve-plan",
        text=f"The baseline is measured. Go on with the plan in {lab.paths.improve_guide}?",
        options=["yes", "no"],
        default="no",
        evidence=str(lab.paths.improve_guide),
        asked_at=lab.now(),
    )
    lab.ledger.ask(question)
    lab.ledger.add_event("question", question.text)
    return question


def plan_is_open(lab: Lab) -> bool:
    """Whether the design stands and a person has yet to approve it."""
    if lab.study.approvals.plan == "auto" or lab.ledger.study_row().design is None:
        return False
    asked = asked_plan(lab)
    return asked is None or asked.answer is None
