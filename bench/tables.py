"""Published tables of real training results, so that a night of experiments costs a look-up each.

`load_tables(folder)` reads every `hpolib_*.parquet`, `hpobench_mlp_*.parquet`, `nb201_*.parquet` and `steplaw_*.csv` of
a folder, `load_curves(folder)` the learning curves of its `taskset_*.parquet`. bench/README.md says where such files
come from and what their columns are.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Axis", "Config", "Curves", "Family", "Level", "Table", "TableError", "load_curves", "load_tables"]

Level = float | int | str
Config = tuple[int, ...]
"""One index into `Axis.levels` an axis."""
Family = Literal["hpolib", "hpobench_mlp", "nb201", "steplaw"]
Floats = NDArray[np.float64]

STEPLAW_SEED_SD_NATS = 0.0015
"""Step Law publishes one run a cell: this much normal noise stands for the seed (repeats of LLM pre-training elsewhere
have 0.0007 to 0.004 nats)."""
STEPLAW_SEQUENCE_TOKENS = 2048
FEWEST_CELLS = 6


class TableError(Exception):
    """A folder or file that cannot be used: what, where, how to mend."""


@dataclass(frozen=True)
class Axis:
    """One variable of a table with all values it was published for."""

    name: str
    levels: tuple[Level, ...]
    """In real units; ascending where ordered."""
    ordered: bool
    log: bool = False
    """The levels are spread by ratio rather than by difference."""

    def nearest(self, value: Level) -> int:
        """Index of the level nearest to `value`, by ratio on a log axis."""
        if not self.ordered:
            return self.levels.index(value) if value in self.levels else 0
        scale: Callable[[float], float] = np.log if self.log else float
        return int(np.argmin([abs(scale(float(level)) - scale(float(value))) for level in self.levels]))


@dataclass(frozen=True, eq=False)
class Table:
    """A full (or nearly full) grid of configurations with one or more published seeds a cell."""

    name: str
    family: Family
    axes: tuple[Axis, ...]
    direction: Literal["minimize", "maximize"]
    start: Config
    """The configuration a user would start from."""
    values: Floats
    """(levels of axis 0, …, levels of the last axis, seeds); NaN: not published. A cell without any value fails."""
    added_noise_sd: float = 0.0
    facts: Mapping[str, float] | None = None
    """What the family says of the whole table: Step Law's parameters `n` and training tokens `d`."""

    @cached_property
    def means(self) -> Floats:
        """The truth of each cell: the mean over its seeds; NaN where it failed."""
        count = np.isfinite(self.values).sum(axis=-1)
        total = np.nansum(self.values, axis=-1)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    @cached_property
    def losses(self) -> Floats:
        """`means`, turned so that lower is better."""
        return self.means if self.direction == "minimize" else -self.means

    @cached_property
    def optimum(self) -> float:
        """The lowest of `losses`."""
        return float(np.nanmin(self.losses))

    @cached_property
    def fingerprint(self) -> str:
        """Changes when a value, a level or the start does."""
        what = repr((self.axes, self.direction, self.start, self.added_noise_sd)).encode()
        return hashlib.sha256(what + self.values.tobytes()).hexdigest()[:12]

    @cached_property
    def seed_sd(self) -> float:
        """Pooled standard deviation between seeds in the better half of the cells; the noise that is added counts."""
        better = self.losses <= np.nanmedian(self.losses)
        several = better & (np.isfinite(self.values).sum(axis=-1) > 1)
        if not several.any():
            return self.added_noise_sd
        return float(np.hypot(np.sqrt(np.mean(np.nanvar(self.values[several], axis=-1, ddof=1))), self.added_noise_sd))

    def mean(self, config: Config) -> float:
        """The truth in the table's own unit and direction; NaN for a configuration that fails."""
        return float(self.means[config])

    def draw(self, config: Config, rng: np.random.Generator) -> float:
        """What one run returns: a published seed picked at random; NaN for a configuration that fails."""
        cell = self.values[config]
        seeds = cell[np.isfinite(cell)]
        if not seeds.size:
            return float("nan")
        noise = rng.normal(0.0, self.added_noise_sd) if self.added_noise_sd else 0.0
        return float(seeds[rng.integers(seeds.size)] + noise)

    def regret(self, config: Config, start: Config | None = None) -> float:
        """(loss − best loss) / (loss of the start − best loss): 0 is the table's best, 1 is the start.

        A configuration that fails has the regret of the worst that does not. Where the start is the best there is, the
        median of the table stands at 1 instead.
        """
        loss = self.losses[config]
        worst = float(np.nanmax(self.losses))
        gap = float(self.losses[start or self.start]) - self.optimum
        gap = gap if gap > 0 else float(np.nanmedian(self.losses)) - self.optimum
        return (float(loss if np.isfinite(loss) else worst) - self.optimum) / gap

    def parameters(self, config: Config) -> dict[str, Level]:
        """Factor name → level in real units."""
        return {axis.name: axis.levels[index] for axis, index in zip(self.axes, config, strict=True)}

    def config(self, parameters: Mapping[str, Level]) -> Config:
        """The inverse of `parameters`; raises ValueError for a value the table does not have."""
        return tuple(axis.levels.index(parameters[axis.name]) for axis in self.axes)

    def middling(self, rng: np.random.Generator) -> Config:
        """A random configuration between the 40 % and the 60 % quantile of the table."""
        low, high = np.nanquantile(self.losses, [0.4, 0.6])
        cells = np.argwhere((self.losses >= low) & (self.losses <= high))
        return tuple(int(index) for index in cells[rng.integers(len(cells))])


