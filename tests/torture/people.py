"""Whom an eventful night tells: a real service, and what must be true of the messages it got.

The promise: while a channel takes messages, what is still to be told is told at least once: a question that waits for a
person, the confirmed best, the breaker, the end. A message is told again only where its lab was killed between the
delivery and the record of it; never after the record.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from nightlab.knowledge.records import VerdictKind
from tests.tools.notify.server import Service, service
from tests.torture.invariants import Breach, Night

__all__ = ["listening", "untold"]


class Timed(list[dict[str, Any]]):
    """Notes when each message came."""

    def append(self, message: dict[str, Any]) -> None:
        super().append(message | {"at": datetime.now(UTC)})


@contextmanager
def listening() -> Iterator[Service]:
    with service() as people:
        people.received = Timed()
        # A lab that dies in the middle of a message is nobody's fault.
        people.handle_error = lambda *_: None  # type: ignore[method-assign]
        yield people


def untold(night: Night, received: list[dict[str, Any]], deaths: int) -> list[Breach]:
    """What was told too seldom or too often in a night whose labs were killed `deaths` times."""
    breaches = []
    for key, title, must in _notices(night):
        times = [message["at"] for message in received if title in f"{message['title']}\n{message['message']}"]
        recorded = [time for name, time in night.told.items() if name.endswith(f"/{key}")]
        if must and not times:
            breaches.append(Breach("lost", f"nobody was told: {title}"))
        if len(times) > 1 + deaths:
            breaches.append(Breach("doubled", f"told {len(times)} times: {title}"))
        if must and not recorded:
            breaches.append(Breach("lost", f"no record that it was told: {title}"))
        if recorded and any(time > recorded[0] for time in times):
            breaches.append(Breach("doubled", f"told after it was recorded as told: {title}"))
    return breaches


def _notices(night: Night) -> Iterator[tuple[str, str, bool]]:
    """Key and title of all there was to tell, and whether somebody must have heard of it."""
    yield "ended/1", "the study has ended", True
    for question in night.questions:
        # One whose deadline passed while no lab was there to tell it needs no answer any more.
        yield f"question/{question.id}", f"question {question.id} (", question.deadline is None
        if question.kind == "repeated-failure":
            cause = question.text.partition(" failed with ")[2].partition(" ")[0]
            yield f"breaker/{cause}/{question.id}", f"equal failures: {cause}", True
    kept = [history[-1] for history in night.verdicts.values() if history and history[-1].kind is VerdictKind.KEEP]
    if kept:
        best = max(kept, key=lambda verdict: verdict.effect.delta if verdict.effect else 0.0)
        yield f"confirmed/{best.number}", f"experiment {best.number:02d} is the new best", True
