"""What a user would pick instead of nightlab, each behind the same protocol: spend a `Night`, run by run.

Everyone runs the start first, pays for every run and recommends the lowest observed mean. The samplers see an ordered
axis as an integer, the index of its level (a table's levels are steps that were thought worth publishing; TPE did best
with it among three ways), and the others as categories. CMA-ES knows no categories: it gets their index as an integer
too, with margins, which beats the uniform sampling it would fall back to. A failed run is reported as failed.
"""

from __future__ import annotations

import logging
import math
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.night import Night, Strategy
from bench.tables import Axis, Config, Table

__all__ = [
    "PEERS",
    "cma_es",
    "gaussian_process",
    "greedy",
    "random_search",
    "screening_array",
    "smac",
    "tpe",
    "two_level_array",
]

SCREENING_SHARE = 0.6
ARRAY_SIZES = (16, 8, 4)
ALTERNATIVES_AT_FIRST = 2
SMAC_INITIAL_DESIGN = 5
"""Its own default would spend a quarter of the budget, and look worse than it is at 10 and 20."""


def random_search(night: Night, seed: int) -> None:
    """Uniform over the grid."""
    rng = np.random.default_rng(seed)
    night.run(night.start)
    while night.left:
        night.run(tuple(int(rng.integers(len(axis.levels))) for axis in night.table.axes))


def greedy(night: Night, seed: int) -> None:
    """Keep or discard: one random untried change of one variable of the incumbent, kept if lower once.

    Where every single change has been tried, two variables at once.
    """
    rng = np.random.default_rng(seed)
    incumbent, best = night.start, night.run(night.start)
    while night.left:
        singles = _single_changes(night.table, incumbent)
        untried = [config for config in singles if config not in night.observed]
        base = incumbent if untried else singles[rng.integers(len(singles))]
        config = _by_axis(untried or _single_changes(night.table, base), base, rng)
        loss = night.run(config)
        if loss < best:
            incumbent, best = config, loss


def _single_changes(table: Table, config: Config) -> list[Config]:
    return [
        _with(config, axis, level)
        for axis, known in enumerate(table.axes)
        for level in range(len(known.levels))
        if level != config[axis]
    ]


def _by_axis(configs: Sequence[Config], incumbent: Config, rng: np.random.Generator) -> Config:
    """A random axis first, then one of its levels: no axis is favoured for having many."""
    groups: dict[int, list[Config]] = {}
    for config in configs:
        groups.setdefault(next(i for i, (a, b) in enumerate(zip(config, incumbent, strict=True)) if a != b), []).append(
            config
        )
    group = groups[sorted(groups)[rng.integers(len(groups))]]
    return group[rng.integers(len(group))]


def _with(config: Config, axis: int, level: int) -> Config:
    return (*config[:axis], level, *config[axis + 1 :])


def screening_array(night: Night, seed: int) -> None:
    """Single changes of the fixed start, a two-level array over the best ones, then what its main effects predict."""
    rng = np.random.default_rng(seed)
    night.run(night.start)
    for axis, level in _screening_order(night, rng):
        if night.left <= (1 - SCREENING_SHARE) * night.budget:
            break
        night.run(_with(night.start, axis, level))
    winners = _winners(night)
    for config in _array_rows(night.start, winners, night.left - 1):
        if night.left and config not in night.observed:
            night.run(config)
    for config in _by_main_effects(night, winners):
        if not night.left:
            return
        night.run(config)
    for axis, level in _screening_order(night, rng):
        if night.left and _with(night.start, axis, level) not in night.observed:
            night.run(_with(night.start, axis, level))
    while night.left:
        night.run(tuple(int(rng.integers(len(axis.levels))) for axis in night.table.axes))


