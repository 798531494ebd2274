"""One call of a model as the ledger knows it: reserved, sent, settled; sent again where the fault passes by itself."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel
from tenacity import RetryCallState, Retrying

from nightlab.agents.context import Lab
from nightlab.agents.model_calls import give_up_call, release_call, reserve_call, settle_call
from nightlab.agents.servers import address_of
from nightlab.configs.brain import Endpoint
from nightlab.tools.chat import Reply, Request, ask
from nightlab.tools.chat_faults import ChatError, FaultKind
from nightlab.tools.chat_pace import Pace, fault_in
from nightlab.tools.json_answers import Parsed

__all__ = ["Asking", "Said", "send", "tokens_at_most"]

T = TypeVar("T", bound=BaseModel)

MAX_ANSWER_CHARACTERS = 100_000
"""Longer answers are not kept: they are asked for again after a crash."""
MOST_COSTLY = 2
"""So often a request is sent that may be charged each time."""
LOOK_SECONDS = 0.5
"""So often a wait looks whether the lab is to stop."""
TURN_TOKENS = 64
"""What a server's template may add to one message."""


@dataclass(frozen=True)
class Asking:
    """Which call of the study this is."""

    key: str
    purpose: str
    prompt: str
    prompt_hash: str


@dataclass(frozen=True)
class Said(Generic[T]):
    """A reply and what was read from it."""

    reply: Reply
    parsed: Parsed[T]


def tokens_at_most(request: Request) -> int:
    """An upper bound of what the server will count as the prompt, the schema included.

    No tokenizer makes more tokens than there are bytes; texts full of digits come near to it.
    """
    texts = [text for _, text in request.turns] + [json.dumps(request.schema)]
    return sum(len(text.encode("utf-8", "surrogatepass")) + TURN_TOKENS for text in texts)


def send(
    lab: Lab, asking: Asking, endpoint: Endpoint, request: Request, read: Callable[[Reply], Parsed[T]], pace: Pace
) -> Said[T]:
    """Send `request` until it is answered or trying again is no use; each time is a call in the ledger.

    Raises ChatError for the last failure, BudgetError where the budget does not bear another call.
    """
    attempts: Retrying = Retrying(
        retry=lambda state: _is_worth_it(state, pace),
        stop=lambda state: state.attempt_number >= pace.attempts or lab.stop_requested(),
        wait=pace.wait_seconds,
        sleep=lambda seconds: _sleep(lab, seconds),
        reraise=True,
    )
    said: Said[T] = attempts(_once, lab, asking, endpoint, request, read)
    return said


def _is_worth_it(state: RetryCallState, pace: Pace) -> bool:
    fault = fault_in(state)
    if fault is None or not pace.bears(fault):
        return False
    return fault.kind not in (FaultKind.TIMEOUT, FaultKind.MALFORMED) or state.attempt_number < MOST_COSTLY


def _sleep(lab: Lab, seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not lab.stop_requested():
        time.sleep(min(left, LOOK_SECONDS))


def _once(
    lab: Lab, asking: Asking, endpoint: Endpoint, request: Request, read: Callable[[Reply], Parsed[T]]
) -> Said[T]:
    most_tokens = tokens_at_most(request)
    call = reserve_call(
        lab,
        asking.key,
        purpose=asking.purpose,
        model=endpoint.model,
        prompt=asking.prompt,
        prompt_hash=asking.prompt_hash,
        endpoint=address_of(endpoint),
        method=request.method,
        prompt_tokens=most_tokens,
        max_output_tokens=request.max_output_tokens,
    )
    try:
        reply = ask(request)
    except ChatError as fault:
        end = give_up_call if fault.was_sent else release_call
        end(lab, call, str(fault))
        raise
    except BaseException as error:
        give_up_call(lab, call, f"interrupted: {type(error).__name__}")
        raise
    parsed = read(reply)
    written = parsed.value.model_dump_json() if parsed.value is not None else None
    # A server that does not tell is booked at no less than it can have been.
    input_tokens = most_tokens if reply.input_tokens is None else reply.input_tokens
    output_tokens = request.max_output_tokens if reply.output_tokens is None else reply.output_tokens
    settle_call(
        lab,
        call,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=reply.cached_tokens,
        seconds=reply.seconds,
        outcome=parsed.problem,
        answer=written if written is not None and len(written) <= MAX_ANSWER_CHARACTERS else None,
    )
    return Said(reply, parsed)
