"""The ledger's pages about calls of language models: reserved at their worst case before, settled by what they took."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pydantic import AwareDatetime, BaseModel
from sqlalchemy import case, func, insert, select

from nightlab.knowledge import tables
from nightlab.knowledge.database import Database, as_row, fetch_all, fetch_one, select_as
from nightlab.knowledge.records import CallState, ModelCall, utc_now

__all__ = ["CallBook", "CallTotals", "PurposeCalls"]


@dataclass(frozen=True)
class CallTotals:
    """What the study's calls have used and still hold."""

    tokens: int = 0
    """Input and output of the calls that have ended."""
    cost_usd: float = 0.0
    reserved_tokens: int = 0
    """What the calls under way may take at most."""
    reserved_cost_usd: float = 0.0


class PurposeCalls(BaseModel):
    """What the calls for one purpose came to."""

    purpose: str
    calls: int
    """Those that were sent, or refused before they were worked on; each time counts."""
    tokens: int
    cost_usd: float
    answers: int
    """Good ones."""
    refused: int
    """Answers that could not be used: cut, no JSON, against the schema, a refusal of the model's."""
    unanswered: int
    """Errors of the server, timeouts, cut connections."""
    last_answer_at: AwareDatetime | None
    """When the last good one came."""


class CallBook(Database):
    """Reservations and settlements of calls; whether there is budget for one is asked in the same transaction."""

    def reserve_call(
        self,
        key: str,
        *,
        purpose: str,
        model: str,
        prompt_hash: str,
        input_tokens: int,
        output_tokens: int,
        cost_usd: float,
        prompt: str = "",
        endpoint: str = "",
        method: str = "",
    ) -> ModelCall:
        """Write, before it is made, what a call may take at most."""
        call = ModelCall(
            id=0,
            key=key,
            purpose=purpose,
            model=model,
            prompt_hash=prompt_hash,
            prompt=prompt,
            endpoint=endpoint,
            method=method,
            reserved_input_tokens=input_tokens,
            reserved_output_tokens=output_tokens,
            reserved_cost_usd=cost_usd,
        )
        row = as_row(call)
        del row["id"]
        with self._write() as connection:
            made = connection.execute(insert(tables.calls).values(**row)).inserted_primary_key
        return call.model_copy(update={"id": made[0] if made else 0})

    def settle_call(
        self,
        call_id: int,
        *,
        input_tokens: int,
        output_tokens: int,
        cached_tokens: int = 0,
        cost_usd: float,
        seconds: float,
        outcome: str = "",
        answer: str | None = None,
    ) -> ModelCall:
        """Replace a call's reservation by what it took, also after it was given up as lost; later ones change nothing.

        `input_tokens` hold the cached ones. Raises LedgerError for an unknown call.
        """
        taken = {
            "state": CallState.SETTLED,
            "input_tokens": input_tokens,
            "cached_tokens": min(cached_tokens, input_tokens),
            "output_tokens": output_tokens,
            "cost_usd": cost_usd,
            "seconds": seconds,
            "outcome": outcome,
            "answer": answer,
        }
        return self._end_call(call_id, (CallState.RESERVED, CallState.LOST), taken)

    def release_call(self, call_id: int, outcome: str) -> ModelCall:
        """Give back what was reserved for a call that was never sent."""
        return self._end_call(call_id, (CallState.RESERVED,), {"state": CallState.RELEASED, "outcome": outcome})

    def lose_call(self, call_id: int, outcome: str) -> ModelCall:
        """End a call of which nobody knows what it took: all that was reserved is spent."""
        with self.transaction():
            return self._end_call(call_id, (CallState.RESERVED,), _lost(self.call(call_id), outcome))

    def lose_open_calls(self, outcome: str) -> list[ModelCall]:
        """`lose_call` for every call under way; for the start of a lab, when whoever made them is dead."""
        with self.transaction():
            return [self.lose_call(call.id, outcome) for call in self.calls(states=(CallState.RESERVED,))]

    def call(self, call_id: int) -> ModelCall:
        """One call. Raises LedgerError when there is none of this id."""
        query = select_as(tables.calls, ModelCall).where(tables.calls.c.id == call_id)
        return self._found(self._one(query, ModelCall), f"model call {call_id}")

    def answered_call(self, key: str, prompt_hash: str) -> ModelCall | None:
        """The call under this key that brought the answer to this prompt, where it is kept."""
        call = tables.calls.c
        query = select_as(tables.calls, ModelCall).where(
            call.key == key, call.prompt_hash == prompt_hash, call.answer.is_not(None)
        )
        return self._one(query.order_by(call.id.desc()).limit(1), ModelCall)

    def method_that_worked(self, endpoint: str, model: str) -> str | None:
        """How JSON was asked for when this endpoint last gave a good answer."""
        call = tables.calls.c
        query = select(call.method).where(
            call.endpoint == endpoint, call.model == model, call.state == CallState.SETTLED, call.outcome == ""
        )
        with self._read() as connection:
            return connection.execute(query.order_by(call.id.desc()).limit(1)).scalar()

    def calls(self, *, states: Iterable[CallState] | None = None) -> list[ModelCall]:
        """Calls in the order they were reserved."""
        query = select_as(tables.calls, ModelCall).order_by(tables.calls.c.id)
        if states is not None:
            query = query.where(tables.calls.c.state.in_(list(states)))
        with self._read() as connection:
            return fetch_all(connection, query, ModelCall)

    def call_totals(self) -> CallTotals:
        """Sums over all calls."""
        call = tables.calls.c
        ended = (func.sum(call.input_tokens + call.output_tokens), func.sum(call.cost_usd))
        held = (func.sum(call.reserved_input_tokens + call.reserved_output_tokens), func.sum(call.reserved_cost_usd))
        with self._read() as connection:
            tokens, cost_usd = connection.execute(select(*ended)).one()
            reserved = connection.execute(select(*held).where(call.state == CallState.RESERVED)).one()
        return CallTotals(tokens or 0, cost_usd or 0.0, reserved[0] or 0, reserved[1] or 0.0)

    def calls_by_purpose(self) -> list[PurposeCalls]:
        """Sums over all calls that have ended, by what they were for."""
        call = tables.calls.c
        is_settled = call.state == CallState.SETTLED
        is_good = is_settled & (call.outcome == "")
        query = select(
            call.purpose,
            func.count().label("calls"),
            func.sum(call.input_tokens + call.output_tokens).label("tokens"),
            func.sum(call.cost_usd).label("cost_usd"),
            func.count(case((is_good, 1))).label("answers"),
            func.count(case((is_settled & (call.outcome != ""), 1))).label("refused"),
            func.count(case((call.state.in_([CallState.RELEASED, CallState.LOST]), 1))).label("unanswered"),
            func.max(case((is_good, call.ended_at))).label("last_answer_at"),
        ).where(call.state != CallState.RESERVED)
        with self._read() as connection:
            return fetch_all(connection, query.group_by(call.purpose).order_by(call.purpose), PurposeCalls)

    def _end_call(self, call_id: int, before: tuple[CallState, ...], changes: dict[str, Any]) -> ModelCall:
        query = select_as(tables.calls, ModelCall).where(tables.calls.c.id == call_id)
        with self._write() as connection:
            held = self._found(fetch_one(connection, query, ModelCall), f"model call {call_id}")
            if held.state not in before:
                return held
            changes = {**changes, "ended_at": utc_now()}
            return self._update(connection, tables.calls, ModelCall, {"id": call_id}, changes)


def _lost(call: ModelCall, outcome: str) -> dict[str, Any]:
    return {
        "state": CallState.LOST,
        "input_tokens": call.reserved_input_tokens,
        "output_tokens": call.reserved_output_tokens,
        "cost_usd": call.reserved_cost_usd,
        "outcome": outcome,
    }
