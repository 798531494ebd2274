"""How far a student is from its teacher's cached distribution: cross-entropy and a divergence, as tensors (torch).

With k tokens kept, everything else is one bucket: both distributions are taken over k + 1 outcomes, which makes the
divergence a lower bound of the full one that rises with k and is 0 when student and teacher agree (merging outcomes
never raises a divergence: the data processing inequality). With k = vocabulary nothing is approximated.

Between two cached temperatures the teacher's bucket is interpolated, which overrates it slightly (log Σ p^s is convex
in s); at the cached ones it is exact. Temperature and its square: Hinton et al. 2015 (1503.02531); reverse: Gu et al.
2023 (2306.08543).
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch

from nightlab.errors import ConfigError, Fault

__all__ = ["Direction", "Distillation", "divergence", "tail_at"]

Direction = Literal["forward", "reverse"]


@dataclass(frozen=True)
class Distillation:
    """The loss: CE + alpha · T² · KL, both a mean over the target tokens."""

    alpha: float = 1.0
    temperature: float = 1.0
    direction: Direction = "forward"
    """`forward`: KL(teacher ‖ student), covers all that the teacher says. `reverse`: KL(student ‖ teacher), keeps to
    its likeliest."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.alpha) and self.alpha >= 0):
            raise ConfigError(Fault("must be 0 or more", key="alpha", value=self.alpha))
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(Fault("must be above 0", key="temperature", value=self.temperature))
        if self.direction not in ("forward", "reverse"):
            raise ConfigError(Fault(f"{self.direction} is not forward or reverse", key="direction"))


def tail_at(tail: Any, temperatures: Sequence[float], temperature: float, others: int) -> Any:
    """log Σ p^(1/T) over the `others` tokens outside the top k, from a (rows, temperatures) tensor: (rows,).

    Raises ConfigError for a T below the lowest cached one. Above the highest, the known end is T = ∞, where the sum is
    `others`.
    """
    if temperature in temperatures:
        return tail[:, list(temperatures).index(temperature)]
    after = bisect.bisect(temperatures, temperature)
    if not after:
        mend = f"dump the logits with --temperature {temperature:g}"
        raise ConfigError(Fault(f"is below {temperatures[0]:g}, the cache's lowest", key="temperature", mend=mend))
    is_last = after == len(temperatures)
    upper = 0.0 if is_last else 1 / temperatures[after]
    end = torch.full_like(tail[:, 0], math.log(others)) if is_last else tail[:, after]
    share = (1 / temperature - upper) / (1 / temperatures[after - 1] - upper)
    return share * tail[:, after - 1] + (1 - share) * end


def divergence(
    logits: Any, ids: Any, logs: Any, tail: Any, *, temperatures: Sequence[float], loss: Distillation
) -> Any:
    """KL of each row at the loss's temperature, without T²: (rows,).

    `logits` (rows, vocabulary) of the student; `ids` and `logs` (rows, k), `tail` (rows, temperatures) of the cache.
    """
    temperature, others = loss.temperature, logits.shape[-1] - ids.shape[-1]
    student = torch.log_softmax(logits.float() / temperature, dim=-1)
    ours, theirs = student.gather(-1, ids.long()), logs.float() / temperature
    if others:
        outside = student.scatter(-1, ids.long(), -torch.inf).logsumexp(dim=-1, keepdim=True)
        ours = torch.cat([ours, outside], dim=-1)
        theirs = torch.cat([theirs, tail_at(tail.float(), temperatures, temperature, others)[:, None]], dim=-1)
    # What float16 has rounded away is shared out again.
    theirs = torch.log_softmax(theirs, dim=-1)
    first, second = (theirs, ours) if loss.direction == "forward" else (ours, theirs)
    return (first.exp() * (first - second)).sum(dim=-1)
