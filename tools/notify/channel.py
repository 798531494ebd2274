"""One channel with its own thread: a service that hangs or is down delays neither the lab nor the other channels."""

from __future__ import annotations

import logging
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt, stop_any, stop_when_event_set
from tenacity.wait import wait_random_exponential

from nightlab.tools.notify.messages import Notice, merged
from nightlab.tools.notify.targets import Target
from nightlab.tools.notify.throttle import Throttle
from nightlab.tools.redaction import Redactor

__all__ = ["Channel", "Counts", "Memory", "Pace"]

_log = logging.getLogger(__name__)
_CLOSING_PAUSE_SECONDS = 1.0
_HEADING_CHARACTERS = 200
_BODY_CHARACTERS = 1500

T = TypeVar("T")


@dataclass(frozen=True)
class Pace:
    """How patient a channel is; the defaults outlast a service that is away for a quarter of an hour."""

    kind_pause_seconds: float = 60.0
    """At most one message a kind and study in this time."""
    attempts: int = 15
    first_wait_seconds: float = 1.0
    """Longest wait before the second attempt; doubles with each, the wait itself is drawn below it."""
    longest_wait_seconds: float = 300.0
    queue_size: int = 200
    """Notices waiting; further ones are dropped and counted."""


@dataclass(frozen=True)
class Memory:
    """What was told before, also by an earlier lab: both are called in a channel's thread and may raise."""

    seen: Callable[[str], bool] = lambda _key: False
    mark: Callable[[str], None] = lambda _key: None


@dataclass(frozen=True)
class Counts:
    """What became of the notices: one message may carry several."""

    delivered: int = 0
    repeated: int = 0
    """Told before."""
    failed: int = 0
    """Not taken in any attempt."""
    dropped: int = 0
    """The queue was full, or the channel closed."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.delivered + other.delivered,
            self.repeated + other.repeated,
            self.failed + other.failed,
            self.dropped + other.dropped,
        )


class Channel:
    """Takes notices at once, delivers them in its thread in their order, and raises nothing."""

    def __init__(
        self, target: Target, redactor: Redactor, memory: Memory, pace: Pace, clock: Callable[[], float]
    ) -> None:
        self._target, self._redactor, self._memory, self._pace, self._clock = target, redactor, memory, pace, clock
        self._queue: queue.Queue[Notice | None] = queue.Queue(pace.queue_size)
        self._throttle = Throttle(pace.kind_pause_seconds)
        self._known: set[str] = set()
        self._counts, self._counting = Counts(), threading.Lock()
        self._closing, self._giving_up = threading.Event(), threading.Event()
        self._attempts = Retrying(
            retry=retry_if_result(lambda taken: not taken),
            stop=stop_any(stop_after_attempt(pace.attempts), stop_when_event_set(self._giving_up)),
            wait=wait_random_exponential(pace.first_wait_seconds, pace.longest_wait_seconds),
            sleep=self._pause,
        )
        # A daemon: a service that never answers must not keep the lab's process alive.
        self._thread = threading.Thread(target=self._run, name=f"notify-{target.label}", daemon=True)
        self._thread.start()

    @property
    def counts(self) -> Counts:
        with self._counting:
            return self._counts

    def put(self, notice: Notice) -> None:
        """Returns at once; a notice that finds the queue full or the channel closed is dropped and counted."""
        if self._closing.is_set():
            self._drop(notice)
            return
        try:
            self._queue.put_nowait(notice)
        except queue.Full:
            self._drop(notice)

    def close(self) -> None:
        """Stop waiting: what is held goes out now, retries come faster. `join` waits for it."""
        self._closing.set()
        # Wakes the thread; it does not sleep where the queue is full.
        with suppress(queue.Full):
            self._queue.put_nowait(None)

    def join(self, seconds: float) -> bool:
        """Whether everything was dealt with in time; if not, the attempt under way is the last."""
        self._thread.join(max(0.0, seconds))
        self._giving_up.set()
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._giving_up.is_set():
            finishing = self._closing.is_set()
            self._take_in(0.0 if finishing else self._throttle.wait_seconds(self._clock()))
            for group in self._throttle.due(self._clock(), everything=finishing):
                self._tell(group)
            if finishing and self._queue.empty():
                return
        self._take_in(0.0)
        self._count(failed=self._throttle.held)

    def _take_in(self, wait_seconds: float | None) -> None:
        """Wait for a notice, at most so long, then take all that are there."""
        with suppress(queue.Empty):
            notice = self._queue.get(block=wait_seconds != 0.0, timeout=wait_seconds)
            while True:
                if notice is not None:
                    self._admit(notice)
                notice = self._queue.get_nowait()

    def _admit(self, notice: Notice) -> None:
        key = self._key(notice)
        if key in self._known or self._foreign("looking up what was told", partial(self._memory.seen, key), False):
            self._count(repeated=1)
        elif self._throttle.held >= self._pace.queue_size:
            self._drop(notice)
        else:
            self._known.add(key)
            self._throttle.hold(notice)

    def _tell(self, group: list[Notice]) -> None:
        keys = [self._key(notice) for notice in group]
        if self._delivered(merged(group)):
            self._count(delivered=len(group))
            for key in keys:
                self._foreign("noting what was told", partial(self._memory.mark, key), None)
        else:
            self._known.difference_update(keys)
            self._count(failed=len(group))

    def _delivered(self, notice: Notice) -> bool:
        heading = self._safe(notice.heading, _HEADING_CHARACTERS)
        body = "\n".join((self._safe(notice.body, _BODY_CHARACTERS), *notice.links))
        try:
            self._attempts(
                self._foreign, "a notification", lambda: self._target.deliver(heading, body, notice.urgency), False
            )
        except RetryError as error:
            tried = error.last_attempt.attempt_number
            _log.warning("%s did not take a notification in %d attempts: %s", self._target.label, tried, heading)
            return False
        return True

    def _pause(self, seconds: float) -> None:
        if self._closing.is_set():
            self._giving_up.wait(min(seconds, _CLOSING_PAUSE_SECONDS))
        else:
            self._closing.wait(seconds)

    def _foreign(self, what: str, call: Callable[[], T], otherwise: T) -> T:
        """The call's result; `otherwise` when it raises."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - plugins and callbacks may raise anything; the channel goes on
            reason = self._redactor.redact("".join(traceback.format_exception_only(error)).strip())
            _log.warning("%s for %s failed: %s", what, self._target.label, reason)
            return otherwise

    def _safe(self, text: str, characters: int) -> str:
        # Cut after redacting: half a secret would not be recognised.
        text = self._redactor.redact(text)
        return text if len(text) <= characters else text[: characters - 1] + "…"

    def _key(self, notice: Notice) -> str:
        return f"{self._target.id}/{notice.study}/{notice.key}"

    def _drop(self, notice: Notice) -> None:
        self._count(dropped=1)
        heading = self._safe(notice.heading, _HEADING_CHARACTERS)
        _log.warning("a notification for %s is dropped: %s", self._target.label, heading)

    def _count(self, **more: int) -> None:
        with self._counting:
            self._counts += Counts(**more)
