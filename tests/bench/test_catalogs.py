"""A catalog knows the siblings of a table, never the table."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.catalogs import catalog_of, reversed_catalog
from bench.tables import Table, load_tables
from tests.bench.tiny import MLP, NB201, grid, write_parquet, write_steplaw


def level(table: Table, axis: str, index: int) -> object:
    return next(known for known in table.axes if known.name == axis).levels[index]


def test_siblings_say_which_levels_are_good_and_the_table_itself_says_nothing(tmp_path: Path) -> None:
    for name, good in (("a", 0), ("b", 4)):
        columns = grid(MLP, ["val_acc_s0"], lambda cell, _, good=good: -abs(cell[4] - good) - 0.01 * cell[2])  # type: ignore[misc]
        write_parquet(tmp_path / f"hpobench_mlp_{name}.parquet", columns)
    tables = load_tables(tmp_path)
    first, second = (catalog_of(table, tables) for table in tables)
    assert (int(first["width"].argmax()), int(second["width"].argmax())) == (4, 0)
    assert all(chances.sum() == pytest.approx(1) and chances.min() > 0 for chances in first.values())


def test_without_a_sibling_a_few_plain_words(tmp_path: Path) -> None:
    columns = grid(dict.fromkeys(NB201, 3), ["val_acc_s0"], lambda cell, _: 50.0 - sum(cell))
    write_parquet(tmp_path / "nb201_alone.parquet", columns)
    (table,) = load_tables(tmp_path)
    assert level(table, "Op0", int(catalog_of(table, [table])["Op0"].argmax())) == "nor_conv_1x1"


def test_step_law_follows_the_published_scaling_law(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv", [(2e8, 4e9), (2e8, 1e11)])
    tables = load_tables(tmp_path)
    small, large = (catalog_of(table, tables) for table in sorted(tables, key=lambda table: (table.facts or {})["d"]))
    assert level(tables[0], "lr", int(small["lr"].argmax())) == 1.95e-3
    assert level(tables[0], "bs", int(small["bs"].argmax())) == 64
    assert large["lr"].argmax() > small["lr"].argmax()
    assert large["bs"].argmax() > small["bs"].argmax()


def test_a_misleading_catalog_is_the_catalog_upside_down() -> None:
    turned = reversed_catalog({"x": np.array([0.1, 0.6, 0.3])})
    assert turned["x"].tolist() == [0.6, 0.1, 0.3]
