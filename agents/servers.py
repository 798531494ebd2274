"""What is known of each endpoint: how it takes JSON, and whether it is worth asking now. Shared by all who ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from nightlab.configs.brain import Endpoint
from nightlab.knowledge.ledger import Ledger
from nightlab.tools.chat import METHODS, Method

__all__ = ["FIRST_REST_SECONDS", "LONGEST_REST_SECONDS", "OPENAI_URL", "Servers", "address_of", "is_openai"]

OPENAI_URL = "https://api.openai.com/v1"
FIRST_REST_SECONDS = 60.0
LONGEST_REST_SECONDS = 1800.0
POOR_ANSWERS = 3
"""So many unusable answers in a row, and an endpoint is left alone like one that does not answer."""


def address_of(endpoint: Endpoint) -> str:
    """Host, port and path of an endpoint: what may be written down of it."""
    parts = urlsplit(endpoint.base_url or OPENAI_URL)
    return f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}".rstrip("/")


def is_openai(endpoint: Endpoint) -> bool:
    """Whether it is OpenAI's own, which alone calls the longest answer `max_completion_tokens`."""
    return urlsplit(endpoint.base_url or OPENAI_URL).hostname == urlsplit(OPENAI_URL).hostname


@dataclass(frozen=True)
class _Known:
    method: Method | None = None
    newer_limit: bool = False
    failures: int = 0
    """In a row, while it was asked."""
    poor: int = 0
    rests_until: float = 0.0
    told: str = ""
    """Which of its faults was last told to people."""


@dataclass
class Servers:
    """A memory for one process; how JSON is asked for is taken from the ledger where it was learned before."""

    clock: Callable[[], float] = time.monotonic
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learned_method(self, ledger: Ledger, endpoint: Endpoint) -> Method | None:
        """How JSON was asked for with success; None before the first."""
        known = self._of(endpoint)
        if known.method is None:
            held = ledger.method_that_worked(address_of(endpoint), endpoint.model)
            method = next((one for one in METHODS if one == held), None)
            known = self._change(endpoint, method=method)
        return known.method

    def wants_newer_limit(self, endpoint: Endpoint) -> bool:
        """Whether it calls the longest answer `max_completion_tokens`."""
        return self._of(endpoint).newer_limit

    def swap_limit(self, endpoint: Endpoint) -> None:
        self._change(endpoint, newer_limit=not self._of(endpoint).newer_limit)

    def rest_seconds(self, endpoint: Endpoint) -> float:
        """How long it is still left alone; 0 when it may be asked."""
        return max(0.0, self._of(endpoint).rests_until - self.clock())

    def is_doubtful(self, endpoint: Endpoint) -> bool:
        """Whether it failed the last time: one try is enough then."""
        return self._of(endpoint).failures > 0

    def succeeded(self, endpoint: Endpoint, method: Method) -> None:
        """Note a good answer."""
        self._change(endpoint, method=method, failures=0, poor=0, rests_until=0.0, told="")

    def failed(self, endpoint: Endpoint, *, rest_seconds: float | None = None, for_long: bool = False) -> None:
        """Leave it alone for a while: twice as long each time, or what it asked for itself."""
        failures = self._of(endpoint).failures + 1
        seconds = min(FIRST_REST_SECONDS * 2 ** min(failures - 1, 10), LONGEST_REST_SECONDS)
        seconds = LONGEST_REST_SECONDS if for_long else max(seconds, min(rest_seconds or 0.0, LONGEST_REST_SECONDS))
        self._change(endpoint, failures=failures, rests_until=self.clock() + seconds)

    def answered_poorly(self, endpoint: Endpoint) -> None:
        """Note an unusable answer."""
        poor = self._of(endpoint).poor + 1
        self._change(endpoint, poor=poor)
        if poor >= POOR_ANSWERS:
            self.failed(endpoint)

    def is_news(self, endpoint: Endpoint, fault: str) -> bool:
        """Whether this kind of fault was not the last one told of it; it is taken for told now."""
        is_news = self._of(endpoint).told != fault
        self._change(endpoint, told=fault)
        return is_news

    def _of(self, endpoint: Endpoint) -> _Known:
        first = _Known(newer_limit=is_openai(endpoint))
        with self._lock:
            return self._known.get(_identity(endpoint), first)

    def _change(self, endpoint: Endpoint, **changes: object) -> _Known:
        known = self._of(endpoint)
        with self._lock:
            known = replace(self._known.get(_identity(endpoint), known), **changes)  # type: ignore[arg-type]
            self._known[_identity(endpoint)] = known
        return known


def _identity(endpoint: Endpoint) -> tuple[str, str]:
    return endpoint.base_url or OPENAI_URL, endpoint.model
