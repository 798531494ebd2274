"""Small tables of each family, written as the published files are; and where the real ones may be."""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

NEIGHBOUR = Path(__file__).parents[2].parent / "shared" / "data"
"""Real tables beside the checkout; `NIGHTLAB_TABLES` names another folder."""

HPOLIB = {
    "activation_fn_1": 2,
    "activation_fn_2": 2,
    "batch_size": 3,
    "dropout_1": 2,
    "dropout_2": 1,
    "init_lr": 3,
    "lr_schedule": 2,
    "n_units_1": 3,
    "n_units_2": 2,
}
MLP = {"alpha": 6, "batch_size": 10, "depth": 2, "learning_rate_init": 6, "width": 5}
NB201 = {f"Op{edge}": 5 if edge < 3 else 2 for edge in range(6)}
LEARNING_RATES = (2.44e-4, 4.88e-4, 9.77e-4, 1.95e-3, 3.91e-3)
BATCHES = (64, 128, 256, 512)


def real_tables() -> Path:
    """The folder with real tables; the test is skipped where there is none, or nothing to read it with."""
    folder = Path(os.environ.get("NIGHTLAB_TABLES", NEIGHBOUR))
    if not folder.is_dir():
        pytest.skip("no real tables: set NIGHTLAB_TABLES to a folder of them")
    pytest.importorskip("pyarrow")
    return folder


def write_parquet(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pyarrow.table(dict(columns)), path)


def grid(
    sizes: Mapping[str, int],
    seeds: Sequence[str],
    value: Callable[[tuple[int, ...], int], float],
    *,
    without: Sequence[tuple[int, ...]] = (),
) -> dict[str, list[object]]:
    """Columns of a full factorial over level indices, some cells left out; `value(cell, seed)` fills the rest."""
    cells = [cell for cell in itertools.product(*map(range, sizes.values())) if cell not in without]
    columns: dict[str, list[object]] = {name: [cell[i] for cell in cells] for i, name in enumerate(sizes)}
    return columns | {name: [value(cell, seed) for cell in cells] for seed, name in enumerate(seeds)}


def write_steplaw(
    path: Path, sizes: Sequence[tuple[float, float]] = ((2e8, 4e9),), *, without: Sequence[tuple[float, int]] = ()
) -> None:
    """Bowls over learning rate × batch, the best at 1.95e-3 and 128, each grid 0.1 above the one before."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["N", "D", "lr", "bs", "loss", "smooth_loss"])
        for number, (n, d) in enumerate(sizes):
            for rate, batch in itertools.product(LEARNING_RATES, BATCHES):
                if (rate, batch) not in without:
                    bowl = 0.02 * np.log2(rate / 1.95e-3) ** 2 + 0.01 * np.log2(batch / 128) ** 2
                    loss = 2.5 + 0.1 * number + float(bowl)
                    writer.writerow([n, d, rate, batch, loss + 0.5, loss])
