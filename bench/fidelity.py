"""What a first look at low fidelity saves: `python -m bench.fidelity --data FOLDER`.

nightlab cold, with whole runs alone and with `search.fidelity`. On Step Law a cheap run has the tokens of a smaller
grid of the same model; on TaskSet, whose configurations are random, a forest fitted to the losses at a quarter and at
the end of the curves stands for a grid over all eight variables. A budget counts a cheap run by its share of a whole
one. Regret: of the recommended configuration at full fidelity, 0 = the table's best, 1 = the start.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path

import numpy as np

from bench.tables import Axis, Curves, Level, Table, TableError, load_curves, load_tables

__all__ = ["Pair", "emulated", "main", "pairs_of", "play"]

BUDGETS = (10, 20)
FIDELITY = "share"
LARGEST_SHARE = 0.35
"""Of the tokens of a whole run: a grid with more is no cheap one."""
LEVEL_TOLERANCE = 0.01
QUARTER = 0.25
LEVELS = 4
SEED_SHARE = 0.02
"""Deviation between seeds of the emulated tables, as a share of the gap between their median and their best."""
DEFAULTS: Mapping[str, float] = {"learning_rate": 1e-3, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8}
EXPLANATION = """\
Mean regret of the recommended configuration after so many whole runs' worth of compute; a cheap run counts by its
share. The difference is below 0 where low fidelity first is better; ± is its 95 % interval over seeds. The TaskSet
tables are emulated by forests."""
METHODS = ("whole runs", "low fidelity first")
RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Pair:
    """One table at full fidelity and the same grid at low."""

    whole: Table
    low: Table
    cost: float
    """Of a run at low fidelity, as a share of a whole one."""

    @property
    def name(self) -> str:
        return f"{self.whole.name} from {self.cost:.0%}"


def pairs_of(tables: Sequence[Table]) -> Iterator[Pair]:
    """Each Step Law grid with the largest one of the same model that is a good deal cheaper, on their common levels."""
    for whole in tables:
        if whole.family != "steplaw" or whole.facts is None:
            continue
        same = [one for one in tables if one.facts and one.facts["n"] == whole.facts["n"]]
        cheap = [(one.facts["d"] / whole.facts["d"], one) for one in same if one.facts]
        fitting = [(share, one) for share, one in cheap if share <= LARGEST_SHARE]
        if fitting:
            share, low = max(fitting, key=lambda entry: entry[0])
            yield Pair(_common(whole, low), _common(low, whole), share)


def _common(table: Table, other: Table) -> Table:
    """The part of `table` whose levels the other has too, to within rounding."""
    kept = [
        [place for place, level in enumerate(axis.levels) if _nearest(float(level), beside.levels) < LEVEL_TOLERANCE]
        for axis, beside in zip(table.axes, other.axes, strict=True)
    ]
    axes = tuple(
        replace(axis, levels=tuple(axis.levels[place] for place in places))
        for axis, places in zip(table.axes, kept, strict=True)
    )
    start = tuple(axis.nearest(whole.levels[at]) for axis, whole, at in zip(axes, table.axes, table.start, strict=True))
    return replace(table, axes=axes, start=start, values=table.values[np.ix_(*kept)])


def _nearest(level: float, levels: Sequence[Level]) -> float:
    return min(abs(float(other) / level - 1) for other in levels)


def emulated(curves: Curves) -> Pair:
    """A grid over the variables of random configurations, by forests fitted to a quarter and to the end of curves."""
    axes = tuple(_axis(name, column) for name, column in zip(curves.parameters, curves.configurations.T, strict=True))
    start = tuple(axis.nearest(DEFAULTS.get(axis.name, float(axis.levels[0]))) for axis in axes)
    last = curves.losses.shape[1] - 1
    grids = [_forest(axes, curves, step) for step in (last, round(QUARTER * last))]
    whole, low = (
        Table(curves.name, "hpolib", axes, "minimize", start, grid[..., None], SEED_SHARE * _gap(grid))
        for grid in grids
    )
    return Pair(whole, low, QUARTER)


def _gap(grid: np.ndarray) -> float:
    return float(np.median(grid) - grid.min())


def _axis(name: str, column: np.ndarray) -> Axis:
    values = np.quantile(column, np.linspace(0.1, 0.9, LEVELS if name != "learning_rate" else LEVELS + 3))
    levels: tuple[Level, ...] = tuple(float(f"{value:.4g}") for value in values)
    return Axis(name, levels, ordered=True, log=min(values) > 0)


def _forest(axes: Sequence[Axis], curves: Curves, step: int) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor

    losses = curves.losses[:, step]
    # What diverged is bad; how bad the number is says nothing.
    worst = float(np.nanquantile(losses, 0.9))
    losses = np.minimum(np.where(np.isfinite(losses), losses, worst), worst)
    forest = ExtraTreesRegressor(200, min_samples_leaf=2, random_state=0)
    forest.fit(_features(axes, curves.configurations), losses)
    shape = tuple(len(axis.levels) for axis in axes)
    places = np.indices(shape).reshape(len(axes), -1)
    grid = np.stack([np.array(axis.levels, dtype=float)[at] for axis, at in zip(axes, places, strict=True)], axis=1)
    return np.asarray(forest.predict(_features(axes, grid)), dtype=float).reshape(shape)


def _features(axes: Sequence[Axis], points: np.ndarray) -> np.ndarray:
    logs = np.array([axis.log for axis in axes])
    return np.where(logs, np.log(np.maximum(points, 1e-30)), points)


def play(pair: Pair, method: str, budget: int, seed: int) -> float:
    """The true regret of what is recommended after `budget` whole runs' worth."""
    from nightlab.configs.fidelity import FidelitySettings
    from nightlab.configs.study import Factor, SearchSettings
    from nightlab.search.searcher import Searcher

    table = pair.whole
    space = {axis.name: Factor(levels=list(axis.levels), scale="log" if axis.log else "linear") for axis in table.axes}
    fidelity = FidelitySettings(parameter=FIDELITY, low=pair.cost, cost=pair.cost)
    settings = SearchSettings(baseline_replicates=1, confirm=False, fidelity=fidelity if method == METHODS[1] else None)
    start = {**table.parameters(table.start), FIDELITY: 1.0}
    searcher = Searcher(space, start, budget=budget, settings=settings, seed=seed)
    noise = np.random.default_rng(seed)
    while suggestions := searcher.ask(1):
        one = suggestions[0]
        chosen = {name: value for name, value in one.parameters.items() if name != FIDELITY}
        loss = (table if one.parameters[FIDELITY] == 1.0 else pair.low).draw(table.config(chosen), noise)
        if math.isfinite(loss):
            searcher.tell(one.number, loss, seed=one.seed)
        else:
            searcher.fail(one.number, "diverged", seed=one.seed)
    best = {name: value for name, value in searcher.best().parameters.items() if name != FIDELITY}
    return table.regret(table.config(best))


