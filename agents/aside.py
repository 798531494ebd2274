"""One thing at a time that waits for a language model, in a thread of its own, so that no slot waits with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["STOP_SECONDS", "Aside", "StoppedError"]

STOP_SECONDS = 10.0
"""How long the end of a lab waits for what is under way; it is begun again by the next one."""


class StoppedError(Exception):
    """The lab ends before there is an answer: nothing follows from that, and the next lab asks again."""


@dataclass
class Aside:
    """One thread of a lab; the supervisor looks at it and never waits for it while there is something else to do."""

    name: str = "nightlab-aside"
    _thread: threading.Thread | None = None
    _began: float = 0.0
    _error: BaseException | None = None
    _is_news: threading.Event = field(default_factory=threading.Event)
    _closing: threading.Event = field(default_factory=threading.Event)

    @property
    def has_news(self) -> bool:
        """Whether something was finished since `take` was called last."""
        return self._is_news.is_set()

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def busy_seconds(self) -> float:
        """How long what is under way has been waited for; 0 where nothing is."""
        return time.monotonic() - self._began if self.is_busy else 0.0

    @property
    def is_closing(self) -> bool:
        """Whether the lab ends: what is under way has no effect any more."""
        return self._closing.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether something is finished within `seconds`."""
        return self._is_news.wait(seconds)

    def take(self) -> None:
        """Take notice of what was finished. Raises here what the thread could not bear."""
        self._is_news.clear()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def start(self, work: Callable[[], object]) -> bool:
        """Begin `work`; False where something is under way."""
        if self.is_busy or self.is_closing:
            return False
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._do, args=(work,), name=self.name, daemon=True)
        self._thread.start()
        return True

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Begin nothing more, and wait a moment for what is under way."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except StoppedError:
            pass
        except BaseException as error:  # noqa: BLE001 - raised again where the supervisor looks
            # The end of the lab takes trees and ledger away: what fails by that is nobody's fault.
            if not self.is_closing:
                self._error = error
        finally:
            self._is_news.set()
