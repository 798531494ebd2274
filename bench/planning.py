"""What planning costs: seconds a proposal and peak memory with 50, 200 and 1,000 experiments behind it.

`python -m bench.planning` asks the public `Searcher` on a made-up space of ten variables, prints a table and writes
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
from nightlab.configs.study import Factor, Scalar
from nightlab.search.searcher import Searcher

__all__ = ["GOALS_SECONDS", "Cost", "loss", "main", "measure"]

RESULTS = Path(__file__).with_name("results") / "planning.md"
GOALS_SECONDS = {50: 0.2, 200: 0.5, 1000: 2.0}
"""Experiments → seconds a proposal at most."""
PROPOSALS = 10
"""Timed a size."""
NOISE_SD = 0.02
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
    """Walks one night to the largest size and times the proposals after each size; sizes ascend."""
    rng = np.random.default_rng(0)
    searcher = Searcher(SPACE, BASELINE, budget=2 * sizes[-1], direction="minimize", seed=0)
    done = 0
    for size in sizes:
        while done < size:
            _run_one(searcher, rng)
            done += 1
        seconds = [_run_one(searcher, rng) for _ in range(PROPOSALS)]
        done += PROPOSALS
        yield Cost(size, statistics.median(seconds), max(seconds), _peak_mebibytes())


def _run_one(searcher: Searcher, rng: np.random.Generator) -> float:
    """Seconds of one proposal; it is run and told."""
    before = time.perf_counter()
    proposals = searcher.ask(1)
    seconds = time.perf_counter() - before
    if not proposals:
        raise RuntimeError("the search ended before its budget")
    searcher.tell(proposals[0].number, loss(proposals[0].parameters, rng), seed=proposals[0].seed)
    return seconds


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
