"""The one door to language models: a typed answer from the first endpoint that gives one, budgeted and written down.

A model proposes and explains; nothing it says is a verdict, a value, a budget or a permission (design.md section 5).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from nightlab.agents.aside import StoppedError
from nightlab.agents.conversation import Conversation, PoorAnswerError, key_of
from nightlab.agents.prompts import Prompt
from nightlab.agents.sending import Asking
from nightlab.agents.servers import OPENAI_URL, Servers, address_of
from nightlab.configs.brain import BrainSettings, Endpoint
from nightlab.errors import BudgetError, ModelError
from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.chat_pace import Pace

if TYPE_CHECKING:
    from nightlab.agents.context import Lab

__all__ = ["FALLBACK", "Answer", "LanguageModel", "Models", "endpoints_of", "fallback_of", "models_of", "reviewers_of"]

T = TypeVar("T", bound=BaseModel)

FALLBACK = "fallback"
"""The kind of the events that say that no model answered."""
BY_THE_RULES = ": by the rules; "

_FOR_A_PERSON = {
    FaultKind.KEY: "correct the key in its variable, or the account behind it",
    FaultKind.MODEL: "correct `model` or `base_url` under brain",
}


@dataclass(frozen=True)
class Answer(Generic[T]):
    """What a model said, as typed data."""

    value: T
    model: str
    """The model that said it."""


@dataclass
class LanguageModel:
    """Endpoints to ask for one role, in their order; any thread may ask."""

    endpoints: Sequence[Endpoint]
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    servers: Servers = field(default_factory=Servers)
    """What is known of the endpoints; shared between the roles."""
    pace: Pace = field(default_factory=Pace)

    def structured(self, lab: Lab, wanted: type[T], prompt: Prompt, *, purpose: str, key: str) -> Answer[T]:
        """The answer to `prompt` as `wanted`, from the first endpoint that gives a valid one.

        `key` names the call within the study (`analysis/1`, `idea/7`): asked again under the same key and prompt, as
        after a crash, the recorded answer is given and nothing is sent. Secrets are taken out of what is sent and of
        what comes back. Raises ModelError when no endpoint answers, and BudgetError when the budget does not bear the
        call; the ledger then says that the rules decide. Raises StoppedError where the lab is to stop or ends: that
        says nothing of the models.
        """
        prompt = _safe(lab, prompt)
        asking = Asking(key, purpose, f"{prompt.name}@{prompt.version}", prompt.digest)
        if (recorded := _recorded(lab, wanted, asking)) is not None:
            return recorded
        try:
            return self._first_answer(lab, wanted, prompt, asking)
        except (BudgetError, ModelError) as error:
            # The story of a night is closed with it; a thread may still be waiting then.
            if _is_ending(lab):
                raise StoppedError(str(error)) from error
            lab.ledger.add_event(FALLBACK, f"{purpose}{BY_THE_RULES}{error}")
            raise

    def _first_answer(self, lab: Lab, wanted: type[T], prompt: Prompt, asking: Asking) -> Answer[T]:
        reasons: list[str] = []
        refusals: list[BudgetError] = []
        for endpoint in self.endpoints:
            if _is_ending(lab):
                raise StoppedError("the lab is to stop")
            if (seconds := self.servers.rest_seconds(endpoint)) > 0:
                reasons.append(f"{_name(endpoint)} failed before and is left alone for {seconds / 60:.0f} min")
                continue
            try:
                return Answer(self._conversation(lab, wanted, prompt, asking, endpoint).answer(), endpoint.model)
            except BudgetError as error:
                # Another may be cheaper.
                refusals.append(error)
            except (ChatError, PoorAnswerError) as error:
                reasons.append(f"{_name(endpoint)}: {error}")
                self._note(lab, endpoint, error)
        if refusals and not reasons:
            raise refusals[-1]
        reasons += [str(error) for error in refusals]
        raise ModelError(f"no language model answered: {'; '.join(reasons) or 'there is none to ask'}")

    def _conversation(
        self, lab: Lab, wanted: type[T], prompt: Prompt, asking: Asking, endpoint: Endpoint
    ) -> Conversation[T]:
        pace = replace(self.pace, attempts=1) if self.servers.is_doubtful(endpoint) else self.pace
        key = key_of(endpoint, self.environment)
        return Conversation(lab, wanted, prompt, asking, endpoint, key, self.servers, pace)

    def _note(self, lab: Lab, endpoint: Endpoint, error: ChatError | PoorAnswerError) -> None:
        """Remember a failure, and tell of it once for each kind."""
        if isinstance(error, PoorAnswerError):
            self.servers.answered_poorly(endpoint)
            return
        if error.kind in (FaultKind.TOO_LONG, FaultKind.UNSUPPORTED):
            # It is this request's fault, not the server's.
            self.servers.answered_poorly(endpoint)
        else:
            lasting = error.kind in _FOR_A_PERSON
            self.servers.failed(endpoint, rest_seconds=error.retry_after_seconds, for_long=lasting)
        if self.servers.is_news(endpoint, error.kind) and not lab.aside.is_closing:
            mend = f" ({_FOR_A_PERSON[error.kind]})" if error.kind in _FOR_A_PERSON else ""
            lab.ledger.add_event("model", f"{_name(endpoint)} does not answer: {error}{mend}")


@dataclass(frozen=True)
class Models:
    """The roles: who proposes, and who reviews."""

    proposer: LanguageModel
    reviewer: LanguageModel


def models_of(settings: BrainSettings, environment: Mapping[str, str]) -> Models | None:
    """The models of a study; None where the rules decide alone, and where nobody says which model to ask."""
    endpoints = endpoints_of(settings, environment)
    if settings.kind == "rules" or not endpoints:
        return None
    reviewers, servers = reviewers_of(settings, environment), Servers()
    return Models(LanguageModel(endpoints, environment, servers), LanguageModel(reviewers, environment, servers))


def endpoints_of(settings: BrainSettings, environment: Mapping[str, str]) -> list[Endpoint]:
    """The endpoints that propose, each with its address: the study's, else the one the environment names."""
    named = settings.endpoints
    if not named and (model := environment.get("NIGHTLAB_MODEL")):
        named = [Endpoint(model=model)]
    return [_resolved(one, environment) for one in named]


