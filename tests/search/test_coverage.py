"""Which levels were held, and that no level is left out while there are runs for it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bench.noisy_nights import flat_task
from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.coverage import Coverage
from nightlab.search.lattice import Lattice
from nightlab.search.ranking import rank_factors
from tests.search.simulate import Night, make_study

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "width": 64, "ema": False}
SPACE = {"lr": Factor(levels=[0.5, 2.0]), "width": Factor(levels=[32, 128]), "ema": Factor(levels=[True])}


def lattice() -> Lattice:
    study = make_study(PARAMETERS, SPACE)
    return Lattice.of(study, tuple(rank_factors(study, study.space, tiers={}, priors={})))


def test_factors_never_moved_come_first_and_each_level_once() -> None:
    one = lattice()
    base, axes = one.baseline, range(len(one.axes))
    coverage = Coverage(one, [base])
    every = [(axis, at) for axis in axes for at in range(len(one.axes[axis].settings)) if at != base[axis]]
    assert coverage.untried([], axes) == every
    since = [one.moved(base, every[0])]
    assert coverage.untried(since, axes) == [level for level in every if level[0] != every[0][0]]
    since += [one.moved(base, *[(axis, next(at for a, at in every if a == axis)) for axis in axes])]
    rest = coverage.untried(since, axes)
    assert set(rest) == set(every) - {(axis, at) for point in since for axis, at in enumerate(point)}
    assert coverage.untried(since, axes) == rest, "asked again, the same"
    assert coverage.untried(since, [rest[0][0]]) == [level for level in rest if level[0] == rest[0][0]]


def test_no_level_is_left_out_of_forty_runs_where_all_is_noise() -> None:
    """A level that was never run cannot be found, and the surrogate takes what is alike for equal."""
    study = flat_task().study
    left_out = 0
    for seed in range(8):
        history = Night(study, lambda _: 0.0, runs=40, noise=1.0, seed=seed).run()
        held = {pair for trial in history.trials if trial.phase != Phase.CONFIRM for pair in trial.changed.items()}
        left_out += sum(
            (name, level) not in held for name, factor in study.space.items() for level in factor.levels or ()
        )
    assert left_out <= 2, "of 8 nights with 13 levels each"


@pytest.mark.parametrize("seed", range(4))
def test_where_more_than_noise_is_expected_what_is_known_to_help_comes_first(seed: int) -> None:
    """Six values help and 26 do harm: those that helped alone are put together before every other one is tried."""
    parameters: dict[str, Scalar] = {f"f{index}": 0 for index in range(8)}
    space = {name: Factor(levels=[1, 2, 3, 4], categorical=True) for name in parameters}

    def response(values: Mapping[str, Scalar]) -> float:
        helping = sum(values[f"f{index}"] == 1 for index in range(6))
        return 0.3 * sum(int(value) > 1 for value in values.values()) - helping

    night = Night(make_study(parameters, space, min_effect=0.0), response, runs=36, noise=0.02, seed=seed)
    assert min(response(trial.parameters) for trial in night.run().trials) == -6.0
