"""Asking for ideas beside the night: a thread of its own, so that no slot waits while a model thinks.

Everything it does is in the ledger before and after: what is asked (so that after a crash the same is asked, and the
recorded answer taken), what was answered, what became of it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from nightlab.agents.aside import STOP_SECONDS, Aside
from nightlab.agents.code_checks import Refusal
from nightlab.agents.code_space import accepted, with_ideas
from nightlab.agents.context import Lab
from nightlab.agents.edits import edits_of_diff
from nightlab.agents.idea_checks import Checked, checked
from nightlab.agents.idea_prompt import IdeaAnswer, idea_prompt, winning_ideas
from nightlab.agents.idea_words import LONGEST_TITLE, line, told_idea
from nightlab.agents.prompts import Prompt
from nightlab.configs.code import idea_parameter
from nightlab.errors import BudgetError, ModelError, PatchError
from nightlab.knowledge.records import Edit, Idea, IdeaState

__all__ = ["Ideas", "may_ask", "think"]

MOST_REPAIRS = 2
"""How often an answer goes back with what is wrong with it."""
ASKED_PER_IDEA = 3
"""Ideas that are asked for at most, for each that the study would accept."""
IN_VAIN = 6
"""After so many refused ones in a row nothing more is asked for."""
QUIET_SECONDS = 300.0
"""How long a model that did not answer, or a budget that others hold, is left alone."""
LONGEST_SLUG, LONGEST_TEXT = 32, 1200


@dataclass
class Ideas:
    """The thread that asks, of one lab; the supervisor looks at it and never waits for it."""

    _aside: Aside = field(default_factory=lambda: Aside("nightlab-ideas"))
    _quiet_until: float = 0.0
    _spent: bool = False
    """Whether the budget does not bear another call."""

    @property
    def has_news(self) -> bool:
        """Whether an idea was decided since `take` was called last."""
        return self._aside.has_news

    def wait(self, seconds: float) -> bool:
        """Whether an idea is decided within `seconds`."""
        return self._aside.wait(seconds)

    @property
    def is_thinking(self) -> bool:
        return self._aside.is_busy

    @property
    def thinking_seconds(self) -> float:
        """How long the idea under way has been thought about; 0 where none is."""
        return self._aside.busy_seconds

    def take(self, lab: Lab) -> None:
        """Make what was accepted part of the study. Raises here what the thread could not bear."""
        self._aside.take()
        lab.study = with_ideas(lab.study, accepted(lab.ledger))

    def ask(self, lab: Lab) -> None:
        """Start to ask for an idea, where one is wanted and none is being asked for."""
        if self.is_thinking or self.has_news or self._aside.is_closing or self._spent:
            return
        if time.monotonic() >= self._quiet_until and may_ask(lab):
            self._aside.start(lambda: self._think(lab))

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Ask for nothing more, and wait a moment for what is under way."""
        self._aside.close(seconds)

    def _think(self, lab: Lab) -> None:
        try:
            think(lab, lambda: self._aside.is_closing)
        except (BudgetError, ModelError) as error:
            # What another call holds of the budget may come back.
            self._spent = isinstance(error, BudgetError) and not lab.ledger.call_totals().reserved_tokens
            self._quiet_until = time.monotonic() + QUIET_SECONDS
            self._tell(lab, f"{'no more ideas' if self._spent else 'no idea for now'}: {error}")

    def _tell(self, lab: Lab, text: str) -> None:
        if not self._aside.is_closing:
            lab.ledger.add_event("idea", text)


def may_ask(lab: Lab) -> bool:
    """Whether the study takes another idea now: too few wait to be tried, and asking has not been in vain."""
    code = lab.study.code
    if lab.models is None or not code.mutable or not lab.has_room:
        return False
    ideas = lab.ledger.ideas()
    taken = [idea for idea in ideas if idea.state is IdeaState.ACCEPTED]
    decided = [idea.state for idea in ideas if idea.state is not IdeaState.ASKING]
    in_vain = len(decided) >= IN_VAIN and IdeaState.ACCEPTED not in decided[-IN_VAIN:]
    if len(taken) >= code.ideas or len(decided) >= ASKED_PER_IDEA * code.ideas or in_vain:
        return False
    tried = {name for one in lab.ledger.experiments() for name in one.parameters}
    return sum(idea_parameter(idea.name) not in tried for idea in taken) < code.at_once


