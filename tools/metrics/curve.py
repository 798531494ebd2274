"""The training loss as a run logged it: one number a log line, for diagnosis only, never for a verdict."""

from __future__ import annotations

import math
import re
from pathlib import Path

__all__ = ["read_losses"]

_LOSS = re.compile(
    r"""(?<![\w/.])["']?(?:train[_/. ]?)?loss["']?\s*[:=]\s*["']?([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)"""
)
LONGEST_LINE = 4096


def read_losses(log: Path, *, limit: int = 10_000) -> tuple[float, ...]:
    """Finite values of `loss`, `train_loss` and the like in order of appearance, at most `limit` of them.

    An absent file gives none; lines longer than 4 KiB are cut, so memory stays flat.
    """
    values: list[float] = []
    if not log.exists():
        return ()
    with log.open("rb") as lines:
        while len(values) < limit and (line := lines.readline(LONGEST_LINE)):
            match = _LOSS.search(line.decode("utf-8", "replace"))
            if match and math.isfinite(value := float(match.group(1))):
                values.append(value)
    return tuple(values)
