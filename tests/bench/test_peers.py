"""The peers get a fair night: the start first, every run paid, the lowest observed mean recommended."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from bench.night import Night
from bench.peers import PEERS, two_level_array
from bench.tables import Axis, Config, Table, load_tables
from tests.bench.tiny import write_steplaw

NEEDS = {"Optuna TPE": "optuna", "Optuna GP": "torch", "CMA-ES": "cmaes", "SMAC": "smac"}


@pytest.fixture
def mixed() -> Table:
    """Two ordered axes, two of categories; one corner of it fails."""
    axes = (
        Axis("rate", (1e-4, 1e-3, 1e-2, 1e-1), ordered=True, log=True),
        Axis("size", (1, 2, 3), ordered=True),
        Axis("kind", ("a", "b", "c"), ordered=False),
        Axis("flag", ("on", "off"), ordered=False),
    )
    cells = np.indices((4, 3, 3, 2)).astype(float)
    losses = 3 + (cells[0] - 1) ** 2 + (cells[1] - 2) ** 2 + (cells[2] == 0) + 0.5 * cells[3]
    values = np.stack([losses, losses + 0.2], axis=-1)
    values[3, :, :, 1] = np.nan
    return Table("mixed", "hpolib", axes, "minimize", (2, 0, 0, 1), values)


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.filterwarnings("ignore")  # other people's
def test_every_peer_plays_by_the_rules(name: str, mixed: Table) -> None:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        pytest.skip(f"needs {NEEDS[name]}")
    nights = [Night(mixed, 14, seed) for seed in (3, 3, 4)]
    for night, seed in zip(nights, (3, 3, 4), strict=True):
        PEERS[name](night, seed)
        assert night.left == 0
        assert next(iter(night.observed)) == mixed.start
        assert night.recommended[0] == mixed.start
        assert night.mean(night.recommended[-1]) == min(map(night.mean, night.observed))
    assert nights[0].recommended == nights[1].recommended
    assert nights[0].observed == nights[1].observed
    assert nights[0].observed != nights[2].observed
    assert nights[0].regrets()[0] == 1
    assert nights[0].regrets()[-1] < 1


def test_a_night_sells_no_run_beyond_its_budget(mixed: Table) -> None:
    night = Night(mixed, 1, 0)
    night.run(mixed.start)
    with pytest.raises(RuntimeError, match="more than 1 runs"):
        night.run(mixed.start)


def test_a_repeat_that_disappoints_takes_the_recommendation_away(mixed: Table) -> None:
    night = Night(mixed, 40, 0)
    close: list[Config] = [(1, 2, 1, 0), (1, 2, 2, 0)]  # as good as one another, seeds 0.2 apart
    for config in close * 20:
        night.run(config)
    assert night.recommended[-1] == min(close, key=night.mean)
    assert len(set(night.recommended)) == 2


def test_a_failed_run_is_never_recommended(mixed: Table) -> None:
    night = Night(mixed, 2, 0, start=(1, 0, 0, 0))
    night.run((3, 2, 1, 1))
    night.run(night.start)
    assert night.recommended == [(1, 0, 0, 0)] * 2


def test_a_night_on_a_maximized_table_minimizes_its_negative(tmp_path: Path) -> None:
    write_steplaw(tmp_path / "steplaw_some.csv")
    (table,) = load_tables(tmp_path)
    turned = Table("turned", "nb201", table.axes, "maximize", table.start, -table.values)
    night = Night(turned, 30, 1)
    PEERS["keep/discard"](night, 1)
    assert night.regrets()[-1] < 0.2
    assert all(value > 0 for values in night.observed.values() for value in values)


def test_keep_or_discard_changes_one_variable_of_its_incumbent_and_repeats_nothing(mixed: Table) -> None:
    night = Night(mixed, 9, 5)
    PEERS["keep/discard"](night, 5)
    configs = list(night.observed)
    assert len(configs) == 9
    for config, incumbent in zip(configs[1:], night.recommended, strict=False):
        assert sum(a != b for a, b in zip(config, incumbent, strict=True)) == 1


def test_keep_or_discard_goes_on_where_every_single_change_was_tried(mixed: Table) -> None:
    night = Night(mixed, 60, 5)
    PEERS["keep/discard"](night, 5)
    best = min(night.observed, key=night.mean)
    changed = {sum(a != b for a, b in zip(config, best, strict=True)) for config in list(night.observed)[20:]}
    assert 2 in changed
    assert night.regrets()[-1] == 0


@pytest.mark.parametrize("rows", [4, 8, 16])
def test_the_arrays_have_strength_2(rows: int) -> None:
    array = two_level_array(rows)
    assert array.shape == (rows, rows - 1)
    assert not array[0].any()
    for first, second in combinations(array.T, 2):
        pairs = 2 * first.astype(int) + second.astype(int)
        assert np.bincount(pairs, minlength=4).tolist() == [rows // 4] * 4


def test_screening_then_array_joins_winners_it_found_alone(mixed: Table) -> None:
    night = Night(mixed, 30, 2)
    PEERS["screening + array"](night, 2)
    changed = [sum(a != b for a, b in zip(config, night.start, strict=True)) for config in night.observed]
    first_join = next(i for i, number in enumerate(changed) if number > 1)
    assert changed[:first_join] == [0] + [1] * (first_join - 1)
    assert max(changed[first_join:]) >= 3
