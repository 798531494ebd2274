"""A valid answer from one endpoint: the ways to ask for JSON in turn, faulty answers sent back at most twice."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel

from nightlab.agents.context import Lab
from nightlab.agents.prompts import Prompt
from nightlab.agents.sending import Asking, send
from nightlab.agents.servers import OPENAI_URL, Servers
from nightlab.configs.brain import Endpoint
from nightlab.tools.chat import METHODS, Method, Reply, Request, Turn
from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.chat_pace import Pace
from nightlab.tools.json_answers import Parsed, answer_schema, parsed_answer

__all__ = ["Conversation", "PoorAnswerError", "is_local", "key_of"]

T = TypeVar("T", bound=BaseModel)

REPAIRS = 2
MAX_QUOTED = 4000
"""Characters of a faulty answer that are sent back."""


class PoorAnswerError(Exception):
    """The endpoint answered, but nothing that could be used; for `agents.llm`, never for a person."""


def is_local(base_url: str | None) -> bool:
    """Whether the address is one of this machine or of a private network, where servers need no key."""
    host = urlsplit(base_url or OPENAI_URL).hostname or ""
    try:
        return ipaddress.ip_address(host).is_private
    except ValueError:
        return host == "localhost" or "." not in host or host.endswith((".local", ".internal", ".lan"))


def key_of(endpoint: Endpoint, environment: Mapping[str, str]) -> str | None:
    """The endpoint's key, where its variable is set."""
    return environment.get(endpoint.api_key_env) or None


@dataclass(frozen=True)
class Conversation(Generic[T]):
    """One question to one endpoint."""

    lab: Lab
    wanted: type[T]
    prompt: Prompt
    asking: Asking
    endpoint: Endpoint
    key: str | None
    servers: Servers
    pace: Pace

    def answer(self) -> T:
        """A valid answer.

        Raises ChatError where the endpoint does not answer, PoorAnswerError where it gives nothing valid, BudgetError
        where the budget does not bear another call.
        """
        learned = self.servers.learned_method(self.lab.ledger, self.endpoint)
        methods = [*([learned] if learned else []), *(one for one in METHODS if one != learned)]
        while True:
            method = methods.pop(0)
            try:
                return self._asked_by(method, is_last=not methods, is_learned=method == learned)
            except _OtherWayError as other:
                if not methods:
                    raise other.reason from None

    def _asked_by(self, method: Method, *, is_last: bool, is_learned: bool) -> T:
        turns, repairs, swapped = self._first_turns(method), 0, False
        while True:
            try:
                said = send(self.lab, self.asking, self.endpoint, self._request(method, turns), self._read, self.pace)
            except ChatError as fault:
                if fault.kind is FaultKind.LIMIT_NAME and not swapped:
                    swapped = True
                    self.servers.swap_limit(self.endpoint)
                    continue
                if fault.kind is FaultKind.UNSUPPORTED:
                    raise _OtherWayError(fault) from fault
                raise
            parsed, reply = said.parsed, said.reply
            if parsed.value is not None:
                self.servers.succeeded(self.endpoint, method)
                return parsed.value
            poor = PoorAnswerError(parsed.problem)
            if reply.refusal is not None:
                raise poor
            if not is_learned and not is_last and _is_ignored(method, reply, parsed):
                raise _OtherWayError(poor)
            if repairs >= REPAIRS:
                raise poor
            repairs += 1
            turns = [*self._first_turns(method), *_repair(reply, parsed.problem)]

    def _request(self, method: Method, turns: list[Turn]) -> Request:
        return Request(
            base_url=self.endpoint.base_url or OPENAI_URL,
            model=self.endpoint.model,
            key=self.key,
            turns=turns,
            method=method,
            schema=self._schema,
            max_output_tokens=self.endpoint.max_output_tokens,
            timeout_seconds=self.endpoint.timeout_seconds,
            newer_limit=self.servers.wants_newer_limit(self.endpoint),
        )

    @property
    def _schema(self) -> dict[str, object]:
        return answer_schema(self.wanted, lengths=is_local(self.endpoint.base_url))

    def _first_turns(self, method: Method) -> list[Turn]:
        system = self.prompt.system
        if method in ("json_mode", "text"):
            schema = json.dumps(self._schema, ensure_ascii=False)
            system = f"{system}\n\nAnswer with one JSON object and nothing else. It follows this JSON schema:\n{schema}"
        return [("system", system), ("user", self.prompt.user)]

    def _read(self, reply: Reply) -> Parsed[T]:
        if reply.refusal is not None:
            return Parsed(problem=f"refused: {reply.refusal}"[:MAX_QUOTED])
        if reply.is_cut:
            limit = self.endpoint.max_output_tokens
            return Parsed(problem=f"the answer was cut at its longest, {limit} tokens; answer more briefly")
        if reply.is_empty:
            return Parsed(problem="the answer is empty", breaks_schema=True)
        return parsed_answer(self.wanted, reply.arguments or reply.content, self.lab.redactor.redact_data)


def _is_ignored(method: Method, reply: Reply, parsed: Parsed[T]) -> bool:
    """Whether the server takes no notice of this way to ask: the model has not even seen the schema then."""
    if method == "function_calling" and reply.arguments is None:
        return True
    return method in METHODS[:2] and parsed.breaks_schema and not reply.is_cut


class _OtherWayError(Exception):
    """Another way to ask for JSON may do."""

    def __init__(self, reason: ChatError | PoorAnswerError) -> None:
        self.reason = reason


def _repair(reply: Reply, problem: str) -> list[Turn]:
    """The faulty answer and what is wrong with it, as further turns."""
    written = reply.arguments if reply.arguments is not None else reply.content
    text = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    wish = f"That answer cannot be used: {problem}\nAnswer again: the whole JSON object, corrected, nothing else."
    return [*([("assistant", text[:MAX_QUOTED])] if text.strip() else []), ("user", wish)]  # type: ignore[list-item]
