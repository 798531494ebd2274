"""Published tables are read as they are: levels in real units, missing cells failed, starts where users start."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from bench.tables import Table, TableError, load_curves, load_tables
from tests.bench.tiny import HPOLIB, MLP, NB201, grid, real_tables, write_parquet, write_steplaw


def only(folder: Path) -> Table:
    (table,) = load_tables(folder)
    return table


def test_a_step_law_file_is_one_table_a_grid(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv", [(2e8, 4e9), (2e8, 8e9)])
    small, large = load_tables(tmp_path)
    assert (small.name, large.name) == ("steplaw_n200m_d4b", "steplaw_n200m_d8b")
    assert small.facts == {"n": 2e8, "d": 4e9}
    assert small.parameters(small.start) == {"lr": 9.77e-4, "bs": 256}
    assert small.optimum == 2.5  # of smooth_loss, not of loss
    assert large.mean(large.config({"lr": 1.95e-3, "bs": 128})) == 2.6
    assert small.fingerprint != large.fingerprint


def test_single_runs_get_the_noise_that_is_documented(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv")
    table, rng = only(tmp_path), np.random.default_rng(0)
    draws = [table.draw(table.start, rng) for _ in range(2000)]
    assert abs(np.mean(draws) - table.mean(table.start)) < 2e-4
    assert abs(np.std(draws) - 0.0015) < 2e-4
    assert table.seed_sd == 0.0015


def test_a_missing_cell_fails_and_a_missing_start_moves_to_its_neighbour(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv", without=[(9.77e-4, 256), (3.91e-3, 512)])
    table = only(tmp_path)
    gone = table.config({"lr": 3.91e-3, "bs": 512})
    assert math.isnan(table.mean(gone))
    assert math.isnan(table.draw(gone, np.random.default_rng(0)))
    worst = float(np.nanmax(table.losses))
    assert table.regret(gone) == pytest.approx((worst - table.optimum) / (table.losses[table.start] - table.optimum))
    start, usual = np.array(table.start), np.array(table.config({"lr": 9.77e-4, "bs": 256}))
    assert np.abs(start - usual).sum() == 1
    assert np.isfinite(table.losses[table.start])


def test_regret_is_0_at_the_best_and_1_at_the_start(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv")
    table = only(tmp_path)
    assert table.regret(table.config({"lr": 1.95e-3, "bs": 128})) == 0
    assert table.regret(table.start) == 1
    other = table.config({"lr": 2.44e-4, "bs": 512})
    assert table.regret(other) > 1
    assert table.regret(other, start=other) == 1


def test_where_the_start_is_the_best_the_median_stands_at_1(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv")
    table = only(tmp_path)
    best = table.config({"lr": 1.95e-3, "bs": 128})
    other = table.config({"lr": 2.44e-4, "bs": 512})
    assert table.regret(best, start=best) == 0
    assert 1 < table.regret(other, start=best) < math.inf


def test_a_middling_start_lies_between_the_40_and_60_percent_quantiles(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv")
    table = only(tmp_path)
    ranks = {(table.losses < table.losses[table.middling(np.random.default_rng(seed))]).mean() for seed in range(40)}
    assert min(ranks) >= 0.35
    assert max(ranks) <= 0.65
    assert len(ranks) > 1


def test_an_hpolib_sibling_with_fewer_levels_and_seeds(tmp_path: Path) -> None:
    lost = (1, 1, 2, 1, 0, 2, 1, 2, 1)
    columns = grid(HPOLIB, ["val_loss_s0", "val_loss_s1"], lambda cell, seed: sum(cell) + 0.5 * seed, without=[lost])
    write_parquet(tmp_path / "hpolib_sibling.parquet", columns)
    table = only(tmp_path)
    assert (table.family, table.direction, table.values.shape[-1]) == ("hpolib", "minimize", 2)
    assert dict(zip([axis.name for axis in table.axes], table.axes, strict=True))["init_lr"].levels == (
        5e-4,
        1e-3,
        5e-3,
    )
    start = table.parameters(table.start)
    assert (start["init_lr"], start["batch_size"], start["lr_schedule"]) == (1e-3, 32, "const")
    assert start["n_units_1"] == 64
    assert start["dropout_2"] == 0.0  # the only level it has
    assert table.mean((0,) * 9) == 0.25
    assert {table.draw((0,) * 9, np.random.default_rng(seed)) for seed in range(20)} == {0.0, 0.5}
    assert math.isnan(table.mean(lost))
    assert table.seed_sd == pytest.approx(math.sqrt(0.125))


def test_accuracy_is_maximized_and_the_mlp_starts_from_scikit_learns_defaults(tmp_path: Path) -> None:
    columns = grid(MLP, ["val_acc_s0"], lambda cell, _: 0.5 + 0.01 * sum(cell))
    write_parquet(tmp_path / "hpobench_mlp_sibling.parquet", columns)
    table = only(tmp_path)
    assert table.direction == "maximize"
    start = table.parameters(table.start)
    assert (start["batch_size"], start["depth"], start["width"]) == (256, 1, 101)
    assert start["learning_rate_init"] == 1.67e-3
    best = tuple(len(axis.levels) - 1 for axis in table.axes)
    assert table.regret(best) == 0
    assert table.optimum == -table.mean(best)


def test_nb201_draws_published_seeds_only_and_starts_from_convolutions_where_skips_are_a_dead_end(
    tmp_path: Path,
) -> None:
    def accuracy(cell: tuple[int, ...], seed: int) -> float:
        skips = sum(operation == 1 for operation in cell)
        return float("nan") if seed == 2 and cell[0] == 0 else 70.0 - 10 * skips + seed

    columns = grid(dict.fromkeys(NB201, 3), ["val_acc_s0", "val_acc_s1", "val_acc_s2"], accuracy)
    write_parquet(tmp_path / "nb201_sibling.parquet", columns)
    table = only(tmp_path)
    assert set(table.parameters(table.start).values()) == {"nor_conv_1x1"}
    none = (0,) * 6
    assert table.mean(none) == 70.5
    assert {table.draw(none, np.random.default_rng(seed)) for seed in range(20)} == {70.0, 71.0}
    assert not any(axis.ordered for axis in table.axes)


def test_nb201_starts_from_skips_where_they_are_alive(tmp_path: Path) -> None:
    columns = grid(dict.fromkeys(NB201, 3), ["val_acc_s0"], lambda cell, _: 50.0 + sum(cell))
    write_parquet(tmp_path / "nb201_sibling.parquet", columns)
    assert set(only(tmp_path).parameters(only(tmp_path).start).values()) == {"skip_connect"}


def test_columns_in_real_units_are_taken_as_they_are(tmp_path: Path) -> None:
    columns = grid(MLP, ["val_acc_s0"], lambda cell, _: 0.5 + 0.01 * sum(cell))
    columns["alpha"] = [10.0 ** (int(str(index)) - 6) for index in columns["alpha"]]
    columns["width"] = [2 ** (5 + int(str(index))) for index in columns["width"]]
    write_parquet(tmp_path / "hpobench_mlp_other.parquet", columns)
    table = only(tmp_path)
    axes = {axis.name: axis for axis in table.axes}
    assert axes["alpha"].levels == (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
    assert axes["width"].levels == (32, 64, 128, 256, 512)
    assert axes["width"].log
    assert (table.parameters(table.start)["alpha"], table.parameters(table.start)["width"]) == (1e-4, 128)


def test_several_rows_of_a_configuration_are_its_seeds(tmp_path: Path) -> None:
    columns = grid(MLP, ["val_acc_s0"], lambda *_: 0.5)
    twice = {name: [*values, values[0]] for name, values in columns.items()}
    twice["val_acc_s0"][-1] = 0.7
    write_parquet(tmp_path / "hpobench_mlp_twice.parquet", twice)
    assert only(tmp_path).mean((0,) * 5) == pytest.approx(0.6)


def test_learning_curves(tmp_path: Path) -> None:
    columns: dict[str, list[object]] = {
        "task": ["a", "a", "b"],
        "learning_rate": [1e-3, 1e-2, 1e-1],
        "v0": [0.7, 0.7, 0.7],
        "v10": [0.5, float("inf"), 0.4],
        "v2": [0.6, 9.0, 0.5],
        "test_final": [0.5, float("nan"), 0.4],
    }
    write_parquet(tmp_path / "taskset_some.parquet", columns)
    first, second = load_curves(tmp_path)
    assert (first.name, second.name, first.parameters) == ("a", "b", ("learning_rate",))
    assert first.losses[0].tolist() == [0.7, 0.6, 0.5]
    assert math.isnan(first.losses[1, 2])
    assert second.configurations.tolist() == [[1e-1]]
    assert second.finals.tolist() == [0.4]


def test_what_cannot_be_read_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="no such folder"):
        load_tables(tmp_path / "nowhere")
    with pytest.raises(TableError, match="no hpolib_"):
        load_tables(tmp_path)
    with pytest.raises(TableError, match="no taskset_"):
        load_curves(tmp_path)
    (tmp_path / "steplaw_bad.csv").write_text("N,D,lr\n1,2,3\n")
    with pytest.raises(TableError, match="columns N, D, lr, bs and smooth_loss or loss"):
        load_tables(tmp_path)


def test_a_grid_without_a_needed_column_is_named(tmp_path: Path) -> None:
    write_parquet(tmp_path / "nb201_bad.parquet", {"Op0": [0, 1], "val_acc_s0": [1.0, 2.0]})
    with pytest.raises(TableError, match="no column Op1, Op2"):
        load_tables(tmp_path)


def test_the_real_tables_have_something_to_find() -> None:
    for table in load_tables(real_tables()):
        assert np.isfinite(table.losses[table.start]), table.name
        assert table.losses[table.start] > table.optimum, table.name
        assert table.config(table.parameters(table.start)) == table.start
        if table.family != "steplaw":
            assert table.seed_sd > 0, table.name
