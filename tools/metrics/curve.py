"""The training loss as a run logs it: one number a line, for diagnosis and watchdogs only, never for a verdict."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LossTail", "read_losses"]

_LOSS = re.compile(
    r"""(?<![\w/.])["']?(?:train[_/. ]?)?loss["']?\s*[:=]\s*["']?"""
    r"""([-+]?(?:[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?|nan\b|inf(?:inity)?\b))""",
    re.IGNORECASE,
)
LONGEST_LINE = 4096
LONGEST_READ = 1 << 20


def _loss_in(line: bytes) -> float | None:
    match = _LOSS.search(line.decode("utf-8", "replace"))
    return float(match.group(1)) if match else None


def read_losses(log: Path, *, limit: int = 10_000) -> tuple[float, ...]:
    """Finite values of `loss`, `train_loss` and the like in order of appearance, at most `limit` of them.

    An absent file gives none; lines longer than 4 KiB are cut, so memory stays flat.
    """
    values: list[float] = []
    if not log.exists():
        return ()
    with log.open("rb") as lines:
        while len(values) < limit and (line := lines.readline(LONGEST_LINE)):
            value = _loss_in(line)
            if value is not None and math.isfinite(value):
                values.append(value)
    return tuple(values)


@dataclass
class LossTail:
    """Follows a growing log: each call gives the losses that are new."""

    log: Path
    offset: int = 0

    def new_losses(self) -> list[float]:
        """Losses logged since the last call, nan and infinite ones included; at most the last MiB is read."""
        if not self.log.exists():
            return []
        size = self.log.stat().st_size
        if size <= self.offset:
            return []
        with self.log.open("rb") as log:
            log.seek(max(self.offset, size - LONGEST_READ))
            text = log.read(LONGEST_READ)
        # An unfinished last line is left for the next call.
        end = text.rfind(b"\n") + 1
        self.offset = size - len(text) + end if end or len(text) < LONGEST_READ else size
        lines = re.split(rb"[\r\n]", text[:end])
        return [value for line in lines if (value := _loss_in(line[:LONGEST_LINE])) is not None]
