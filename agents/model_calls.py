"""The gate before every call of a language model: reserved at its worst case, settled by what it took, fail closed."""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.agents.spending import usage_of
from nightlab.errors import BudgetError
from nightlab.knowledge.records import ModelCall
from nightlab.search.spending import call_refusal

__all__ = [
    "DEAD",
    "give_up_call",
    "release_call",
    "reserve_call",
    "settle_call",
    "settle_calls_of_the_dead",
    "told_loss",
]

DEAD = "the lab died while it waited for the answer"


def reserve_call(
    lab: Lab,
    key: str,
    *,
    purpose: str,
    model: str,
    prompt_hash: str,
    prompt_tokens: int,
    max_output_tokens: int,
    prompt: str = "",
    endpoint: str = "",
    method: str = "",
) -> ModelCall:
    """Take what the call may use at most out of the budget, before it is sent.

    `prompt_tokens` is an upper bound of what the provider will count, `prompt` the prompt's name and version. Raises
    BudgetError where it does not fit: nothing is written then, and the call must not be made.
    """
    price = lab.study.prices.models.get(model)
    cost_usd = price.cost_usd(prompt_tokens, max_output_tokens) if price else 0.0
    # One transaction: of two that ask at once only one may get what is left.
    with lab.ledger.transaction():
        refusal = call_refusal(
            lab.study, usage_of(lab.ledger, lab.now()), model, prompt_tokens + max_output_tokens, cost_usd
        )
        if refusal is not None:
            raise BudgetError(refusal)
        return lab.ledger.reserve_call(
            key,
            purpose=purpose,
            model=model,
            prompt_hash=prompt_hash,
            prompt=prompt,
            endpoint=endpoint,
            method=method,
            input_tokens=prompt_tokens,
            output_tokens=max_output_tokens,
            cost_usd=cost_usd,
        )


def settle_call(
    lab: Lab,
    call: ModelCall,
    *,
    input_tokens: int,
    output_tokens: int,
    cached_tokens: int = 0,
    seconds: float,
    outcome: str = "",
    answer: str | None = None,
) -> ModelCall:
    """Book what the provider says the call took; `input_tokens` hold the cached ones."""
    price = lab.study.prices.models.get(call.model)
    cached_tokens = min(cached_tokens, input_tokens)
    return lab.ledger.settle_call(
        call.id,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cached_tokens=cached_tokens,
        cost_usd=price.cost_usd(input_tokens, output_tokens, cached_tokens) if price else 0.0,
        seconds=seconds,
        outcome=outcome,
        answer=answer,
    )


def release_call(lab: Lab, call: ModelCall, why: str) -> ModelCall:
    """Give the reservation back: the call was never sent, or refused before it was worked on."""
    return lab.ledger.release_call(call.id, why)


def give_up_call(lab: Lab, call: ModelCall, why: str) -> ModelCall:
    """Book all that was reserved: the call was sent, and nobody said what it took (a timeout, a cut connection)."""
    return lab.ledger.lose_call(call.id, why)


def settle_calls_of_the_dead(lab: Lab) -> list[ModelCall]:
    """At a lab's start: calls that are still open are those of a dead one. Each counts as spent at its worst case."""
    with lab.ledger.transaction():
        lost = lab.ledger.lose_open_calls(DEAD)
        for call in lost:
            lab.ledger.add_event("call", told_loss(call))
    return lost


def told_loss(call: ModelCall) -> str:
    """What is told of a call whose lab died."""
    return f"{call.purpose} by {call.model}: {DEAD}; counted at its most, {call.tokens:,} tokens"
