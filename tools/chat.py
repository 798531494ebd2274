"""One request to a language model behind an OpenAI-compatible endpoint, and what came back or went wrong.

Everything beyond one request (retries, other endpoints, budgets, records) is `agents.llm`'s.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from nightlab.tools.chat_faults import fault_of, odd_answer
from nightlab.tools.json_answers import whole

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

__all__ = ["METHODS", "Method", "Reply", "Request", "Turn", "ask"]

Method = Literal["json_schema", "function_calling", "json_mode", "text"]
METHODS: tuple[Method, ...] = ("json_schema", "function_calling", "json_mode", "text")
"""How JSON is asked for, the most binding first; with the last two the prompt carries the schema."""

Turn = tuple[Literal["system", "user", "assistant"], str]

CONNECT_SECONDS = 10.0
TOOL = "answer"
NO_KEY = "no-key-needed"
"""Sent to servers without a key: the client insists on one, and takes it from OPENAI_API_KEY where none is given."""


@dataclass(frozen=True)
class Request:
    """What is sent to one endpoint."""

    base_url: str
    model: str
    key: str | None
    turns: Sequence[Turn]
    method: Method
    schema: dict[str, Any]
    """JSON schema of the answer, every object of it closed."""
    max_output_tokens: int
    timeout_seconds: float
    newer_limit: bool = False
    """Whether the longest answer is called `max_completion_tokens`, as OpenAI does, or `max_tokens`, as all others."""


@dataclass(frozen=True)
class Reply:
    """What the model said, not yet looked at, and what it took."""

    content: str = ""
    arguments: str | dict[str, Any] | None = None
    """What it called the function with; text where that is no JSON."""
    refusal: str | None = None
    is_cut: bool = False
    """Whether the answer ended at its longest."""
    input_tokens: int | None = None
    """The cached ones among them; None where the server does not tell."""
    output_tokens: int | None = None
    cached_tokens: int = 0
    seconds: float = 0.0

    @property
    def is_empty(self) -> bool:
        return not self.arguments and not self.content.strip()


def ask(request: Request) -> Reply:
    """Send it once. Raises `chat_faults.ChatError`; nothing is sent again, whatever the fault."""
    import httpx2
    import openai
    from langchain_openai import ChatOpenAI

    started = time.monotonic()
    timeout = httpx2.Timeout(request.timeout_seconds, connect=min(CONNECT_SECONDS, request.timeout_seconds))
    # A client a request: what is kept open between calls minutes apart is cut by servers anyway.
    with httpx2.Client(timeout=timeout, follow_redirects=True, verify=_trusted()) as client:
        model = ChatOpenAI(
            model=request.model,
            base_url=request.base_url,
            api_key=lambda: request.key or NO_KEY,
            timeout=request.timeout_seconds,
            max_retries=0,
            http_client=client,
            use_responses_api=False,
        )
        try:
            message = model.invoke(list(request.turns), **_options(request))
        except openai.APIError as error:
            raise fault_of(error) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise odd_answer(error) from error
    return replace(_reply(message), seconds=time.monotonic() - started)


@cache
def _trusted() -> ssl.SSLContext:
    """The certificates that are trusted; reading them takes longer than all else here."""
    import httpx2

    return httpx2.create_ssl_context()


def _options(request: Request) -> dict[str, Any]:
    limit = "max_completion_tokens" if request.newer_limit else "max_tokens"
    # In `extra_body`: given as `response_format` or `max_tokens`, langchain-openai parses the answer itself, raises
    # without telling what a cut answer took, and renames the limit.
    body: dict[str, Any] = {limit: request.max_output_tokens}
    options: dict[str, Any] = {"extra_body": body}
    if request.method == "json_schema":
        named = {"name": TOOL, "strict": True, "schema": request.schema}
        body["response_format"] = {"type": "json_schema", "json_schema": named}
    elif request.method == "function_calling":
        function = {"name": TOOL, "description": "Gives the answer.", "parameters": request.schema}
        options["tools"] = [{"type": "function", "function": function}]
        options["tool_choice"] = {"type": "function", "function": {"name": TOOL}}
    elif request.method == "json_mode":
        body["response_format"] = {"type": "json_object"}
    return options


def _reply(message: AIMessage) -> Reply:
    told = message.response_metadata
    usage = message.usage_metadata
    reason = told.get("finish_reason")
    refusal = message.additional_kwargs.get("refusal") or ("filtered" if reason == "content_filter" else None)
    reply = Reply(
        content=whole(str(message.text)),
        arguments=whole(_arguments(message)),
        refusal=whole(refusal),
        is_cut=reason == "length",
    )
    if usage is None:
        return reply
    details = usage.get("input_token_details") or {}
    # DeepSeek's own name for it, which langchain-openai does not know.
    elsewhere = (told.get("token_usage") or {}).get("prompt_cache_hit_tokens") or 0
    return replace(
        reply,
        input_tokens=usage["input_tokens"],
        output_tokens=usage["output_tokens"],
        cached_tokens=details.get("cache_read") or elsewhere,
    )


def _arguments(message: AIMessage) -> str | dict[str, Any] | None:
    if message.tool_calls:
        return message.tool_calls[0]["args"]
    if message.invalid_tool_calls:
        return message.invalid_tool_calls[0]["args"]
    return None
