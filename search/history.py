"""What the search knows: the ledger's experiments as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Phase

__all__ = ["Cell", "History", "RankedFactor", "Trial", "cells_of"]

Parameters = dict[str, Scalar]


@dataclass(frozen=True)
class Trial:
    """One run of one experiment; `value` is the objective in its own unit and direction.

    `failed` is final: a run that is to be retried is still pending.
    """

    number: int
    parameters: Parameters
    changed: Parameters
    seed: int
    phase: Phase
    state: Literal["pending", "measured", "failed", "pruned"]
    """`pruned`: ended because it fell behind; it is worse than the incumbent, nobody measured by how much."""
    value: float | None = None
    """Of a pruned run an estimate of what it would have come to, None without one."""
    valid: bool = True
    """False when review rejected the run: it is never ranked and never believed."""

    @property
    def usable(self) -> float | None:
        """The value, where it may be believed: measured, finite and not rejected by review."""
        good = self.state == "measured" and self.valid and self.value is not None and math.isfinite(self.value)
        return self.value if good else None


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
    """Conditional: the factor means something only where the configuration has these values."""
    also: tuple[Parameters, ...] = ()
    """What each of `levels` sets besides the factor's own parameter (a technique as a bundle); empty: nothing."""
    chances: tuple[float, ...] = ()
    """P(better than the baseline's value) of each of `levels`, from catalog and lessons; empty: nothing known."""
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
    margin: int = 0
    """Runs that exploration leaves besides confirmation's: where the clock limits, `runs_left` is an estimate."""
    forbidden: tuple[Parameters, ...] = ()
    """Combinations of values that no configuration may hold all at once: constraints and conflicts of techniques."""
    expecting: bool = False
    """Whether a code idea is being thought about: another factor may come."""
    data: frozenset[str] = frozenset()
    """The factors that change the data: what is left to try of them comes first where tuning gains no more."""
    low: tuple[Trial, ...] = ()
    """Runs at low fidelity, in the order they were planned: they say where to look, nothing is believed of them."""


@dataclass(frozen=True)
class Cell:
    """One configuration with all its runs."""

    number: int
    parameters: Parameters
    changed: Parameters
    trials: tuple[Trial, ...]

    @cached_property
    def values(self) -> tuple[float, ...]:
        """Values of every believable run."""
        return tuple(trial.usable for trial in self.trials if trial.usable is not None)

    @cached_property
    def explored(self) -> tuple[float, ...]:
        """Values of the believable runs that were made to find something, confirmation left out."""
        return tuple(t.usable for t in self.trials if t.usable is not None and t.phase != Phase.CONFIRM)

    @cached_property
    def confirmed(self) -> dict[int, float]:
        """Seed → value of the believable runs made for confirmation."""
        return {t.seed: t.usable for t in self.trials if t.usable is not None and t.phase == Phase.CONFIRM}

    @cached_property
    def failures(self) -> int:
        """Seeds on which it failed for good; a retry that succeeded forgives."""
        good = {trial.seed for trial in self.trials if trial.usable is not None or trial.state == "pending"}
        return len({t.seed for t in self.trials if t.valid and t.state != "pruned" and t.seed not in good})

    @cached_property
    def rejected(self) -> bool:
        return any(not trial.valid for trial in self.trials)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """Seeds it has run or is running with."""
        return frozenset(trial.seed for trial in self.trials)

    @cached_property
    def pending(self) -> bool:
        return any(trial.state == "pending" for trial in self.trials)

    @property
    def sound(self) -> bool:
        """Whether it has a value, never failed and was never rejected."""
        return bool(self.values) and not self.failures and not self.rejected


def cells_of(trials: Iterable[Trial]) -> tuple[Cell, ...]:
    """The trials by configuration, in the order the configurations were first planned."""
    groups: dict[int, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.number, []).append(trial)
    return tuple(Cell(number, group[0].parameters, group[0].changed, tuple(group)) for number, group in groups.items())
