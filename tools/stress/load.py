"""Load on an OpenAI-compatible endpoint: so many requests at a time, as fast as it answers them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

import httpx

from nightlab.errors import StressError
from nightlab.tools.stress.figures import LevelTally

__all__ = ["LoadPlan", "LoadTest", "read_prompts"]

MOST_PROMPTS = 10_000
LONGEST_LINE = 1 << 20
TEXT_FIELDS = ("prompt", "instruction", "question", "query", "text", "input")
OWN_PROMPTS = (
    "Name three rivers and say in one sentence where each of them ends.",
    "Explain in a few sentences why the sky is blue at noon and red in the evening.",
    "Write a short list of things to check before a long journey by train.",
)

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class LoadPlan:
    """What is sent, how much of it, and how many requests at a time."""

    base_url: str
    """With the version: `http://127.0.0.1:8000/v1`."""
    model: str
    concurrency: tuple[int, ...] = (1, 4, 16)
    """The levels, one after the other."""
    requests: int = 100
    """Of each level, the warm-up not counted."""
    prompts: Sequence[Messages] = ()
    """Sent in turn; without any, three of the lab's own."""
    max_tokens: int = 128
    stream: bool = False
    timeout_seconds: float = 120.0
    """Of one request."""
    api_key: str = ""


@dataclass
class LoadTest:
    """One test as it goes on: what is in `levels` counts, also when it is interrupted."""

    plan: LoadPlan
    levels: list[LevelTally] = field(default_factory=list)

    async def run(self) -> None:
        """Go through the levels."""
        for concurrency in self.plan.concurrency:
            await self._level(concurrency)

    @property
    def result(self) -> dict[str, Any]:
        """For JSON: every level, each under its concurrency too, and the hardest one by itself."""
        figures = [level.figures for level in self.levels]
        hardest = max(figures, key=lambda one: int(one["concurrency"]), default=None)
        return {
            "base_url": self.plan.base_url,
            "model": self.plan.model,
            "stream": self.plan.stream,
            "max_tokens": self.plan.max_tokens,
            "levels": figures,
            "by_concurrency": {str(one["concurrency"]): one for one in figures},
            "hardest": hardest,
        }

    async def _level(self, concurrency: int) -> None:
        plan, tally = self.plan, LevelTally(concurrency)
        limits = httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency)
        headers = {"Authorization": f"Bearer {plan.api_key}"} if plan.api_key else {}
        # The environment's proxies are not for a server on this machine or in this network.
        async with httpx.AsyncClient(
            limits=limits, timeout=plan.timeout_seconds, headers=headers, trust_env=False
        ) as client:
            warm_up = LevelTally(concurrency)
            await self._send(client, warm_up, concurrency, concurrency)
            tally.warm_up = len(warm_up.latency_ms) + warm_up.errors.total()
            self.levels.append(tally)
            began = time.perf_counter()
            try:
                await self._send(client, tally, concurrency, plan.requests)
            finally:
                tally.seconds = time.perf_counter() - began

    async def _send(self, client: httpx.AsyncClient, tally: LevelTally, concurrency: int, requests: int) -> None:
        numbers = iter(range(requests))

        async def worker() -> None:
            for number in numbers:
                await self._request(client, tally, number)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrency, requests)):
                group.create_task(worker())

    async def _request(self, client: httpx.AsyncClient, tally: LevelTally, number: int) -> None:
        began = time.perf_counter()
        try:
            tokens, told, first = await self._answer(client, number)
        except httpx.TimeoutException:
            tally.failed("timeout")
        except httpx.HTTPStatusError as error:
            tally.failed(f"status {error.response.status_code}")
        except httpx.HTTPError as error:
            tally.failed(type(error).__name__)
        except (ValueError, KeyError, TypeError, IndexError):
            tally.failed("no chat completion")
        else:
            ended = time.perf_counter()
            since = (first - began) * 1000 if first is not None else None
            tally.answered((ended - began) * 1000, tokens, told=told, first_token_ms=since)

    async def _answer(self, client: httpx.AsyncClient, number: int) -> tuple[int, bool, float | None]:
        """Tokens written, whether the server told so, and when the first piece of a stream came."""
        plan = self.plan
        body: dict[str, Any] = {
            "model": plan.model,
            "messages": plan.prompts[number % len(plan.prompts)] if plan.prompts else _own(number),
            "max_tokens": plan.max_tokens,
        }
        address = f"{plan.base_url.rstrip('/')}/chat/completions"
        if not plan.stream:
            response = await client.post(address, json=body)
            response.raise_for_status()
            answer = response.json()
            text = answer["choices"][0]["message"].get("content") or ""
            told = _told(answer)
            return (len(text.split()), False, None) if told is None else (told, True, None)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        async with client.stream("POST", address, json=body) as response:
            response.raise_for_status()
            return await _read_stream(response)


async def _read_stream(response: httpx.Response) -> tuple[int, bool, float | None]:
    pieces, told, first, whole = 0, None, None, False
    async for line in response.aiter_lines():
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            whole = True
            break
        event = json.loads(data)
        told = _told(event) if _told(event) is not None else told
        for choice in event.get("choices") or ():
            whole = whole or bool(choice.get("finish_reason"))
            if (choice.get("delta") or {}).get("content"):
                pieces += 1
                first = first if first is not None else time.perf_counter()
    if not whole:
        raise ValueError("the stream broke off")
    return (pieces, False, first) if told is None else (told, True, first)


def _told(answer: dict[str, Any]) -> int | None:
    tokens = (answer.get("usage") or {}).get("completion_tokens")
    return int(tokens) if tokens is not None else None


def _own(number: int) -> Messages:
    # Numbered, so that a server's cache of prompts does not answer for it.
    return [{"role": "user", "content": f"({number}) {OWN_PROMPTS[number % len(OWN_PROMPTS)]}"}]


def read_prompts(file: Path) -> list[Messages]:
    """Prompts of a file, one a line, 10,000 at most: text, or JSON with `messages`, `prompt` or a field like it.

    Raises StressError.
    """
    try:
        with file.open(encoding="utf-8-sig", errors="replace") as lines:
            wanted = islice(_lines(lines), MOST_PROMPTS)
            found = [_prompt(file, number, line) for number, line in wanted]
    except OSError as error:
        raise StressError(f"{file}: {error.strerror or error}") from error
    if not found:
        raise StressError(f"{file}: holds no prompt (one a line, text or JSON)")
    return found


def _lines(lines: Any) -> Iterator[tuple[int, str]]:
    for number in count(1):
        line = lines.readline(LONGEST_LINE)
        if not line:
            return
        if line.strip():
            yield number, line.strip()


def _prompt(file: Path, number: int, line: str) -> Messages:
    if not line.startswith("{"):
        return [{"role": "user", "content": line}]
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StressError(f"{file}:{number}: is no JSON object (mend or remove the line)") from error
    if isinstance(row.get("messages"), list):
        return [one for one in row["messages"] if isinstance(one, dict)]
    text = next((row[name] for name in TEXT_FIELDS if isinstance(row.get(name), str) and row[name]), None)
    if text is None:
        raise StressError(f"{file}:{number}: has no field messages, {', '.join(TEXT_FIELDS)} (rename one of them)")
    return [{"role": "user", "content": text}]
