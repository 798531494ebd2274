"""Hears the replies on an ntfy topic, in a thread of its own: one that is away or refuses delays nothing."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from pydantic import BaseModel, ValidationError
from tenacity import RetryError, Retrying, retry_if_exception_type, sleep_using_event, stop_when_event_set
from tenacity.wait import wait_random_exponential

from nightlab.configs.files import write_atomically
from nightlab.errors import NightlabError
from nightlab.tools.notify.ntfy import Message, Topic
from nightlab.tools.redaction import Redactor

__all__ = ["Listening", "listening"]

_log = logging.getLogger(__name__)
OWN_TITLE = "nightlab "
"""How the titles of the lab's own notifications begin: they may stand on the topic that is read."""
_FIRST_SPAN = "1m"
_JOIN_SECONDS = 1.0


@dataclass(frozen=True)
class Listening:
    """How often the topic is asked, and how patiently after failures."""

    every_seconds: float = 15.0
    first_wait_seconds: float = 2.0
    longest_wait_seconds: float = 300.0


class Cursor(BaseModel):
    """How far a topic has been read."""

    topic: str
    """Hash of its address: another topic begins anew."""
    since: int
    """The server's Unix time of the last message read, or of the first look."""
    seen: list[str] = []
    """Ids of the messages of that second."""

    def is_new(self, message: Message) -> bool:
        return message.time >= self.since and message.id not in self.seen

    def past(self, message: Message) -> Cursor:
        """The cursor once the message is dealt with."""
        seen = [*self.seen, message.id] if message.time == self.since else [message.id]
        return Cursor(topic=self.topic, since=message.time, seen=seen)


@contextmanager
def listening(
    topic: Topic, take: Callable[[Message], None], memory: Path, redactor: Redactor, pace: Listening | None = None
) -> Iterator[None]:
    """While the block lasts `take` gets each message that people write, in order, in a thread of the listener's own.

    What was on the topic before it is first looked at is no reply; how far it was read is kept in `memory`, so a
    restart goes on behind it. A message may be given again after a crash, or when `take` raises NightlabError.
    """
    listener = _Listener(topic, take, memory, redactor, pace or Listening())
    # A daemon: a service that never answers must not keep the lab's process alive.
    thread = threading.Thread(target=listener.run, name="replies", daemon=True)
    thread.start()
    try:
        yield
    finally:
        listener.closing.set()
        thread.join(_JOIN_SECONDS)


class _Listener:
    def __init__(
        self, topic: Topic, take: Callable[[Message], None], memory: Path, redactor: Redactor, pace: Listening
    ) -> None:
        self._topic, self._take, self._memory, self._redactor, self._pace = topic, take, memory, redactor, pace
        self.closing = threading.Event()
        self._hash = hashlib.sha256(topic.url.encode()).hexdigest()[:16]
        self._cursor = self._remembered()
        self._attempts = Retrying(
            retry=retry_if_exception_type(httpx.HTTPError),
            stop=stop_when_event_set(self.closing),
            wait=wait_random_exponential(pace.first_wait_seconds, pace.longest_wait_seconds),
            sleep=sleep_using_event(self.closing),
            before_sleep=lambda state: self._warn(
                "reading replies", state.outcome.exception() if state.outcome else None
            ),
        )

    def run(self) -> None:
        try:
            with self._topic.client() as client:
                while not self.closing.is_set():
                    self._attempts(self._look, client)
                    self.closing.wait(self._pace.every_seconds)
        except RetryError:
            return
        except Exception as error:  # noqa: BLE001 - whatever a server sends, the lab goes on without its replies
            self._warn("reading replies ended", error)

    def _look(self, client: httpx.Client) -> None:
        if self._cursor is None:
            there, server_time = self._topic.read(client, _FIRST_SPAN)
            # By the server's clock: this machine's may be ahead of it, and a reply would look old.
            now = max([server_time or int(time.time()), *(message.time for message in there)])
            self._keep(Cursor(topic=self._hash, since=now, seen=[message.id for message in there]))
            return
        messages, _ = self._topic.read(client, str(self._cursor.since))
        for message in sorted(messages, key=lambda one: one.time):
            if self.closing.is_set():
                return
            if self._cursor.is_new(message):
                if not self._is_given(message):
                    return
                self._keep(self._cursor.past(message))

    def _is_given(self, message: Message) -> bool:
        """Whether the message is dealt with; the records in trouble, it is given again at the next look."""
        if message.title.startswith(OWN_TITLE):
            return True
        try:
            self._take(message)
        except NightlabError as error:
            self._warn("a reply", error)
            return False
        except Exception as error:  # noqa: BLE001 - one message that cannot be dealt with must not stop the next
            self._warn("a reply", error)
        return True

    def _remembered(self) -> Cursor | None:
        try:
            cursor = Cursor.model_validate_json(self._memory.read_bytes())
        except (OSError, ValidationError):
            return None
        return cursor if cursor.topic == self._hash else None

    def _keep(self, cursor: Cursor) -> None:
        self._cursor = cursor
        try:
            write_atomically(self._memory, cursor.model_dump_json() + "\n")
        except (OSError, NightlabError) as error:
            self._warn("keeping how far replies were read", error)

    def _warn(self, what: str, error: BaseException | None) -> None:
        # Its kind and the first line: the address is a secret, and what a server sends is long.
        reason = self._redactor.redact(f"{type(error).__name__}: {error}".splitlines()[0])
        _log.warning("%s: %s", what, reason)
