"""What a review does to a verdict: nothing, or less. A verdict is never raised by one."""

from __future__ import annotations

from nightlab.agents.code_space import accepted, ideas_in
from nightlab.agents.context import Lab
from nightlab.agents.review_words import told_item
from nightlab.agents.reviewer import is_claim
from nightlab.configs.code import idea_parameter
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Idea, Review, ReviewState, Verdict, VerdictKind
from nightlab.search.belief import describe
from nightlab.search.evidence import Evidence
from nightlab.search.history import History
from nightlab.search.looks import last_look

__all__ = [
    "HOLD",
    "QUESTIONED",
    "STAND",
    "after_review",
    "is_answered_pair",
    "may_stand",
    "question_id",
    "questioned_ideas",
    "questioned_numbers",
]

QUESTIONED = "questioned by review"
"""Label of a win that the reviewer accuses, with evidence."""
HOLD, STAND = "hold-back", "let-stand"
"""What a person may say of it."""


def question_id(number: int) -> str:
    return f"review-{number:02d}"


def after_review(lab: Lab, verdict: Verdict, history: History) -> Verdict:
    """The verdict with what its review takes from it; the same where there is no claim or no answer."""
    if not is_claim(lab, verdict):
        return verdict
    review = lab.ledger.review(verdict.number, verdict.basis)
    if review is None or review.state is not ReviewState.ANSWERED:
        return verdict
    if review.accusations and not may_stand(lab.ledger, verdict.number):
        return _questioned(verdict, review)
    return _with_pair(lab, verdict, review, history)


def may_stand(ledger: Ledger, number: int) -> bool:
    """Whether a person lets the questioned win stand."""
    asked = ledger.question(question_id(number))
    return asked is not None and asked.answer == STAND


def questioned_numbers(ledger: Ledger) -> frozenset[int]:
    """The experiments that a reviewer questions, as long as nobody lets them stand."""
    verdicts = ledger.verdicts().items()
    return frozenset(n for n, verdict in verdicts if verdict.label == QUESTIONED and not may_stand(ledger, n))


def questioned_ideas(ledger: Ledger) -> frozenset[str]:
    """The code ideas, as parameters, that a reviewer's evidence points at: its words stand in their edits.

    Where an experiment applies one idea alone, that is the one.
    """
    blamed: set[str] = set()
    for number in questioned_numbers(ledger):
        ideas = ideas_in(ledger.experiment(number), accepted(ledger))
        review = ledger.review(number, ledger.verdicts()[number].basis)
        evidence = [_even(item.evidence) for item in review.accusations] if review else []
        meant = [idea for idea in ideas if any(words in text for words in evidence for text in _written(idea))]
        blamed |= {idea_parameter(idea.name) for idea in meant or (ideas if len(ideas) == 1 else ())}
    return frozenset(blamed)


def _written(idea: Idea) -> list[str]:
    """What an idea writes, as evidence is compared with it."""
    return [_even(edit.replace) for edit in idea.edits]


def _even(text: str) -> str:
    """Without layout, and without the sign of a line of a diff."""
    return " ".join(text.lstrip("+- ").split())


def _questioned(verdict: Verdict, review: Review) -> Verdict:
    accused = "; ".join(told_item(item) for item in review.accusations)
    reason = f"{verdict.reason}; held back, {review.model} questions it: {accused}"
    return verdict.model_copy(update={"kind": VerdictKind.INCONCLUSIVE, "label": QUESTIONED, "reason": reason})


def _with_pair(lab: Lab, verdict: Verdict, review: Review, history: History) -> Verdict:
    """The verdict on all pairs together, where the reviewer asked for one more: only ever a lower one."""
    if verdict.kind is not VerdictKind.KEEP or not is_answered_pair(history, review):
        return verdict
    evidence = Evidence.of(lab.study, history.trials)
    cell = next(one for one in evidence.changes if one.number == verdict.number)
    effect, line = last_look(evidence, cell), lab.study.objective.min_effect
    if effect is None or (effect.low is not None and effect.low > line):
        return verdict
    reason = (
        f"{describe(effect)} on {effect.runs} fresh seeds, with the pair that the reviewer asked for: "
        f"not surely beyond the least worthwhile gain of {line:g}"
    )
    changes = {"kind": VerdictKind.INCONCLUSIVE, "label": "not confirmed", "reason": reason, "effect": effect}
    return verdict.model_copy(update=changes)


def is_answered_pair(history: History, review: Review) -> bool:
    """Whether both runs of the pair that the reviewer asked for have a value."""
    there = {t.number for t in history.trials if t.seed == review.pair_seed and t.usable is not None}
    return review.pair_seed is not None and {0, review.number} <= there
