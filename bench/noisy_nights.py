"""Simulated nights on tasks where nothing matters, or one thing does, under noise as training has it.

A night is the real search on a response function (`tests.search.simulate`); only the training is made up. The truth is
known, so a reported win is either true or false.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.belief import judge_all
from nightlab.search.history import Trial
from nightlab.search.space import configuration_key
from tests.search.simulate import Night, gaussian, make_study

__all__ = ["NOISES", "Noise", "NoisyNight", "Task", "flat_task", "gain_task", "greedy_wins", "reported_wins"]

SEED_SHARE = 0.7
"""Share of the variance that comes with the seed where configurations share it."""
DEVIATIONS = (0.5, 1.0, 2.0, 3.0)
"""Of single configurations, where the noise is uneven; the baseline's is 1."""
DRIFT = 2.0
"""Deviations by which everything gets better from the night's first run to its last."""

Draw = Callable[[np.random.Generator], float]


def student(random: np.random.Generator) -> float:
    """Student's t with three degrees of freedom, deviation 1."""
    return float(random.standard_t(3)) / 3**0.5


def skewed(random: np.random.Generator) -> float:
    """An exponential: now and then a run ends far worse, deviation 1."""
    return float(random.exponential()) - 1.0


@dataclass(frozen=True)
class Noise:
    """How the runs of one night vary; everything in deviations of the baseline's noise."""

    draw: Draw = gaussian
    shared: float = 0.0
    """Share of the variance that all configurations have in common on the same seed."""
    uneven: bool = False
    drift: float = 0.0


NOISES: dict[str, Noise] = {
    "normal": Noise(),
    "heavy-tailed (t3)": Noise(student),
    "skewed": Noise(skewed),
    "shared by seed": Noise(shared=SEED_SHARE),
    "uneven": Noise(uneven=True),
    "drifting": Noise(drift=DRIFT),
}

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "width": 64, "act": "tanh", "ema": False, "batch": 32, "decay": 0.1}
USUAL = {
    "lr": Factor(levels=[0.25, 0.5, 2.0, 4.0], scale="log", tier=1),
    "width": Factor(levels=[32, 128], tier=2),
    "act": Factor(levels=["relu", "gelu"]),
    "ema": Factor(levels=[True]),
    "batch": Factor(levels=[16, 64]),
    "decay": Factor(levels=[0.01, 1.0], scale="log", tier=5),
}


@dataclass(frozen=True)
class Task:
    """A study with the one change that helps, by how many deviations."""

    study: Study
    gain: float = 0.0
    better: tuple[str, Scalar] | None = None

    def is_in(self, changed: Mapping[str, Scalar]) -> bool:
        """Whether a configuration has the change that helps."""
        return self.better is not None and changed.get(self.better[0]) == self.better[1]

    def mean(self, parameters: Mapping[str, Scalar]) -> float:
        """The true mean, the baseline's is 0; lower is better."""
        return -self.gain if self.is_in(parameters) else 0.0


def flat_task() -> Task:
    """Six factors with thirteen levels, none of which does anything; the smallest worthwhile gain is 0."""
    return Task(make_study(PARAMETERS, USUAL, min_effect=0.0))


def gain_task(gain: float, seed: int) -> Task:
    """The same, but one level, another one in each night, is better by `gain` deviations."""
    levels = [(name, level) for name, factor in USUAL.items() for level in factor.levels or ()]
    return Task(make_study(PARAMETERS, USUAL, min_effect=0.0), gain, levels[seed % len(levels)])


@dataclass
class NoisyNight(Night):
    """A night whose runs vary as `model` says."""

    model: Noise = field(default_factory=Noise)

    def _outcome(self, trial: Trial) -> Trial:
        ended = super()._outcome(trial)
        if ended.value is None:
            return ended
        place = next(index for index, one in enumerate(self.trials) if one is trial)
        return _noisy(ended, self.model, self.seed, place / self.runs)


def _noisy(trial: Trial, model: Noise, night: int, progress: float) -> Trial:
    configuration = zlib.crc32(configuration_key(trial.parameters).encode())
    own = model.draw(np.random.default_rng([night, configuration, trial.seed]))
    if model.uneven and trial.changed:
        own *= float(np.random.default_rng([night, configuration]).choice(DEVIATIONS))
    common = model.draw(np.random.default_rng([night, trial.seed]))
    noise = (1 - model.shared) ** 0.5 * own + model.shared**0.5 * common - model.drift * progress
    return Trial(**{**vars(trial), "value": (trial.value or 0.0) + noise})


def reported_wins(task: Task, noise: Noise, runs: int, seed: int) -> list[dict[str, Scalar]]:
    """What differs from the baseline in each configuration that a night of `runs` runs keeps."""
    night = NoisyNight(task.study, task.mean, runs, noise=0.0, seed=seed, model=noise)
    history = night.run()
    verdicts = judge_all(task.study, history)
    changed = {trial.number: trial.changed for trial in history.trials}
    return [changed[number] for number, verdict in verdicts.items() if verdict.kind is VerdictKind.KEEP]


def greedy_wins(task: Task, noise: Noise, runs: int, seed: int) -> dict[str, Scalar]:
    """What keep/discard ends with: a change of one variable is kept when a single run of it is lower."""
    random = np.random.default_rng([seed, 1])
    levels = [(name, level) for name, factor in task.study.space.items() for level in factor.levels or ()]
    incumbent: dict[str, Scalar] = {}
    best = _value(task, incumbent, noise, seed, 0.0)
    for run in range(1, runs):
        name, level = levels[int(random.integers(len(levels)))]
        changed = {**incumbent, name: level}
        value = _value(task, changed, noise, seed, run / runs)
        if value < best:
            incumbent, best = changed, value
    return incumbent


def _value(task: Task, changed: dict[str, Scalar], noise: Noise, night: int, progress: float) -> float:
    parameters = {**task.study.parameters, **changed}
    trial = Trial(0, parameters, changed, 0, Phase.SCREEN, "measured", task.mean(parameters))
    value = _noisy(trial, noise, night, progress).value
    return 0.0 if value is None else value
