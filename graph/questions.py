"""Questions to a person, as the graph raises them; answers live in the ledger."""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.knowledge.records import Question

__all__ = ["PLAN", "asked_plan", "plan_is_declined", "plan_is_open", "plan_question"]

PLAN = "plan"
"""Id of the question that approves the plan; a study has one plan."""


def asked_plan(lab: Lab) -> Question | None:
    """The plan's question as the ledger holds it, None before it was asked."""
    return lab.ledger.question(PLAN)


def plan_question(lab: Lab) -> Question:
    """The question as it stands in the ledger; asked the first time it is needed."""
    asked = asked_plan(lab)
    if asked:
        return asked
    guide = lab.paths.improve_guide.relative_to(lab.paths.root)
    question = Question(
        id=PLAN,
        study=lab.study.study,
        kind="approve-plan",
        text=f"The baseline is measured. Go on with the plan in {guide}?",
        options=["yes", "no"],
        default="no",
        evidence=str(lab.paths.improve_guide),
        asked_at=lab.now(),
    )
    with lab.ledger.transaction():
        lab.ledger.ask(question)
        lab.ledger.add_event("question", question.text)
    return question


def plan_is_open(lab: Lab) -> bool:
    """Whether the design stands, a person has yet to approve it, and there is time left to go on."""
    if lab.study.approvals.plan == "auto" or lab.is_overdue or lab.ledger.study_row().design is None:
        return False
    asked = asked_plan(lab)
    return asked is None or asked.answer is None


def plan_is_declined(lab: Lab) -> bool:
    """Whether a person has said no: what runs is still collected, nothing new is planned."""
    asked = asked_plan(lab)
    return asked is not None and asked.answer == "no"
