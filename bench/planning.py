"""What planning costs: seconds a proposal and peak memory with 50, 200 and 1,000 experiments behind it.

`python -m bench.planning` plans on a made-up space of ten variables, prints a table and writes
`bench/results/planning.md`. `--sizes 50,200` stops earlier.
"""

from __future__ import annotations

import argparse
import math
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.search_report import machine_line
from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.records import Phase
from nightlab.search.engine import propose
from nightlab.search.history import History, Trial
from nightlab.search.ranking import rank_factors
from tests.search.simulate import make_study

__all__ = ["GOALS_SECONDS", "Cost", "loss", "main", "measure"]

RESULTS = Path(__file__).with_name("results") / "planning.md"
GOALS_SECONDS = {50: 0.2, 200: 0.5, 1000: 2.0}
"""Experiments → seconds a proposal at most."""
PROPOSALS = 10
"""Timed a size."""
NOISE_SD = 0.02
SCREENED = 30
"""Of the runs, the first so many were single changes in name."""
BASELINE: Mapping[str, Scalar] = {
    "learning_rate": 1e-3,
    "batch_size": 64,
    "warmup_steps": 100,
    "weight_decay": 0.01,
    "beta2": 0.999,
    "dropout": 0.1,
    "depth": 6,
    "width": 256,
    "schedule": "constant",
    "optimizer": "adamw",
}
SPACE: Mapping[str, Factor] = {
    "learning_rate": Factor(levels=[1e-4, 3e-4, 3e-3, 1e-2], scale="log"),
    "batch_size": Factor(levels=[16, 32, 128, 256], scale="log"),
    "warmup_steps": Factor(levels=[0, 50, 200, 400]),
    "weight_decay": Factor(levels=[0.0, 0.03, 0.1]),
    "beta2": Factor(levels=[0.95, 0.98, 0.99]),
    "dropout": Factor(levels=[0.0, 0.2, 0.3]),
    "depth": Factor(levels=[4, 8, 12]),
    "width": Factor(levels=[128, 384, 512], scale="log"),
    "schedule": Factor(levels=["cosine", "linear"]),
    "optimizer": Factor(levels=["sgd", "lion"]),
}


@dataclass(frozen=True)
class Cost:
    """Of planning with so many experiments behind it."""

    experiments: int
    median_seconds: float
    worst_seconds: float
    peak_mebibytes: float
    """Of the whole process so far."""


def loss(parameters: Mapping[str, Scalar], rng: np.random.Generator) -> float:
    """A bowl over the numbers with one interaction, a cost for each wrong category, and seed noise."""
    value = 0.0
    for index, (name, factor) in enumerate(sorted(SPACE.items())):
        levels = sorted({str(BASELINE[name]), *map(str, factor.levels or ())})
        place = levels.index(str(parameters[name])) / (len(levels) - 1)
        value += 0.3 / (1 + index) * (place - 0.3 - 0.05 * index) ** 2
    rate, batch = float(parameters["learning_rate"]), float(parameters["batch_size"])
    value += 0.01 * math.log(rate / 1e-3 * 64 / batch) ** 2
    return value + float(rng.normal(0.0, NOISE_SD))


def measure(sizes: Sequence[int]) -> Iterator[Cost]:
    """Times proposals after random configurations, as many as `sizes` say; sizes ascend.

    Random ones, as a night that walks by itself has nothing left to try long before a thousand.
    """
    rng = np.random.default_rng(0)
    study = make_study(dict(BASELINE), dict(SPACE))
    factors = rank_factors(study, SPACE, tiers={}, priors={})
    trials = [_trial(study, 0, {}, seed, Phase.BASELINE, rng) for seed in range(study.search.baseline_replicates)]
    for size in sizes:
        seconds = []
        while len(trials) < size + PROPOSALS:
            if len(trials) >= size:
                history = History(factors, tuple(trials), runs_left=size)
                before = time.perf_counter()
                if not propose(study, history, 0):
                    raise RuntimeError(f"nothing was proposed after {len(trials)} runs")
                seconds.append(time.perf_counter() - before)
            phase = Phase.SCREEN if len(trials) < SCREENED else Phase.REFINE
            trials.append(_trial(study, len(trials), _random_change(rng), 0, phase, rng))
        yield Cost(size, statistics.median(seconds), max(seconds), _peak_mebibytes())


def _random_change(rng: np.random.Generator) -> dict[str, Scalar]:
    names = list(SPACE)
    chosen = rng.choice(len(names), size=int(rng.integers(1, 6)), replace=False)
    levels = {names[at]: SPACE[names[at]].levels or [] for at in chosen}
    return {name: values[int(rng.integers(len(values)))] for name, values in levels.items()}


def _trial(
    study: Study, number: int, changed: dict[str, Scalar], seed: int, phase: Phase, rng: np.random.Generator
) -> Trial:
    parameters = {**study.parameters, **changed}
    return Trial(number, parameters, changed, seed, phase, "measured", loss(parameters, rng))


def _peak_mebibytes() -> float:
    # macOS counts bytes, Linux kibibytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024**2 if sys.platform == "darwin" else 1024)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.planning")
    parser.add_argument("--sizes", default=",".join(map(str, GOALS_SECONDS)), help="experiments, ascending")
    sizes = [int(size) for size in parser.parse_args(arguments).sizes.split(",")]
    lines = ["# What planning costs", "", machine_line(), ""]
    lines += ["| experiments behind it | seconds a proposal, median | worst | goal | peak memory of the process |"]
    lines += ["| ---: | ---: | ---: | ---: | ---: |"]
    for cost in measure(sizes):
        goal = f"≤ {GOALS_SECONDS[cost.experiments]:g}" if cost.experiments in GOALS_SECONDS else ""
        row = f"| {cost.experiments} | {cost.median_seconds:.3f} | {cost.worst_seconds:.3f} | {goal} |"
        lines.append(f"{row} {cost.peak_mebibytes:.0f} MiB |")
        print(lines[-1], flush=True)
    RESULTS.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
