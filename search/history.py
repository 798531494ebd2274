"""What the search knows: the ledger's experiments as plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Phase

__all__ = ["History", "RankedFactor", "Trial"]

Parameters = dict[str, Scalar]


@dataclass(frozen=True)
class Trial:
    """One run of one experiment; `value` is the objective in its own unit and direction."""

    number: int
    parameters: Parameters
    changed: Parameters
    seed: int
    phase: Phase
    state: Literal["pending", "measured", "failed"]
    value: float | None = None
    valid: bool = True
    """False when review rejected the run: it is never ranked and never believed."""


@dataclass(frozen=True)
class RankedFactor:
    """One factor with the values to try, best guess first, as the design document fixed it."""

    name: str
    levels: tuple[Scalar, ...]
    """Values to try, the baseline's own not among them, in the order to try them."""
    ordered: bool
    log: bool = False
    technique: str | None = None
    tier: int = 3
    score: float = 0.0
    """Expected usefulness from catalog, symptoms and lessons; larger is tried earlier within a tier."""
    requires: Parameters = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class History:
    """All there is to know when planning."""

    factors: tuple[RankedFactor, ...] = ()
    """In the order they are to be screened; empty until the design document is written."""
    trials: tuple[Trial, ...] = ()
    """In the order they were planned."""
    runs_left: int = 0
    """Runs the budget still allows, those in flight already taken off."""
    experiments_left: int | None = None
    """New configurations the budget still allows; None: no limit."""