def reviewers_of(settings: BrainSettings, environment: Mapping[str, str]) -> list[Endpoint]:
    """The endpoints that review, each with its address: the study's, else those that propose, the last one first."""
    return [_resolved(one, environment) for one in settings.reviewers] or endpoints_of(settings, environment)[::-1]


def fallback_of(text: str) -> tuple[str, str]:
    """Purpose and reason of such an event."""
    purpose, _, reason = text.partition(BY_THE_RULES)
    return purpose, reason


def _resolved(endpoint: Endpoint, environment: Mapping[str, str]) -> Endpoint:
    base_url = endpoint.base_url or environment.get("NIGHTLAB_BASE_URL") or OPENAI_URL
    return endpoint.model_copy(update={"base_url": base_url})


def _is_ending(lab: Lab) -> bool:
    return lab.stop_requested() or lab.aside.is_closing


def _name(endpoint: Endpoint) -> str:
    return f"{endpoint.model} at {address_of(endpoint)}"


def _safe(lab: Lab, prompt: Prompt) -> Prompt:
    """The prompt as it is sent: without secrets, and without halves of characters that no JSON can hold."""

    def clean(text: str) -> str:
        return lab.redactor.redact(text).encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    return replace(prompt, system=clean(prompt.system), user=clean(prompt.user))


def _recorded(lab: Lab, wanted: type[T], asking: Asking) -> Answer[T] | None:
    call = lab.ledger.answered_call(asking.key, asking.prompt_hash)
    if call is None or call.answer is None:
        return None
    try:
        return Answer(wanted.model_validate_json(call.answer), call.model)
    except ValidationError:
        # Another version of nightlab asked for something else.
        return None
