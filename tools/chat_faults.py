"""What goes wrong between the lab and a language model's server, told apart by what helps."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from nightlab.configs.wording import one_line

if TYPE_CHECKING:
    import openai

__all__ = ["ChatError", "FaultKind", "fault_of", "odd_answer", "retry_after_seconds"]

MAX_TOLD = 200


class FaultKind(StrEnum):
    """What is wrong, as far as it says what to do next."""

    BUSY = "busy"
    """429, 5xx: the same request may succeed later."""
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    KEY = "key"
    """The key is wrong, may not use this model, or its credit is used up: nothing but a person helps."""
    MODEL = "model"
    """The endpoint knows no such model, or the address is wrong."""
    UNSUPPORTED = "unsupported"
    """The request was refused as it is: another way to ask may do."""
    LIMIT_NAME = "limit name"
    """It wants the longest answer by its other name."""
    TOO_LONG = "too long"
    """The prompt does not fit into the model's context."""
    MALFORMED = "malformed"
    """What came back is no chat completion."""

    @property
    def is_transient(self) -> bool:
        return self in (FaultKind.BUSY, FaultKind.UNREACHABLE, FaultKind.TIMEOUT, FaultKind.MALFORMED)


class ChatError(Exception):
    """One request that brought no answer; for `agents.llm`, never for a person."""

    def __init__(
        self, kind: FaultKind, text: str, *, was_sent: bool = False, retry_after_seconds: float | None = None
    ) -> None:
        self.kind = kind
        self.was_sent = was_sent
        """Whether it may have been worked on, and may be charged."""
        self.retry_after_seconds = retry_after_seconds
        """When the server asks to be asked again."""
        super().__init__(one_line(text)[:MAX_TOLD])


_NO_CREDIT = ("insufficient_quota", "insufficient balance", "insufficient credits", "billing")
_NO_MODEL = re.compile(r"model\W.{0,80}(not exist|not found|not a valid|unknown|invalid)|(unknown|invalid) model", re.I)
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size)|maximum.{0,20}(context|prompt)|prompt is too long|too many tokens", re.I
)
_OTHER_WAY = re.compile(r"tool|function|response_format|response format|json|schema|parameters", re.I)


def fault_of(error: openai.APIError) -> ChatError:
    """The fault behind an error of the client."""
    import httpx2
    import openai

    if isinstance(error, openai.APIStatusError):
        text = f"{error.status_code} {_told(error)}"
        kind = _kind_of(error.status_code, f"{error.code or ''} {error.message} {error.body or ''}")
        return ChatError(kind, text, retry_after_seconds=retry_after_seconds(error.response.headers))
    if isinstance(error, openai.APIConnectionError):
        cause = _innermost(error, httpx2.TransportError)
        reached = not isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
        timed_out = isinstance(error, openai.APITimeoutError) and reached
        kind = FaultKind.TIMEOUT if timed_out else FaultKind.UNREACHABLE
        return ChatError(kind, str(cause or error) or type(cause).__name__, was_sent=reached)
    return ChatError(FaultKind.MALFORMED, f"no chat completion came back: {error.message}", was_sent=True)


def _told(error: openai.APIStatusError) -> str:
    """What the server says is wrong, without the client's words around it."""
    told = error.body.get("message") or error.body.get("detail") if isinstance(error.body, dict) else None
    return str(told or error.message)


def odd_answer(error: Exception) -> ChatError:
    """The fault behind what langchain-openai raises for an answer with status 200 that is no chat completion."""
    if isinstance(error, ValueError) and error.args and isinstance(error.args[0], dict):
        # A gateway that hands on its provider's error.
        told = error.args[0]
        return ChatError(FaultKind.BUSY, f"{told.get('code', '')} {told.get('message') or told}".strip())
    if isinstance(error, ValueError) and not isinstance(error, json.JSONDecodeError):
        return ChatError(FaultKind.MODEL, "what came back is no JSON, but another page")
    return ChatError(FaultKind.MALFORMED, f"no chat completion came back: {error}", was_sent=True)


def _kind_of(status: int, told: str) -> FaultKind:
    lower = told.lower()
    if status in (401, 402, 403) or any(word in lower for word in _NO_CREDIT):
        return FaultKind.KEY
    if status in (408, 409, 425, 429) or (status >= 500 and status != 501):
        return FaultKind.BUSY
    if status == 413 or _TOO_LONG.search(told):
        return FaultKind.TOO_LONG
    if "max_completion_tokens" in lower and "max_tokens" in lower:
        return FaultKind.LIMIT_NAME
    if status < 400 or _NO_MODEL.search(told) or (status == 404 and not _OTHER_WAY.search(told)):
        return FaultKind.MODEL
    return FaultKind.UNSUPPORTED


def _innermost(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The transport's own error below the client's."""
    seen: BaseException | None = error
    while seen is not None and not isinstance(seen, kind):
        seen = seen.__cause__
    return seen


def retry_after_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """What `Retry-After` asks for, in seconds or as a date, or OpenAI's `retry-after-ms` (RFC 9110, section 10.2.3)."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        if (told := headers.get("retry-after")) is None:
            return None
        if re.fullmatch(r"\s*\d+(\.\d+)?\s*", told):
            return float(told)
        moment = parsedate_to_datetime(told)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())
