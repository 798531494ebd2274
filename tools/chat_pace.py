"""How patiently a request to a language model is sent again: what tenacity asks after each attempt."""

from __future__ import annotations

from dataclasses import dataclass

from tenacity import RetryCallState
from tenacity.wait import wait_random_exponential

from nightlab.tools.chat_faults import ChatError

__all__ = ["Pace", "fault_in"]


@dataclass(frozen=True)
class Pace:
    """How patiently the same request is sent again."""

    attempts: int = 4
    first_wait_seconds: float = 1.0
    longest_wait_seconds: float = 60.0
    """A server that asks for a longer pause is not asked again."""

    def bears(self, fault: ChatError) -> bool:
        """Whether the fault passes by itself, and soon enough."""
        return fault.kind.is_transient and (fault.retry_after_seconds or 0.0) <= self.longest_wait_seconds

    def wait_seconds(self, state: RetryCallState) -> float:
        """How long to wait: as long as the server says, else by chance up to a limit that doubles."""
        fault = fault_in(state)
        backoff = float(wait_random_exponential(self.first_wait_seconds, self.longest_wait_seconds)(state))
        if fault is None or fault.retry_after_seconds is None:
            return backoff
        # A little later than told: of many who were told the same, not all should come at once.
        return fault.retry_after_seconds + min(backoff, self.first_wait_seconds)


def fault_in(state: RetryCallState) -> ChatError | None:
    """The fault an attempt ended with."""
    error = state.outcome.exception() if state.outcome else None
    return error if isinstance(error, ChatError) else None