def _screening_order(night: Night, rng: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Two alternatives of every variable in a random order of the variables, then the others, nearest first."""
    order = [int(axis) for axis in rng.permutation(len(night.start))]
    levels = {axis: _alternatives(night.table.axes[axis], night.start[axis], rng) for axis in order}
    yield from ((axis, level) for axis in order for level in levels[axis][:ALTERNATIVES_AT_FIRST])
    yield from ((axis, level) for axis in order for level in levels[axis][ALTERNATIVES_AT_FIRST:])


def _alternatives(axis: Axis, current: int, rng: np.random.Generator) -> list[int]:
    others = [int(level) for level in rng.permutation(len(axis.levels)) if level != current]
    return sorted(others, key=lambda level: abs(level - current)) if axis.ordered else others


def _winners(night: Night) -> list[tuple[int, int]]:
    """The best level of each variable where it beats the start, largest gain first: (axis, level)."""
    best: dict[int, Config] = {}
    for config in night.observed:
        changed = [axis for axis, level in enumerate(config) if level != night.start[axis]]
        if len(changed) == 1 and night.mean(config) < night.mean(best.get(changed[0], night.start)):
            best[changed[0]] = config
    return [(axis, config[axis]) for axis, config in sorted(best.items(), key=lambda item: night.mean(item[1]))]


def _array_rows(start: Config, winners: Sequence[tuple[int, int]], affordable: int) -> Iterator[Config]:
    """The rows of the smallest two-level array with a column a winner, or of the largest that can be paid for."""
    sizes = [size for size in ARRAY_SIZES if size - 1 <= affordable]
    fitting = [size for size in sizes if size > len(winners)]
    if len(winners) < 2 or not sizes:
        return
    array = two_level_array(fitting[-1] if fitting else sizes[0])
    for row in array:
        config = start
        for (axis, level), on in zip(winners, row, strict=False):
            config = _with(config, axis, level) if on else config
        yield config


def two_level_array(rows: int) -> NDArray[np.bool_]:
    """(rows, rows − 1), strength 2: a Hadamard matrix without its constant column, the first row all False."""
    from scipy.linalg import hadamard

    return np.asarray(hadamard(rows)[:, 1:] < 0)


def _by_main_effects(night: Night, winners: Sequence[tuple[int, int]]) -> Iterator[Config]:
    """Combinations of the winners not yet run, the most promising by the main effects of all runs seen first."""
    if len(winners) < 2:
        return
    rows = [
        (config, [config[axis] == level for axis, level in winners])
        for config in night.observed
        if all(config[axis] in (night.start[axis], dict(winners).get(axis)) for axis in range(len(config)))
        and math.isfinite(night.mean(config))
    ]
    design = np.array([[1.0, *on] for _, on in rows])
    effects = np.linalg.lstsq(design, np.array([night.mean(config) for config, _ in rows]), rcond=None)[0][1:]
    switches = np.array(np.meshgrid(*[[0, 1]] * len(winners), indexing="ij")).reshape(len(winners), -1).T
    for switch in switches[np.argsort(switches @ effects, kind="stable")]:
        config = night.start
        for (axis, level), on in zip(winners, switch, strict=True):
            config = _with(config, axis, level) if on else config
        if config not in night.observed:
            yield config


def tpe(night: Night, seed: int) -> None:
    """Optuna's default sampler."""
    import optuna

    _optuna(night, optuna.samplers.TPESampler(seed=seed))


def gaussian_process(night: Night, seed: int) -> None:
    """Optuna's `GPSampler` (torch)."""
    import optuna
    import torch

    torch.set_num_threads(1)
    _optuna(night, optuna.samplers.GPSampler(seed=seed))


def cma_es(night: Night, seed: int) -> None:
    """Optuna's `CmaEsSampler` with margins for integers, centred on the start."""
    import optuna

    start = {axis.name: level for axis, level in zip(night.table.axes, night.start, strict=True)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        warnings.simplefilter("ignore", FutureWarning)
        sampler = optuna.samplers.CmaEsSampler(seed=seed, x0=start, with_margin=True)
    _optuna(night, sampler, categories=False)


def _optuna(night: Night, sampler: Any, *, categories: bool = True) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    distributions = {
        axis.name: optuna.distributions.IntDistribution(0, len(axis.levels) - 1)
        if axis.ordered or not categories
        else optuna.distributions.CategoricalDistribution(range(len(axis.levels)))
        for axis in night.table.axes
    }
    study = optuna.create_study(sampler=sampler)
    study.enqueue_trial({axis.name: level for axis, level in zip(night.table.axes, night.start, strict=True)})
    while night.left:
        trial = study.ask(distributions)
        loss = night.run(tuple(int(trial.params[axis.name]) for axis in night.table.axes))
        if math.isfinite(loss):
            study.tell(trial, loss)
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


def smac(night: Night, seed: int) -> None:
    """SMAC's facade for hyper-parameters (random forest), with a smaller initial design than its own."""
    from ConfigSpace import Categorical, ConfigurationSpace, Integer
    from joblib import parallel_config
    from smac import HyperparameterOptimizationFacade as Facade
    from smac import Scenario
    from smac.runhistory import StatusType, TrialInfo, TrialValue

    logging.getLogger("smac").setLevel(logging.ERROR)
    space = ConfigurationSpace(seed=seed)
    for axis, level in zip(night.table.axes, night.start, strict=True):
        last = len(axis.levels) - 1
        kind = Integer(axis.name, (0, last), default=level) if axis.ordered else None
        space.add(kind or Categorical(axis.name, list(range(last + 1)), default=level))
    # Its forest is too small for threads: they would only wait for one another.
    with parallel_config(backend="sequential"), tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            space, n_trials=night.budget, seed=seed, deterministic=True, output_directory=Path(folder), name="night"
        )
        design = Facade.get_initial_design(scenario, n_configs=SMAC_INITIAL_DESIGN)
        facade = Facade(scenario, _never_called, initial_design=design, logging_level=False, overwrite=True)
        first = space.get_default_configuration()
        facade.tell(TrialInfo(first, seed=0), TrialValue(cost=night.run(night.start)))
        while night.left:
            info = facade.ask()
            loss = night.run(_smac_config(night.table, info.config))
            failed = not math.isfinite(loss)
            facade.tell(info, TrialValue(_worst(night), status=StatusType.CRASHED) if failed else TrialValue(loss))


def _never_called(config: Any, seed: int) -> float:
    """SMAC wants a target function even where it is asked and told."""
    raise NotImplementedError


def _worst(night: Night) -> float:
    """SMAC's forest wants a finite cost of a crash: the worst seen so far."""
    return max(value for values in night.observed.values() for value in values)


def _smac_config(table: Table, config: Mapping[str, Any]) -> Config:
    return tuple(int(config[axis.name]) for axis in table.axes)


PEERS: Mapping[str, Strategy] = {
    "random": random_search,
    "Optuna TPE": tpe,
    "Optuna GP": gaussian_process,
    "CMA-ES": cma_es,
    "SMAC": smac,
    "keep/discard": greedy,
    "screening + array": screening_array,
}
