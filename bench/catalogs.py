"""What a technique catalog would say of a table's levels before the first run.

Kinder than a real catalog: for most tables it is what was good on *sibling* tables of the folder (the table itself is
left out), for Step Law the published scaling law, and only where a family has no sibling a few plain words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from bench.tables import STEPLAW_SEQUENCE_TOKENS, Axis, Config, Level, Table

__all__ = ["Catalog", "catalog_of", "chances_of", "reversed_catalog"]

Floats = NDArray[np.float64]
Catalog = dict[str, Floats]
"""Axis → probability of each of its levels to be the one that good configurations have; they add up to 1."""

GOOD_SHARE = 0.01
FEWEST_GOOD = 5
SMOOTHING = 0.2
"""Share of every probability that is spread evenly over the levels."""

_PLAIN: Mapping[str, Mapping[str, Mapping[Level, float]]] = {
    "nb201": {
        f"Op{edge}": {"nor_conv_3x3": 4, "nor_conv_1x1": 3, "skip_connect": 2, "avg_pool_3x3": 1, "none": 0.5}
        for edge in range(6)
    },
    "hpolib": {
        "batch_size": {8: 2, 16: 2, 32: 2, 64: 1},
        "dropout_1": {0.0: 3, 0.3: 2, 0.6: 1},
        "dropout_2": {0.0: 2, 0.3: 2, 0.6: 1},
        "init_lr": {5e-4: 3, 1e-3: 3, 5e-3: 1},
        "lr_schedule": {"cosine": 2, "const": 1},
        "n_units_1": {512: 3, 256: 2, 128: 1},
        "n_units_2": {512: 3, 256: 2, 128: 1},
    },
    "hpobench_mlp": {
        "batch_size": {16: 1, 25: 2, 40: 2, 64: 2, 101: 1},
        "depth": {1: 1, 2: 2, 3: 2},
        "learning_rate_init": {0.000464: 2, 0.00167: 3, 0.00599: 2},
        "width": {161: 1, 256: 2, 406: 2, 645: 1},
    },
}
"""Weights in plain words, for families without a sibling in the folder; what is not named has the same small weight."""
_UNNAMED_WEIGHT = 0.5


def catalog_of(table: Table, tables: Sequence[Table]) -> Catalog:
    """What a catalog knows of `table` that was written by somebody who has seen its siblings among `tables` only."""
    siblings = [other for other in tables if other.family == table.family and other.fingerprint != table.fingerprint]
    if table.facts is not None:
        raw = _scaling_law(table, table.facts)
    elif siblings:
        raw = {axis.name: np.mean([_good_levels(other, axis) for other in siblings], axis=0) for axis in table.axes}
    else:
        raw = {axis.name: _plain(axis, _PLAIN[table.family].get(axis.name, {})) for axis in table.axes}
    return {name: _smoothed(weights) for name, weights in raw.items()}


def reversed_catalog(catalog: Catalog) -> Catalog:
    """A misleading one: the likeliest level trades places with the unlikeliest, the second with the second last, ..."""
    turned = {}
    for name, chances in catalog.items():
        order = np.argsort(chances, kind="stable")
        turned[name] = np.empty_like(chances)
        turned[name][order] = chances[order[::-1]]
    return turned


def chances_of(catalog: Catalog, table: Table, start: Config) -> dict[str, tuple[float, ...]]:
    """Axis → the chance of each of its levels to be better than the start's own, which has 0.5."""
    found = {}
    for axis, own in zip(table.axes, start, strict=True):
        likely = catalog[axis.name]
        found[axis.name] = tuple(float(chance / (chance + likely[own])) for chance in likely)
    return found


def _smoothed(weights: Floats) -> Floats:
    smoothed: Floats = (1 - SMOOTHING) * weights / weights.sum() + SMOOTHING / weights.size
    return smoothed


def _good_levels(sibling: Table, axis: Axis) -> Floats:
    """How often each level of `axis` stands among the best configurations of a sibling."""
    count = np.zeros(len(axis.levels))
    position = [other.name for other in sibling.axes].index(axis.name)
    flat = np.where(np.isfinite(sibling.losses), sibling.losses, np.inf).ravel()
    number = max(FEWEST_GOOD, int(GOOD_SHARE * np.isfinite(flat).sum()))
    best = np.argsort(flat, kind="stable")[:number]
    for index in np.unravel_index(best, sibling.losses.shape)[position]:
        count[axis.nearest(sibling.axes[position].levels[index])] += 1
    frequency: Floats = count / number
    return frequency


def _scaling_law(table: Table, facts: Mapping[str, float]) -> Catalog:
    """Step Law (arXiv 2503.04715): the nearest level, its neighbours half as likely, and so on.

    The law was fitted on grids like these, so this too is kinder than a catalog for a new model would be.
    """
    n, d = facts["n"], facts["d"]
    challengers = {"lr": 1.79 * n**-0.713 * d**0.307, "bs": 0.58 * d**0.571 / STEPLAW_SEQUENCE_TOKENS}
    return {
        axis.name: 0.5 ** np.abs(np.arange(len(axis.levels)) - axis.nearest(challengers[axis.name]))
        for axis in table.axes
    }


def _plain(axis: Axis, weights: Mapping[Level, float]) -> Floats:
    found = np.full(len(axis.levels), _UNNAMED_WEIGHT if weights else 1.0)
    for level, weight in weights.items():
        if axis.ordered or level in axis.levels:
            found[axis.nearest(level)] = weight
    return found
