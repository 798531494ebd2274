"""A night without training: a response function with noise, slots, and runs that end in any order."""

from __future__ import annotations

import heapq
import math
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from nightlab.configs.study import Budget, Factor, LauncherSettings, Objective, Scalar, SearchSettings, Study
from nightlab.knowledge.records import Proposal
from nightlab.search.engine import propose
from nightlab.search.history import History, Trial
from nightlab.search.ranking import rank_factors
from nightlab.search.space import configuration_key

Response = Callable[[Mapping[str, Scalar]], float | None]
"""True mean of a configuration in the metric's unit; None where it fails."""


def make_study(
    parameters: dict[str, Scalar],
    space: dict[str, Factor],
    *,
    min_effect: float = 1.0,
    direction: str = "minimize",
    **search: object,
) -> Study:
    return Study(
        study="night",
        scenario="toy",
        method="pretrain",
        base_model="none",
        objective=Objective.model_validate(
            {"metric": "loss", "direction": direction, "min_effect": min_effect, "unit": "nats"}
        ),
        parameters=parameters,
        space=space,
        launcher=LauncherSettings(command="train"),
        budget=Budget(runs=1000),
        search=SearchSettings.model_validate(search),
    )


def gaussian(random: np.random.Generator) -> float:
    return float(random.normal())


@dataclass
class Night:
    """One simulated study: `run` drives `propose` until it has nothing more to propose.

    `noise` multiplies the draws of `shape` (deviation 1) and is in the metric's unit. The value of a configuration
    and seed does not depend on when it runs; durations are heavy-tailed, so that runs end in any order.
    """

    study: Study
    response: Response
    runs: int
    noise: float = 1.0
    slots: int = 2
    seed: int = 0
    experiments: int | None = None
    shape: Callable[[np.random.Generator], float] = gaussian
    trials: list[Trial] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    forbidden: tuple[dict[str, Scalar], ...] = ()
    busy: float = 0.0
    """Slot-time spent on runs."""
    clock: float = 0.0

    def __post_init__(self) -> None:
        self.factors = rank_factors(self.study, self.study.space, tiers={}, priors={})
        # What the search plans for is what the night has.
        backend = self.study.backend.model_copy(update={"slots": self.slots})
        self.study = self.study.model_copy(update={"backend": backend})
        self._ends: list[tuple[float, int]] = []

    @property
    def history(self) -> History:
        experiments = None if self.experiments is None else self.experiments - len({*self.numbers.values()} - {0})
        left = self.runs - len(self.trials)
        return History(
            self.factors,
            trials=tuple(self.trials),
            runs_left=left,
            experiments_left=experiments,
            forbidden=self.forbidden,
        )

    def run(self) -> History:
        while self.step():
            pass
        return self.history

    def step(self) -> bool:
        """Fill the free slots and let the next run end; False when the night is over."""
        for proposal in propose(self.study, self.history, self.study.search.seed):
            if len(self._ends) >= self.slots:
                break
            self.start(proposal)
        if not self._ends:
            return False
        self.clock, index = heapq.heappop(self._ends)
        self.trials[index] = self._outcome(self.trials[index])
        return True

    def start(self, proposal: Proposal) -> None:
        key = configuration_key(proposal.parameters)
        number = self.numbers.setdefault(key, len(self.numbers))
        trial = Trial(number, proposal.parameters, proposal.changed, proposal.seed, proposal.phase, "pending")
        # The ledger would take it for the run that there is, and wait for it for ever.
        assert all((one.number, one.seed) != (number, trial.seed) for one in self.trials), "proposed twice"
        duration = float(np.exp(self._random(trial, 1).normal(0, 0.5)))
        self.busy += duration
        heapq.heappush(self._ends, (self.clock + duration, len(self.trials)))
        self.trials.append(trial)

    def _random(self, trial: Trial, stream: int) -> np.random.Generator:
        configuration = zlib.crc32(configuration_key(trial.parameters).encode())
        return np.random.default_rng([self.seed, configuration, trial.seed, stream])

    def _outcome(self, trial: Trial) -> Trial:
        mean = self.response(trial.parameters)
        if mean is None or math.isnan(mean):
            return replace(trial, state="failed")
        return replace(trial, state="measured", value=mean + self.noise * self.shape(self._random(trial, 0)))
