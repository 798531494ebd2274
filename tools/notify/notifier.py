"""Tells people on every channel of a study, and never stops or slows the lab."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Self

from nightlab.tools.notify.channel import Channel, Counts, Memory, Pace
from nightlab.tools.notify.messages import Notice, NoticeKind
from nightlab.tools.notify.targets import open_targets
from nightlab.tools.redaction import Redactor

__all__ = ["Notifier"]

_EXIT_SECONDS = 15.0


class Notifier:
    """`targets` are Apprise URLs or `env:NAME`; without any, nothing is sent and nothing is loaded.

    Raises ConfigError for a bad target or when the package apprise is missing; afterwards it raises nothing: failures
    are logged and counted.
    """

    def __init__(
        self,
        targets: Iterable[str],
        redactor: Redactor,
        clock: Callable[[], float] = time.monotonic,
        *,
        kinds: Collection[str] = tuple(NoticeKind),
        memory: Memory | None = None,
        pace: Pace | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        memory, pace = memory or Memory(), pace or Pace()
        opened = open_targets(targets, environment)
        self._clock, self._kinds = clock, frozenset(kinds)
        self._channels = [Channel(target, redactor, memory, pace, clock) for target in opened]

    @property
    def counts(self) -> Counts:
        """Over all channels: a notice counts once for each."""
        return sum((channel.counts for channel in self._channels), Counts())

    def send(self, notice: Notice) -> None:
        """Hand it to every channel, unless its kind is not wanted, and return at once."""
        if notice.kind in self._kinds:
            for channel in self._channels:
                channel.put(notice)

    def close(self, timeout: float) -> bool:
        """Send what is still held, at most `timeout` seconds; whether everything was dealt with."""
        for channel in self._channels:
            channel.close()
        deadline = self._clock() + timeout
        finished = [channel.join(deadline - self._clock()) for channel in self._channels]
        return all(finished)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self.close(_EXIT_SECONDS)