def _geometric(low: float, high: float, number: int) -> tuple[float, ...]:
    return tuple(float(f"{value:.3g}") for value in np.geomspace(low, high, number))


@dataclass(frozen=True)
class _Grid:
    """What the parquet files of a family do not say of themselves: their columns hold level indices."""

    axes: tuple[Axis, ...]
    starts: tuple[Mapping[str, Level], ...]
    """What a user would start from, written down without a look at results; the first that is no dead end counts."""


_OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")

_GRIDS: Mapping[Family, _Grid] = {
    "hpolib": _Grid(
        axes=(
            Axis("activation_fn_1", ("relu", "tanh"), ordered=False),
            Axis("activation_fn_2", ("relu", "tanh"), ordered=False),
            Axis("batch_size", (8, 16, 32, 64), ordered=True, log=True),
            Axis("dropout_1", (0.0, 0.3, 0.6), ordered=True),
            Axis("dropout_2", (0.0, 0.3, 0.6), ordered=True),
            Axis("init_lr", (5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 1e-1), ordered=True, log=True),
            Axis("lr_schedule", ("cosine", "const"), ordered=False),
            Axis("n_units_1", (16, 32, 64, 128, 256, 512), ordered=True, log=True),
            Axis("n_units_2", (16, 32, 64, 128, 256, 512), ordered=True, log=True),
        ),
        starts=(
            {
                "activation_fn_1": "relu",
                "activation_fn_2": "relu",
                "batch_size": 32,
                "dropout_1": 0.3,
                "dropout_2": 0.3,
                "init_lr": 1e-3,
                "lr_schedule": "const",
                "n_units_1": 64,
                "n_units_2": 64,
            },
        ),
    ),
    # The start is scikit-learn's MLPClassifier default at the nearest level.
    "hpobench_mlp": _Grid(
        axes=(
            Axis("alpha", _geometric(1e-8, 1.0, 10), ordered=True, log=True),
            Axis("batch_size", (4, 6, 10, 16, 25, 40, 64, 101, 161, 256), ordered=True, log=True),
            Axis("depth", (1, 2, 3), ordered=True),
            Axis("learning_rate_init", _geometric(1e-5, 1.0, 10), ordered=True, log=True),
            Axis("width", (16, 25, 40, 64, 101, 161, 256, 406, 645, 1024), ordered=True, log=True),
        ),
        starts=({"alpha": 1e-4, "batch_size": 256, "depth": 1, "learning_rate_init": 1e-3, "width": 101},),
    ),
    "nb201": _Grid(
        axes=tuple(Axis(f"Op{edge}", _OPERATIONS, ordered=False) for edge in range(6)),
        starts=tuple({f"Op{edge}": name for edge in range(6)} for name in ("skip_connect", "nor_conv_1x1")),
    ),
}

_SEED_COLUMN = re.compile(r"(?P<metric>\w+)_s\d+$")
_MAXIMIZED = re.compile(r"acc|auc|f1|score|reward")


