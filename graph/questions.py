"""Questions to a person, as the graph raises them; answers live in the ledger.

A question holds up only what it blocks. One with a deadline keeps the lab waiting at most until then; one without
becomes LangGraph's interrupt when nothing else can be done.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

from pydantic import BaseModel, create_model

from nightlab.agents.context import Lab
from nightlab.configs.approvals import Approval
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Question
from nightlab.tools.notify.messages import question_asked

__all__ = [
    "AUTO",
    "DEADLINE",
    "PLAN",
    "PLANNING",
    "Answer",
    "answer_model",
    "ask_plan",
    "blocking",
    "decides_the_end",
    "experiment_block",
    "factor_block",
    "holding",
    "is_held",
    "news_of",
    "next_to_ask",
    "plan_is_declined",
    "plan_is_open",
    "raise_question",
    "settle",
    "settle_overdue",
    "tell_question",
    "told_default",
]

PLAN = "plan"
"""Id of the question that approves the plan; a study has one plan."""
PLANNING = "planning"
"""What a question blocks without whose answer nothing new may be planned."""
DEADLINE = "nightlab: deadline"
AUTO = "nightlab: auto"
"""Who has answered where no person did."""


def experiment_block(number: int) -> str:
    """What a question blocks that concerns one experiment: its verdict."""
    return f"experiment:{number:02d}"


def factor_block(factor: str) -> str:
    """What a question blocks that concerns one factor."""
    return f"factor:{factor}"


def raise_question(
    lab: Lab,
    approval: Approval,
    kind: str,
    question_id: str,
    text: str,
    *,
    options: Sequence[str],
    default: str,
    evidence: str = "",
    blocks: frozenset[str] = frozenset(),
) -> Question:
    """The question as it stands in the ledger, asked the first time; where the policy is `auto`, answered at once."""
    if asked := lab.ledger.question(question_id):
        return asked
    now = lab.now()
    deadline = now + timedelta(seconds=approval.deadline_seconds) if approval.policy == "ask-with-default" else None
    question = Question(
        id=question_id,
        study=lab.study.study,
        kind=kind,
        text=text,
        options=list(options),
        default=default,
        evidence=evidence,
        blocks=sorted(blocks),
        deadline=deadline,
        asked_at=now,
    )
    with lab.ledger.transaction():
        question = lab.ledger.ask(question)
        lab.ledger.add_event("question", text)
        if approval.policy == "auto":
            question = lab.ledger.answer(question.id, default, by=AUTO)
    if question.answer is None:
        tell_question(lab, question)
    lab.on_change()
    return question


def tell_question(lab: Lab, question: Question) -> None:
    """Tell people of a question and of the ways to answer it."""
    report, ways = lab.paths.final_report_html, lab.ways_to_answer(question)
    lab.notify(question_asked(question, report=report, deadline=question.deadline, ways=ways))


def settle(ledger: Ledger, now: datetime) -> list[Question]:
    """Give the questions whose deadline has passed their safe answer, and tell it in the study's story."""
    with ledger.transaction():
        settled = ledger.settle_questions(now, by=DEADLINE)
        for question in settled:
            ledger.add_event("answered", told_default(question))
    return settled


def told_default(question: Question) -> str:
    """What is told of a question that its deadline has answered."""
    return f"{question.id}: {question.answer}, nobody answered by the deadline"


def settle_overdue(lab: Lab) -> list[Question]:
    """`settle` for a lab, which shows it."""
    settled = settle(lab.ledger, lab.now())
    if settled:
        lab.on_change()
    return settled


def holding(lab: Lab) -> list[Question]:
    """Open questions that something waits for, oldest first; at the end of the study's time nothing waits any more."""
    if lab.is_overdue:
        return []
    return [question for question in lab.ledger.questions(open_only=True) if question.blocks]


def blocking(lab: Lab) -> frozenset[str]:
    """What may not go on before a question is answered: `planning`, `factor:<name>`, …"""
    return frozenset(block for question in holding(lab) for block in question.blocks)


def is_held(lab: Lab) -> bool:
    """Whether nothing new may be planned: a person paused the study or has yet to answer."""
    return not lab.is_overdue and (lab.is_paused or PLANNING in blocking(lab))


def ask_plan(lab: Lab) -> Question | None:
    """Once the design stands: ask for its approval where the study wants that."""
    approval = lab.study.approvals.plan
    if approval.policy == "auto" or lab.is_overdue or lab.ledger.study_row().design is None:
        asked = lab.ledger.question(PLAN)
        # Somebody who no longer wants to be asked has said yes.
        is_moot = approval.policy == "auto" and asked is not None and asked.answer is None
        return lab.ledger.answer(PLAN, "yes", by=AUTO) if is_moot else asked
    guide = lab.paths.improve_guide.relative_to(lab.paths.root)
    return raise_question(
        lab,
        approval,
        "approve-plan",
        PLAN,
        f"The baseline is measured. Go on with the plan in {guide}?",
        options=["yes", "no"],
        # Who gave a deadline wants to be able to object; who did not wants to have looked.
        default="yes" if approval.policy == "ask-with-default" else "no",
        evidence=str(lab.paths.improve_guide),
        blocks=frozenset({PLANNING}),
    )


def next_to_ask(lab: Lab) -> Question | None:
    """The oldest question that something waits for without a deadline."""
    return next((question for question in holding(lab) if question.deadline is None), None)


def news_of(lab: Lab) -> tuple[object, ...]:
    """What a person, or a deadline, may change while the lab waits: equal as long as nothing has."""
    asked = lab.ledger.questions(open_only=True)
    overdue = [question.id for question in asked if question.deadline is not None and question.deadline <= lab.now()]
    return lab.is_paused, [question.id for question in asked], overdue


class Answer(BaseModel):
    """What answers an interrupt: `Command(resume={interrupt id: {"answer": …, "by": …}})`."""

    answer: str
    by: str


def answer_model(question: Question) -> type[Answer]:
    """`Answer` with the question's own options."""
    options: Any = Literal[tuple(question.options)] if question.options else str
    return create_model("Answer", __base__=Answer, answer=(options, ...))


def plan_is_open(lab: Lab) -> bool:
    """Whether a person has yet to approve the plan, and there is time left to go on."""
    return any(question.id == PLAN for question in holding(lab))


def plan_is_declined(lab: Lab) -> bool:
    """Whether a person has said no: what runs is still collected, nothing new is planned."""
    asked = lab.ledger.question(PLAN)
    return asked is not None and asked.answer == "no"


def decides_the_end(lab: Lab) -> bool:
    """Whether an answer has ended the search: a plan declined, or `stop` to a failure, or to failures that repeat."""
    return any(
        (question.id == PLAN and question.answer == "no")
        or (question.kind in ("repeated-failure", "failure") and question.answer == "stop")
        for question in lab.ledger.questions()
    )
