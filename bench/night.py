"""One night of the search bench: a table, a start, a budget of runs, and what has been seen so far."""

from __future__ import annotations

import math
from collections.abc import Callable
from zlib import crc32

import numpy as np

from bench.tables import Config, Table

__all__ = ["Night", "Strategy"]


class Night:
    """Hands out runs and keeps the recommendation after each of them; every run counts, the start's first."""

    def __init__(self, table: Table, budget: int, seed: int, start: Config | None = None) -> None:
        self.table = table
        self.budget = budget
        self.start = start or table.start
        self.observed: dict[Config, list[float]] = {}
        """Losses (lower is better) of each configuration that was run; empty where every run failed."""
        self.recommended: list[Config] = []
        """After each run: the lowest observed mean, unless the method said otherwise."""
        self._best = self.start
        self._noise = np.random.default_rng([seed, crc32(table.name.encode())])

    @property
    def left(self) -> int:
        return self.budget - len(self.recommended)

    def run(self, config: Config) -> float:
        """The loss of one run, NaN where it failed; raises RuntimeError beyond the budget."""
        if not self.left:
            raise RuntimeError(f"{self.table.name}: more than {self.budget} runs asked for")
        loss = self.table.draw(config, self._noise) * (1.0 if self.table.direction == "minimize" else -1.0)
        values = self.observed.setdefault(config, [])
        if math.isfinite(loss):
            values.append(loss)
        if config == self._best or self.mean(config) < self.mean(self._best):
            self._best = min(self.observed, key=self.mean)
        self.recommended.append(self._best)
        return loss

    def recommend(self, config: Config) -> None:
        """Replaces the recommendation after the last run by the method's own."""
        self.recommended[-1] = config

    def end(self) -> None:
        """Leaves the rest of the budget unspent: the last recommendation stands."""
        self.recommended += self.recommended[-1:] * self.left

    def mean(self, config: Config) -> float:
        """Mean of the losses seen of a configuration; infinite where there are none."""
        values = self.observed.get(config)
        return sum(values) / len(values) if values else math.inf

    def regrets(self) -> list[float]:
        """The true regret of the recommendation after each run."""
        known = {config: self.table.regret(config, self.start) for config in set(self.recommended)}
        return [known[config] for config in self.recommended]


Strategy = Callable[[Night, int], None]
"""Spends the night's runs; the integer is its seed."""