def think(lab: Lab, is_closing: Callable[[], bool]) -> Idea | None:
    """Ask for one idea, or go on with the one under way, until it is accepted or refused; None where the lab ends.

    Raises ModelError when no model answers and BudgetError when the budget does not bear it: the idea is then asked
    for again another time.
    """
    assert lab.models is not None, "there is a model to ask"
    idea = _begun(lab)
    while idea.state is IdeaState.ASKING:
        prompt = Prompt(**idea.asked or {})
        key = f"idea/{idea.number}" + (f"/{idea.rounds}" if idea.rounds else "")
        answer = lab.models.proposer.structured(lab, IdeaAnswer, prompt, purpose="idea", key=key)
        edits, found = _checked(lab, answer.value)
        if is_closing():
            # The end of the lab takes the trees away, under a run too.
            return None
        idea = _decided(lab, idea, answer.value, edits, found, answer.model)
    return idea


def _begun(lab: Lab) -> Idea:
    under_way = lab.ledger.ideas(states=(IdeaState.ASKING,))
    if under_way:
        return under_way[0]
    prompt = idea_prompt(lab)
    return lab.ledger.begin_idea(asked=_as_data(prompt), prompt=f"{prompt.name} {prompt.version}")


def _as_data(prompt: Prompt) -> dict[str, object]:
    return {"name": prompt.name, "version": prompt.version, "system": prompt.system, "user": prompt.user}


def _decided(lab: Lab, idea: Idea, answer: IdeaAnswer, edits: list[Edit], found: Checked, model: str) -> Idea:
    """The idea after an answer: accepted, sent back, or refused for good."""
    told: dict[str, object] = {
        "title": line(answer.title, LONGEST_TITLE) or "untitled",
        "rationale": line(answer.rationale, LONGEST_TEXT),
        "expected": line(answer.expected_effect, LONGEST_TITLE),
        "edits": edits,
        "model": model,
    }
    # Who says the same again has nothing else to say.
    is_new = not idea.rounds or edits != idea.edits
    if found.refusals and is_new and idea.rounds < MOST_REPAIRS:
        reasons = [f"{one.cause}: {one.reason}" for one in found.refusals]
        prompt = idea_prompt(lab, answer=answer, reasons=reasons)
        return lab.ledger.update_idea(idea.number, rounds=idea.rounds + 1, asked=_as_data(prompt), **told)
    return (
        _refuse(lab, idea, answer, found.refusals, told) if found.refusals else _accept(lab, idea, answer, found, told)
    )


def _checked(lab: Lab, answer: IdeaAnswer) -> tuple[list[Edit], Checked]:
    try:
        edits = answer.as_edits() or edits_of_diff(answer.diff)
    except PatchError as error:
        return [], Checked((Refusal(error.cause, str(error)),))
    return edits, checked(lab, edits, winners=winning_ideas(lab))


def _refuse(lab: Lab, idea: Idea, answer: IdeaAnswer, refusals: Sequence[Refusal], told: dict[str, object]) -> Idea:
    reason = "; ".join(one.reason for one in refusals)[:LONGEST_TEXT]
    name, cause = _slug(answer), refusals[0].cause
    with lab.ledger.transaction():
        refused = lab.ledger.update_idea(
            idea.number, state=IdeaState.REFUSED, name=name, cause=cause, reason=reason, asked=None, **told
        )
        lab.ledger.add_event("idea", told_idea(refused))
    return refused


def _accept(lab: Lab, idea: Idea, answer: IdeaAnswer, found: Checked, told: dict[str, object]) -> Idea:
    added, removed = found.lines
    with lab.ledger.transaction():
        name = _free(_slug(answer), {one.name for one in accepted(lab.ledger)})
        taken = lab.ledger.update_idea(
            idea.number,
            state=IdeaState.ACCEPTED,
            name=name,
            lines_added=added,
            lines_removed=removed,
            fingerprint=found.fingerprint,
            requires=list(found.requires),
            conflicts=list(found.conflicts),
            asked=None,
            **told,
        )
        lab.ledger.add_event("idea", told_idea(taken))
    return taken


def _slug(answer: IdeaAnswer) -> str:
    """Lower-case letters, digits and single hyphens, whatever the model wrote."""
    for text in (answer.slug, answer.title):
        slug = re.sub(r"[^a-z0-9]+", "-", text.lower())[:LONGEST_SLUG].strip("-")
        if slug:
            return slug
    return "idea"


def _free(name: str, taken: set[str]) -> str:
    """The name, or one that no other idea has."""
    if name not in taken:
        return name
    return next(one for number in range(2, 1000) if (one := f"{name}-{number}") not in taken)
