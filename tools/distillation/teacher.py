"""One question to a teacher behind an OpenAI-compatible endpoint (needs `nightlab[llm]`)."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from nightlab.errors import ConfigError
from nightlab.tools.chat_faults import ChatError, FaultKind, fault_of, odd_answer
from nightlab.tools.distillation.prompts import Prompt

__all__ = ["Connection", "Said", "Teacher"]

CONNECT_SECONDS = 10.0
NO_KEY = "no-key-needed"
TURN_TOKENS = 64
"""What a server's template may add to one message."""


@dataclass(frozen=True)
class Teacher:
    """Which model answers, and how it is asked. None: as the server has it."""

    model: str
    base_url: str
    key: str | None = field(default=None, repr=False)
    max_tokens: int = 1024
    """Longest answer, the model's thoughts among it."""
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    """Sent with the number of the sample added."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """More of the request, such as `chat_template_kwargs`."""
    timeout_seconds: float = 120.0

    def request(self, prompt: Prompt, sample: int) -> dict[str, Any]:
        """What is sent, but for the name of the longest answer."""
        sampling = {"temperature": self.temperature, "top_p": self.top_p}
        if self.seed is not None:
            sampling["seed"] = self.seed + sample
        messages = [{"role": role, "content": text} for role, text in prompt.turns]
        return {"model": self.model, "messages": messages} | {k: v for k, v in sampling.items() if v is not None}

    def key_of(self, prompt: Prompt, sample: int) -> str:
        """Which question this is: model, request and sample, not the address it is sent to."""
        content = [self.request(prompt, sample), self.max_tokens, dict(self.body), sample]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]

    def tokens_at_most(self, prompt: Prompt) -> int:
        """What one question can be charged: no tokenizer makes more tokens than there are bytes."""
        return sum(len(text.encode()) + TURN_TOKENS for _, text in prompt.turns) + TURN_TOKENS + self.max_tokens


@dataclass(frozen=True)
class Said:
    """What came back. Tokens are None where the server does not tell."""

    text: str = ""
    thoughts: str = ""
    """What the server gives apart from the answer (`reasoning_content`)."""
    finish: str = ""
    refusal: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float = 0.0


class Connection:
    """An open client for one teacher; any thread may ask."""

    def __init__(self, teacher: Teacher) -> None:
        try:
            import httpx2
            import openai
        except ImportError as error:
            raise ConfigError('asking a teacher needs `pip install "nightlab[llm]"`') from error
        self.teacher = teacher
        self._limit = "max_tokens"
        timeout = httpx2.Timeout(teacher.timeout_seconds, connect=min(CONNECT_SECONDS, teacher.timeout_seconds))
        self._client = openai.OpenAI(
            base_url=teacher.base_url, api_key=teacher.key or NO_KEY, timeout=timeout, max_retries=0
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self._client.close()

    def ask(self, prompt: Prompt, sample: int) -> Said:
        """Send it once. Raises ChatError; nothing is sent again but for the other name of the longest answer."""
        try:
            return self._ask(prompt, sample)
        except ChatError as fault:
            if fault.kind is not FaultKind.LIMIT_NAME:
                raise self._without_key(fault) from fault
            self._limit = "max_completion_tokens"
            return self._ask(prompt, sample)

    def _without_key(self, fault: ChatError) -> ChatError:
        """Servers repeat a key they do not like."""
        text = str(fault).replace(self.teacher.key, "…") if self.teacher.key else str(fault)
        return ChatError(fault.kind, text, was_sent=fault.was_sent, retry_after_seconds=fault.retry_after_seconds)

    def _ask(self, prompt: Prompt, sample: int) -> Said:
        import openai

        started = time.monotonic()
        more = {self._limit: self.teacher.max_tokens, **self.teacher.body}
        try:
            reply = self._client.chat.completions.create(**self.teacher.request(prompt, sample), extra_body=more)
        except openai.APIError as error:
            raise fault_of(error) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise odd_answer(error) from error
        return _said(reply, time.monotonic() - started)


def _said(reply: Any, seconds: float) -> Said:
    """Raises ChatError for what is no chat completion."""
    if isinstance(reply, str):
        raise ChatError(FaultKind.MODEL, "what came back is no JSON, but another page")
    if told := (reply.model_extra or {}).get("error"):
        raise ChatError(FaultKind.BUSY, str(told))
    choice = reply.choices[0] if reply.choices else None
    if choice is None or choice.message is None:
        raise ChatError(FaultKind.MALFORMED, "no chat completion came back", was_sent=True)
    message, more, usage = choice.message, choice.message.model_extra or {}, reply.usage
    return Said(
        text=message.content or "",
        thoughts=str(more.get("reasoning_content") or more.get("reasoning") or ""),
        finish=str(choice.finish_reason or ""),
        refusal=message.refusal or "",
        input_tokens=usage.prompt_tokens if usage else None,
        output_tokens=usage.completion_tokens if usage else None,
        seconds=round(seconds, 3),
    )
