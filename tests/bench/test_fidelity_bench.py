"""The bench of low fidelity on grids of a few cells."""

from __future__ import annotations

import numpy as np
import pytest

from bench.fidelity import METHODS, Pair, pairs_of, play
from bench.tables import Axis, Table


def grid(tokens: float, levels: tuple[float, ...], best: float) -> Table:
    axes = (Axis("lr", levels, ordered=True, log=True), Axis("bs", (32, 64, 128), ordered=True, log=True))
    losses = np.array([[[abs(np.log(lr / best)) + abs(bs - 64) / 64] for bs in (32, 64, 128)] for lr in levels])
    return Table(f"d{tokens:g}", "steplaw", axes, "minimize", (0, 0), losses, 0.001, {"n": 1e8, "d": tokens})


WHOLE = grid(1e10, (0.001, 0.002, 0.004, 0.008), 0.004)


def test_a_grid_is_paired_with_the_largest_cheap_one_on_common_levels() -> None:
    tables = [
        WHOLE,
        grid(1e9, (0.002, 0.004), 0.002),
        grid(3e9, (0.00201, 0.004, 0.016), 0.004),
        grid(9e9, (0.004,), 1),
    ]
    pair = next(pairs_of(tables))
    assert (pair.whole.name, pair.low.name, pair.cost) == ("d1e+10", "d3e+09", 0.3)
    assert pair.whole.axes[0].levels == (0.002, 0.004) and pair.low.values.shape == (2, 3, 1)
    assert pair.whole.mean((1, 1)) == WHOLE.mean((2, 1))


@pytest.mark.parametrize("method", METHODS)
def test_a_night_ends_within_its_budget_near_the_best(method: str) -> None:
    assert play(Pair(WHOLE, WHOLE, 0.25), method, 14, seed=0) < 0.2
