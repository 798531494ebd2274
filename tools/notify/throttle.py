"""How often a message of one kind may go out: the first at once, what follows within the pause as one message."""

from __future__ import annotations

from nightlab.tools.notify.messages import Notice, NoticeKind

__all__ = ["Throttle"]

Topic = tuple[str, NoticeKind]


class Throttle:
    """At most one message a kind and study in `pause_seconds`; times are seconds of any steady clock."""

    def __init__(self, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._last: dict[Topic, float] = {}
        self._held: dict[Topic, list[Notice]] = {}

    @property
    def held(self) -> int:
        return sum(map(len, self._held.values()))

    def hold(self, notice: Notice) -> None:
        """Take a notice in; `due` gives it back when its time has come."""
        self._held.setdefault((notice.study, notice.kind), []).append(notice)

    def due(self, now: float, *, everything: bool = False) -> list[list[Notice]]:
        """The groups to send now, each as one message; `everything` ends the waiting."""
        ready = [topic for topic in self._held if everything or self._free_at(topic, now) <= now]
        self._last |= dict.fromkeys(ready, now)
        return [self._held.pop(topic) for topic in ready]

    def wait_seconds(self, now: float) -> float | None:
        """Until the next group is due; None when nothing is held."""
        return max(0.0, min(self._free_at(topic, now) for topic in self._held) - now) if self._held else None

    def _free_at(self, topic: Topic, now: float) -> float:
        return self._last[topic] + self._pause_seconds if topic in self._last else now