def load_tables(folder: Path) -> list[Table]:
    """Every table of a folder, by name; raises TableError when it holds none or one cannot be read."""
    if not folder.is_dir():
        raise TableError(f"{folder}: no such folder; give a folder with tables (bench/README.md says which)")
    found: dict[str, Table] = {}
    for path in sorted(folder.iterdir()):
        for table in _tables_of(path):
            name = table.name if table.name not in found else f"{table.name}_{path.stem}"
            found[name] = table
    if not found:
        raise TableError(f"{folder}: no hpolib_*, hpobench_mlp_*, nb201_* parquet or steplaw_* CSV file in it")
    return [found[name] for name in sorted(found)]


def _tables_of(path: Path) -> Iterator[Table]:
    if path.suffix == ".csv" and path.stem.startswith("steplaw_"):
        yield from _steplaw_tables(path)
    for family in _GRIDS:
        if path.suffix == ".parquet" and path.stem.startswith(f"{family}_"):
            yield _grid_table(path, family)


def _columns(path: Path) -> dict[str, NDArray[np.generic]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise TableError(f"{path.name} needs pyarrow: pip install 'nightlab[bench]'") from error
    table = parquet.read_table(path)
    return {name: np.asarray(table.column(name).to_numpy()) for name in table.column_names}


def _grid_table(path: Path, family: Family) -> Table:
    columns = _columns(path)
    seeds = [name for name in columns if _SEED_COLUMN.match(name)]
    missing = [axis.name for axis in _GRIDS[family].axes if axis.name not in columns]
    if missing or not seeds:
        raise TableError(f"{path}: no column {', '.join(missing) or '<metric>_s0'}; a {family} table needs it")
    indexed = [_indexed(columns[axis.name], axis) for axis in _GRIDS[family].axes]
    axes, indices = tuple(axis for axis, _ in indexed), [index for _, index in indexed]
    results = np.stack([columns[name].astype(np.float64) for name in seeds], axis=1)
    values = _dense(axes, indices, results, path)
    direction: Literal["minimize", "maximize"] = "maximize" if _MAXIMIZED.search(seeds[0]) else "minimize"
    losses = _mean_of(values) if direction == "minimize" else -_mean_of(values)
    return Table(path.stem, family, axes, direction, _start(axes, _GRIDS[family].starts, losses), values)


def _indexed(column: NDArray[np.generic], known: Axis) -> tuple[Axis, NDArray[np.intp]]:
    """The axis and the level index of each row: the family's levels, or the file's own where they do not fit."""
    whole = np.issubdtype(column.dtype, np.integer)
    if whole and int(column.max()) < len(known.levels):
        used, index = np.unique(column, return_inverse=True)
        return Axis(known.name, tuple(known.levels[i] for i in used), known.ordered, known.log), index
    used, index = np.unique(column, return_inverse=True)
    numeric = bool(np.issubdtype(column.dtype, np.number))
    levels = tuple(value.item() for value in used)
    log = known.log and numeric and all(float(level) > 0 for level in levels)
    return Axis(known.name, levels, known.ordered and numeric, log), index


def _dense(axes: Sequence[Axis], indices: Sequence[NDArray[np.intp]], results: Floats, path: Path) -> Floats:
    """(*levels, seeds) from rows; a configuration that has several rows has the seeds of all of them."""
    shape = tuple(len(axis.levels) for axis in axes)
    flat = np.ravel_multi_index(tuple(indices), shape)
    order = np.argsort(flat, kind="stable")
    _, first, counts = np.unique(flat[order], return_index=True, return_counts=True)
    rank = np.arange(flat.size) - np.repeat(first, counts)
    values = np.full((int(np.prod(shape)), int(counts.max()), results.shape[1]), np.nan)
    values[flat[order], rank] = np.where(np.isfinite(results), results, np.nan)[order]
    if np.isfinite(values).any(axis=(1, 2)).sum() < FEWEST_CELLS:
        raise TableError(f"{path}: fewer than {FEWEST_CELLS} configurations with a finite value")
    return values.reshape(*shape, -1)


def _mean_of(values: Floats) -> Floats:
    count = np.isfinite(values).sum(axis=-1)
    return np.where(count > 0, np.nansum(values, axis=-1) / np.maximum(count, 1), np.nan)


def _start(axes: Sequence[Axis], starts: Sequence[Mapping[str, Level]], losses: Floats) -> Config:
    """The first start that is no dead end (one of the worst tenth of the table), else the last."""
    configs = [_nearest_filled(tuple(axis.nearest(start[axis.name]) for axis in axes), losses) for start in starts]
    alive = [config for config in configs if losses[config] <= np.nanquantile(losses, 0.9)]
    return alive[0] if alive else configs[-1]


def _nearest_filled(config: Config, losses: Floats) -> Config:
    """`config`, or where its cell is missing the one fewest level steps away that is not."""
    filled = np.argwhere(np.isfinite(losses))
    return tuple(int(index) for index in filled[np.argmin(np.abs(filled - np.array(config)).sum(axis=1))])


def _steplaw_tables(path: Path) -> Iterator[Table]:
    """One table a (parameters, tokens) grid over learning rate × batch; a grid of its own for each architecture."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    needed = {"N", "D", "lr", "bs"}
    if not rows or not needed <= rows[0].keys() or not {"smooth_loss", "loss"} & rows[0].keys():
        raise TableError(f"{path}: a Step Law table needs the columns N, D, lr, bs and smooth_loss or loss")
    shape_columns = [name for name in ("h", "ffnh", "numh", "numl") if name in rows[0]]
    grids: dict[tuple[float, ...], list[dict[str, str]]] = defaultdict(list)
    for row in rows:
        grids[tuple(float(row[name]) for name in ("N", "D", *shape_columns))].append(row)
    sizes = [key[:2] for key in grids]
    for key, grid in grids.items():
        suffix = "" if sizes.count(key[:2]) == 1 else "_" + "x".join(f"{part:g}" for part in key[2:])
        name = f"steplaw_n{key[0] / 1e6:.0f}m_d{key[1] / 1e9:.3g}b{suffix}"
        if len(grid) >= FEWEST_CELLS:
            yield _steplaw_table(path, name, key[0], key[1], grid)


def _steplaw_table(path: Path, name: str, n: float, d: float, rows: Sequence[Mapping[str, str]]) -> Table:
    metric = "smooth_loss" if "smooth_loss" in rows[0] else "loss"
    axes, indices = [], []
    for column, kind in (("lr", float), ("bs", int)):
        levels, index = np.unique([float(row[column]) for row in rows], return_inverse=True)
        axes.append(Axis(column, tuple(kind(level) for level in levels), ordered=True, log=True))
        indices.append(index)
    losses = np.array([[float(row[metric] or "nan")] for row in rows])
    values = _dense(axes, indices, losses, path)
    usual: dict[str, Level] = {"lr": 1e-3, "bs": 2**19 / STEPLAW_SEQUENCE_TOKENS}
    start = _start(axes, [usual], _mean_of(values))
    return Table(name, "steplaw", tuple(axes), "minimize", start, values, STEPLAW_SEED_SD_NATS, {"n": n, "d": d})


@dataclass(frozen=True, eq=False)
class Curves:
    """Learning curves of random configurations on one task."""

    name: str
    parameters: tuple[str, ...]
    configurations: Floats
    """(configurations, parameters), in real units."""
    losses: Floats
    """(configurations, steps): validation loss at equally spaced points, the first before training; NaN: diverged."""
    finals: Floats
    """(configurations,): the loss on held-out data at the end, where published; NaN elsewhere."""


def load_curves(folder: Path) -> list[Curves]:
    """The tasks of every `taskset_*.parquet` of a folder, by name; raises TableError when there are none."""
    found = [curves for path in sorted(folder.glob("taskset_*.parquet")) for curves in _curves_of(path)]
    if not found:
        raise TableError(f"{folder}: no taskset_*.parquet file in it")
    return sorted(found, key=lambda curves: curves.name)


def _curves_of(path: Path) -> Iterator[Curves]:
    columns = _columns(path)
    steps = sorted((name for name in columns if re.fullmatch(r"v\d+", name)), key=lambda name: int(name[1:]))
    if not steps:
        raise TableError(f"{path}: no columns v0, v1, …; a file of learning curves needs them")
    others = (*steps, "task", "test_final")
    names = tuple(name for name in columns if name not in others and np.issubdtype(columns[name].dtype, np.number))
    losses = np.stack([columns[name].astype(np.float64) for name in steps], axis=1)
    losses[~np.isfinite(losses)] = np.nan
    configurations = np.stack([columns[name].astype(np.float64) for name in names], axis=1)
    tasks = columns.get("task", np.full(len(losses), path.stem))
    finals = columns.get("test_final", np.full(len(losses), np.nan)).astype(np.float64)
    for task in sorted(set(tasks.tolist())):
        rows = tasks == task
        yield Curves(str(task), names, configurations[rows], losses[rows], finals[rows])
