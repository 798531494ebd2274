"""Whether the values a language model proposes enter the plan: a person's decision, and what follows from it."""

from __future__ import annotations

from nightlab.agents.analysis import rewrite_improve_guide
from nightlab.agents.context import Lab
from nightlab.agents.design import Design, read_design, write_design
from nightlab.agents.new_levels import with_new_levels
from nightlab.agents.recovery import write_study
from nightlab.configs.wording import one_line
from nightlab.graph.questions import AUTO, raise_question
from nightlab.knowledge.records import Question

__all__ = ["FACTORS", "LEAVE_OUT", "TAKE", "settle_proposals"]

FACTORS = "factors"
"""Id of the question, and what it blocks: the end of the study, should all else be done before."""
LEAVE_OUT, TAKE = "leave-out", "take"
LONGEST_TOLD = 400


def settle_proposals(lab: Lab) -> None:
    """Ask about a model's proposals where the study wants that, and put those that are taken into the design."""
    design = read_design(lab.ledger.study_row().design)
    if design.advice is None or not design.advice.factors or lab.is_overdue:
        return
    if _asked(lab, design).answer != TAKE:
        return
    grown = with_new_levels(lab, design)
    if grown == design:
        return
    rewrite_improve_guide(lab, grown)
    with lab.ledger.transaction():
        row = lab.ledger.update_study(design=write_design(grown))
        lab.ledger.add_event("design", f"{_told(design)} taken up, as {design.advice.model} proposed")
    write_study(lab.paths, row)
    lab.on_change()


def _asked(lab: Lab, design: Design) -> Question:
    assert design.advice is not None
    approval = lab.study.approvals.factors
    guide = lab.paths.improve_guide.relative_to(lab.paths.root)
    question = raise_question(
        lab,
        approval,
        "factors",
        FACTORS,
        f"The model {design.advice.model} proposes to try {_told(design)} as well ({guide} says why). Take them up?",
        options=[LEAVE_OUT, TAKE],
        # With `auto` somebody has said yes; whoever sleeps through the question has agreed to the study alone.
        default=TAKE if approval.policy == "auto" else LEAVE_OUT,
        evidence=str(lab.paths.improve_guide),
        blocks=frozenset({FACTORS}),
    )
    if question.answer is None and approval.policy == "auto":
        return lab.ledger.answer(FACTORS, TAKE, by=AUTO)
    return question


def _told(design: Design) -> str:
    """`dropout = 0.1, 0.2; warmup = 0.05`."""
    proposed = design.advice.factors if design.advice else ()
    text = "; ".join(f"{one.parameter} = {', '.join(map(str, one.levels))}" for one in proposed)
    return one_line(text)[:LONGEST_TOLD]
