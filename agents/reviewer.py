"""The independent reviewer: a model that looks at a claim without the proposer's reasons. It lowers, or asks for a run.

What it answers is checked: an answer whose evidence is not in what it was shown is worth nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Literal

from pydantic import BaseModel, Field

from nightlab.agents.claims import shown_of
from nightlab.agents.code_space import accepted, ideas_in
from nightlab.agents.context import Lab
from nightlab.agents.prompts import Prompt, render
from nightlab.agents.review_words import told
from nightlab.agents.said import visible
from nightlab.errors import BudgetError, ModelError
from nightlab.knowledge.records import Experiment, Review, ReviewItem, ReviewState, Verdict, VerdictKind

__all__ = ["CHECKS", "CheckSaid", "ReviewSaid", "begin_review", "checked_items", "is_claim", "review", "unanswered"]

CHECKS = ("leakage", "metric gaming", "confounding", "unfair comparison", "simpler explanation")
Check = Literal["leakage", "metric gaming", "confounding", "unfair comparison", "simpler explanation"]
LEAST_EVIDENCE = 6
"""Letters and digits that a quotation holds at least: fewer stand in any text."""
LONGEST_TOLD = 200
NOT_SHOWN = "its evidence is not in what it was shown"


class CheckSaid(BaseModel):
    """One point of the checklist, as the model answers it."""

    check: Check
    answer: Literal["passed", "failed", "unclear"]
    evidence: str = Field(description="words copied exactly from what is shown")
    reason: str = Field(description="one sentence")


class ReviewSaid(BaseModel):
    """The whole answer."""

    items: list[CheckSaid]
    another_run: bool = Field(description="whether one more pair of runs would settle what is unclear")


def is_claim(lab: Lab, verdict: Verdict) -> bool:
    """Whether a model is to look at it: a confirmed win and, where the study says so, a promising one."""
    if lab.models is None or lab.study.brain.review == "nothing" or verdict.effect is None:
        return False
    is_promising = verdict.kind is VerdictKind.INCONCLUSIVE and verdict.label == "promising"
    return verdict.kind is VerdictKind.KEEP or (is_promising and lab.study.brain.review == "promising")


def begin_review(lab: Lab, experiment: Experiment, verdict: Verdict) -> Review:
    """Write down what the reviewer will be asked; one there is already is returned as it stands."""
    if held := lab.ledger.review(experiment.number, verdict.basis):
        return held
    shown = shown_of(lab, experiment, verdict)
    prompt = render("review", shown=shown)
    asked = {"name": prompt.name, "version": prompt.version, "system": prompt.system, "user": prompt.user}
    key = f"review/{experiment.number:02d}/{verdict.basis}"
    new = Review(key=key, number=experiment.number, basis=verdict.basis, asked={**asked, "shown": shown})
    return lab.ledger.begin_review(new)


def review(lab: Lab, begun: Review) -> Review:
    """Ask, and write down what comes of it; may be called in any thread, again and again."""
    assert lab.models is not None and begun.asked is not None, "there is a model to ask, and something to ask it"
    shown = str(begun.asked["shown"])
    prompt = Prompt(**{name: begun.asked[name] for name in ("name", "version", "system", "user")})
    try:
        answer = lab.models.reviewer.structured(lab, ReviewSaid, prompt, purpose="review", key=begun.key)
    except (BudgetError, ModelError) as error:
        return unanswered(lab, begun, str(error))
    with lab.ledger.transaction():
        if (held := _ended(lab, begun)) is not None:
            return held
        ended = lab.ledger.end_review(
            begun.key,
            ReviewState.ANSWERED,
            items=checked_items(answer.value.items, shown),
            another_run=answer.value.another_run,
            model=answer.model,
            independent=answer.model not in _proposers(lab, begun.number),
        )
        lab.ledger.add_event("review", told(ended), begun.number)
    return ended


def unanswered(lab: Lab, begun: Review, why: str) -> Review:
    """Write that nobody has looked at the claim: it stands as it was computed."""
    with lab.ledger.transaction():
        if (held := _ended(lab, begun)) is not None:
            return held
        ended = lab.ledger.end_review(begun.key, ReviewState.UNANSWERED, note=why)
        lab.ledger.add_event("review", told(ended), begun.number)
    return ended


def _ended(lab: Lab, begun: Review) -> Review | None:
    """The review as it ended meanwhile; None while it is under way."""
    held = lab.ledger.review(begun.number, begun.basis)
    return held if held is not None and held.state is not ReviewState.ASKING else None


def _proposers(lab: Lab, number: int) -> set[str]:
    """Models that have a part in what is claimed: those of its ideas, else the one that proposes first."""
    assert lab.models is not None, "there is a model"
    ideas = ideas_in(lab.ledger.experiment(number), accepted(lab.ledger))
    return {idea.model for idea in ideas} or {endpoint.model for endpoint in lab.models.proposer.endpoints[:1]}


def checked_items(said: Iterable[CheckSaid], shown: str) -> list[ReviewItem]:
    """The whole checklist in its order: what was not answered, or not from what was shown, is unclear."""
    first: dict[str, CheckSaid] = {}
    for one in said:
        first.setdefault(one.check, one)
    texts = _readable(shown)
    return [_item(name, first.get(name), texts) for name in CHECKS]


def _item(name: str, said: CheckSaid | None, texts: tuple[str, ...]) -> ReviewItem:
    if said is None:
        return ReviewItem(check=name, answer="unclear", reason="not answered")
    reason, evidence = visible(said.reason, LONGEST_TOLD), visible(said.evidence, LONGEST_TOLD)
    if _is_quotation(said.evidence, texts):
        return ReviewItem(check=name, answer=said.answer, evidence=evidence, reason=reason)
    why = f"{NOT_SHOWN}; it said {said.answer}: {reason}" if said.answer != "unclear" else reason
    return ReviewItem(check=name, answer="unclear", evidence=evidence, reason=why)


def _is_quotation(evidence: str, texts: tuple[str, ...]) -> bool:
    words = _even(evidence.strip().strip("`\"'“”…"))
    return sum(map(str.isalnum, words)) >= LEAST_EVIDENCE and any(words in text for text in texts)


def _readable(shown: str) -> tuple[str, ...]:
    """What was shown as it stands, and with its quoted parts as whoever reads them sees them."""
    parts = [json.loads(part) for part in re.findall(r'"(?:[^"\\\n]|\\.)*"', shown)]
    unquoted = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda part: str(json.loads(part.group())), shown)
    # A line of a diff may be quoted without its sign.
    unsigned = [re.sub(r"^[-+ ]", "", part, flags=re.MULTILINE) for part in parts]
    return tuple(_even(text) for text in (shown, unquoted, *unsigned))


def _even(text: str) -> str:
    return " ".join(text.split())
