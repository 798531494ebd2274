"""Which decisions wait for a person, and for how long."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from nightlab.configs.section import Section
from nightlab.configs.units import Duration

__all__ = ["Approval", "Approvals", "Decision", "Policy"]

Policy = Literal["auto", "ask", "ask-with-default"]


class Approval(Section):
    """How one kind of decision is made; the policy alone may stand for the whole section."""

    policy: Policy
    """Who decides; `auto`: the lab by itself. `ask`: what depends on it waits for `nightlab answer`, however long.
    `ask-with-default`: it waits until the deadline, then the safe answer holds."""
    deadline_seconds: Duration = Field(default=1800.0, alias="deadline")
    """How long `ask-with-default` waits for an answer."""


def _written_short(value: object) -> object:
    if isinstance(value, str) and value in get_args(Policy):
        return {"policy": value}
    if isinstance(value, dict | Approval):
        return value
    raise PydanticCustomError("policy", "not a policy; write auto, ask or ask-with-default")


Decision = Annotated[Approval, BeforeValidator(_written_short, json_schema_input_type=Policy | Approval)]


def _by_default(policy: Policy) -> Approval:
    return Approval(policy=policy)


class Approvals(Section):
    """Which decisions wait for a person."""

    plan: Decision = _by_default("auto")
    """Going on with the plan once the baseline is measured; `auto` when left out. Without an answer by the deadline
    the lab goes on."""
    factors: Decision = _by_default("ask-with-default")
    """Whether values that a language model proposes enter the plan; `ask-with-default` when left out. The safe answer
    leaves them out: the night is spent on what the study names. `auto` takes them, within the study's checks."""
    base_model: Decision = _by_default("ask-with-default")
    """Whether to try another base model when nothing helps; `ask-with-default` when left out. The safe answer keeps
    it; a change is a study of its own."""
    spend: Decision = _by_default("ask-with-default")
    """Spending above a limit; `ask-with-default` when left out. The safe answer, also of `auto`, is no."""
    repeated_failure: Decision = _by_default("ask-with-default")
    """What to do about runs that all fail the same way, and about a failure that only a person can mend (a missing
    package, a licence to accept); `ask-with-default` when left out. The safe answer, also of `auto`, leaves out what
    they have in common, and gives up the experiment that failed."""
    review: Decision = _by_default("ask")
    """Whether a confirmed win that the reviewing model questions, with evidence, stands all the same; `ask` when left
    out. Nothing waits for the answer: until somebody gives it, and with `auto`, the win stays questioned."""
    winner: Decision = _by_default("auto")
    """Whether the branch `nightlab/<study>/winner` is set to the confirmed winner; `auto` when left out. The safe
    answer, also of `auto`, leaves it on its own branch. Nothing is ever merged."""
