"""What a teacher was asked and what it said, one JSON object a line, appended; after `kill -9` nothing is asked twice.

::

    {"event": "asked", "key": "…", "tokens": 1400}              before a request leaves: the most it can be charged
    {"event": "answer", "key": "…", "tokens": 131, "said": {…}}  what came back, and what it took
    {"event": "free", "key": "…"}                                it was not worked on: nothing is charged
    {"event": "no", "key": "…", "cause": "too long"}             it was not worked on, and never will be

A question without an answer stays charged at its most: it may have been worked on.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

from nightlab.errors import ConfigError, DiskError, Fault
from nightlab.tools.distillation.teacher import Said

__all__ = ["Journal"]


class Journal:
    """An open journal, for this process alone; any of its threads may write.

    Raises ConfigError where another process has it open; lines that cannot be read, as a torn one, are passed over.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answers: dict[str, Said] = {}
        self.refused: dict[str, str] = {}
        """Questions that will never be answered, and why."""
        self.broken_lines = 0
        self._settled = 0
        self._open: Counter[str] = Counter()
        self._last: dict[str, int] = {}
        self._lock = threading.Lock()
        self._file: BinaryIO

    def __enter__(self) -> Self:
        with DiskError.at(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise ConfigError(Fault("is in use by another process", self.path)) from error
        self._read()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        self._file.close()

    @property
    def spent_tokens(self) -> int:
        """Tokens told by the server, and for questions without an answer the most they can have been charged."""
        with self._lock:
            return self._settled + self._open.total()

    def is_done(self, key: str) -> bool:
        return key in self.answers or key in self.refused

    def reserve(self, key: str, tokens: int, budget: int | None) -> bool:
        """Note that a question is about to be sent; False, and nothing noted, where the budget does not bear it.

        Raises DiskError.
        """
        with self._lock:
            if budget is not None and self._settled + self._open.total() + tokens > budget:
                return False
            self._write({"event": "asked", "key": key, "tokens": tokens})
            return True

    def answer(self, key: str, said: Said, tokens: int) -> None:
        """Note an answer; it took so many of the tokens reserved. Raises DiskError."""
        with self._lock:
            self._write({"event": "answer", "key": key, "tokens": tokens, "said": asdict(said)})

    def release(self, key: str) -> None:
        """Note that the question was not worked on. Raises DiskError."""
        with self._lock:
            self._write({"event": "free", "key": key})

    def refuse(self, key: str, cause: str) -> None:
        """Note that the question will not be answered however often it is asked. Raises DiskError."""
        with self._lock:
            self._write({"event": "no", "key": key, "cause": cause})

    def _write(self, event: dict[str, Any]) -> None:
        with DiskError.at(self.path):
            self._file.write(json.dumps(event).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        self._take(event)

    def _read(self) -> None:
        ends_whole = True
        with self.path.open("rb") as lines:
            for line in lines:
                ends_whole = line.endswith(b"\n")
                try:
                    self._take(json.loads(line))
                except (ValueError, TypeError, LookupError):
                    self.broken_lines += 1
        # A torn line must not swallow the one that is written next.
        if not ends_whole:
            with DiskError.at(self.path):
                self._file.write(b"\n")
                self._file.flush()

    def _take(self, event: dict[str, Any]) -> None:
        """Raises LookupError, TypeError or ValueError for what is no event."""
        kind, key = event["event"], str(event["key"])
        if kind == "asked":
            # Each time it is asked it may be charged; what an answer or a release settles is one of them.
            self._open[key] += int(event["tokens"])
            self._last[key] = int(event["tokens"])
            return
        if kind == "answer":
            said = Said(**event["said"])
            self.answers[key] = said
            self._settled += int(event["tokens"])
        elif kind == "no":
            self.refused[key] = str(event["cause"])
        elif kind != "free":
            raise LookupError(kind)
        self._open[key] -= self._last.pop(key, 0)