@lru_cache(maxsize=1)
def _pairs(folder: Path) -> tuple[Pair, ...]:
    return (*pairs_of(load_tables(folder)), *(emulated(curves) for curves in load_curves(folder)))


def _night(folder: Path, place: int, method: str, budget: int, seed: int) -> float:
    return play(_pairs(folder)[place], method, budget, seed)


def _page(pairs: Sequence[Pair], regrets: Mapping[tuple[str, int], np.ndarray], seeds: int) -> Iterator[str]:
    yield "# What a first look at low fidelity saves\n"
    made = f"`python -m bench.fidelity`, {datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}"
    yield f"{made}; {seeds} seeds.\n\n{EXPLANATION}\n"
    yield "| table | " + " | ".join(f"{budget}: whole runs, low first, difference" for budget in BUDGETS) + " |"
    yield "|---|" + "---|" * len(BUDGETS)
    rows = [(pair.name, [place]) for place, pair in enumerate(pairs)]
    step = [place for place, pair in enumerate(pairs) if pair.whole.family == "steplaw"]
    rows += [("**Step Law**", step), ("**TaskSet**", [p for p in range(len(pairs)) if p not in step])]
    for name, places in rows:
        if not places:
            continue
        cells = []
        for budget in BUDGETS:
            one, other = (regrets[method, budget][places].mean(axis=0) for method in METHODS)
            apart = other - one
            error = 1.96 * apart.std(ddof=1) / math.sqrt(seeds)
            cells.append(f"{one.mean():.3f}, {other.mean():.3f}, {apart.mean():+.3f} ± {error:.3f}")
        yield f"| {name} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with steplaw_*.csv and taskset_*.parquet files"
    )
    parser.add_argument("--seeds", type=int, default=20, help="nights a table, method and budget")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for fidelity.md")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("argument --seeds: at least 2, for an interval")
    try:
        pairs = _pairs(options.data)
    except TableError as error:
        parser.error(str(error))
    keys = [(method, budget) for method in METHODS for budget in BUDGETS]
    with ProcessPoolExecutor(options.processes) as executor:
        jobs = {
            key: [[executor.submit(_night, options.data, place, *key, seed) for seed in range(options.seeds)]
                  for place in range(len(pairs))]
            for key in keys
        }  # fmt: skip
        regrets = {key: np.array([[job.result() for job in row] for row in rows]) for key, rows in jobs.items()}
    options.out.mkdir(parents=True, exist_ok=True)
    text = "\n".join([*_page(pairs, regrets, options.seeds), ""])
    (options.out / "fidelity.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
