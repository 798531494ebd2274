"""The training loss as a run logs it: one number a line, for diagnosis and watchdogs only, never for a verdict."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

__all__ = ["LossTail", "all_losses", "read_losses"]

_LOSS = re.compile(
    r"""(?<![\w/.])["']?(?:train[_/. ]?)?loss["']?\s*[:=]\s*["']?"""
    r"""([-+]?(?:[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?|nan\b|inf(?:inity)?\b))""",
    re.IGNORECASE,
)
_HELD_OUT = re.compile(
    r"(?<![^\W_])(?:val(?:id(?:ation)?)?|eval(?:uation)?|test(?:ing)?|dev|holdout)\W{1,5}$", re.IGNORECASE
)
LONGEST_WORD = 16
LONGEST_LINE = 4096
LONGEST_READ = 1 << 20


# What only reinforcement learning reports. Its loss is near zero or below by construction and says nothing of learning.
_REWARDED = re.compile(rb"""["'](?:reward|reward_std|frac_reward_zero_std|rewards/[^"']{1,100}/mean)["']\s*:""")


def _loss_in(line: bytes) -> float | None:
    """The training loss that a line states; of a line of reinforcement learning only one that is not finite.

    A held-out loss (`val loss: 0.5`) counts only where it is not finite: it may rise while a model learns.
    """
    if b"loss" not in line.lower():
        return None
    text = line.decode("utf-8", "replace")
    for match in _LOSS.finditer(text):
        loss = float(match[1])
        if not math.isfinite(loss):
            return loss
        if not _HELD_OUT.search(text, max(0, match.start() - LONGEST_WORD), match.start()):
            return None if _REWARDED.search(line) else loss
    return None


def all_losses(log: Path) -> Iterator[float]:
    """Every value of `loss`, `train_loss` and the like in order of appearance, nan and infinite ones included.

    An absent file gives none; lines longer than 4 KiB are cut, so memory stays flat.
    """
    if not log.exists():
        return
    with log.open("rb") as lines:
        while line := lines.readline(LONGEST_LINE):
            for part in re.split(rb"\r(?!\n)", line):
                if (value := _loss_in(part)) is not None:
                    yield value


def read_losses(log: Path, *, limit: int = 10_000) -> tuple[float, ...]:
    """The first `limit` finite values of `all_losses`."""
    return tuple(islice((value for value in all_losses(log) if math.isfinite(value)), limit))


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
