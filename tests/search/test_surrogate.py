"""The Gaussian process: its gradient, what it predicts, and what it makes of repeats, groups and categories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nightlab.search.surrogate import (
    Fantasy,
    Geometry,
    Hyperparameters,
    Surrogate,
    _negative_likelihood,
    condition,
    fit,
)

Array = NDArray[np.float64]
MIXED = Geometry(ordered=(True, False, True, True), levels=(5, 3, 4, 4), groups=((2, 3),))
RELATED = Geometry(ordered=(False, False), levels=(4, 4), groups=((0, 1),))
QUIET = (0.01, 0.5)


def scattered(geometry: Geometry, count: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    return random.integers(0, geometry.levels, size=(count, geometry.axes)).astype(float)


def learned(geometry: Geometry, points: Array, values: Array, noise: tuple[float, float] = QUIET) -> Surrogate:
    runs = np.ones(len(points))
    return condition(geometry, fit(geometry, points, values, runs, noise), points, values, runs)


@pytest.mark.parametrize("geometry", [MIXED, RELATED])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_the_gradient_is_that_of_the_likelihood(geometry: Geometry, seed: int) -> None:
    random = np.random.default_rng(seed)
    points = scattered(geometry, 9, seed)
    values, runs = random.normal(size=9), random.integers(1, 4, size=9).astype(float)
    distances = geometry.distances(points, points)
    theta = np.concatenate([random.normal(0.3, 0.5, size=len(geometry.expected_lengths)), random.normal(-1, 0.5, 4)])
    _, gradient = _negative_likelihood(geometry, distances, values, runs, theta)
    step = 1e-5
    for place in range(len(theta)):
        ahead, behind = theta.copy(), theta.copy()
        ahead[place] += step
        behind[place] -= step
        above, _ = _negative_likelihood(geometry, distances, values, runs, ahead)
        below, _ = _negative_likelihood(geometry, distances, values, runs, behind)
        assert gradient[place] == pytest.approx((above - below) / (2 * step), rel=1e-3, abs=1e-4)


def test_a_smooth_function_is_predicted_where_it_was_not_seen() -> None:
    geometry = Geometry(ordered=(True, True), levels=(7, 7))
    grid = np.array([[a, b] for a in range(7) for b in range(7)], dtype=float)
    truth = 0.1 * (grid[:, 0] - 4) ** 2 + 0.3 * np.sin(grid[:, 1]) - 0.5
    seen = np.random.default_rng(1).permutation(len(grid))[:25]
    unseen = np.setdiff1d(np.arange(len(grid)), seen)
    means, deviations = learned(geometry, grid[seen], truth[seen], (1e-4, 0.5)).predict(grid[unseen])
    assert np.abs(means - truth[unseen]).mean() < 0.1 * truth.std()
    assert (np.abs(means - truth[unseen]) < 4 * deviations + 0.05).all()


def test_what_was_seen_is_less_uncertain_than_what_is_far_from_it() -> None:
    geometry = Geometry(ordered=(True,), levels=(9,))
    surrogate = learned(geometry, np.array([[0.0], [1.0], [2.0]]), np.array([0.3, 0.0, -0.3]))
    _, deviations = surrogate.predict(np.array([[1.0], [3.0], [5.0], [8.0]]))
    assert (np.diff(deviations) > 0).all()


def test_more_runs_at_a_point_pull_its_mean_and_shrink_its_doubt() -> None:
    geometry = Geometry(ordered=(False,), levels=(2,))
    noisy = Hyperparameters(lengths=np.array([2.0]), noise=0.5, amplitude=1.0, additive=0.5, roughness=0.01)
    points, values = np.array([[0.0], [1.0]]), np.array([0.0, 1.0])
    once = condition(geometry, noisy, points, values, np.array([1.0, 1.0])).predict(points)
    often = condition(geometry, noisy, points, values, np.array([1.0, 20.0])).predict(points)
    assert once[0][1] < often[0][1] < 1.0
    assert often[1][1] < once[1][1]


def test_a_rough_spot_is_believed_when_it_was_repeated() -> None:
    """A smooth process would call it noise, however often it is run."""
    geometry = Geometry(ordered=(True,), levels=(9,))
    points, values = np.arange(9.0)[:, None], 0.3 * np.arange(9.0) - 1.2
    values[6] = -1.6
    runs = np.where(np.arange(9) == 6, 6.0, 1.0)
    found = fit(geometry, points, values, runs, (0.01, 0.5))
    means, deviations = condition(geometry, found, points, values, runs).predict(points)
    assert means.argmin() == 6 and means[6] == pytest.approx(-1.6, abs=0.1)
    assert deviations[6] < deviations[5], "more runs tell more of it"


def test_related_axes_learn_from_each_other() -> None:
    """Levels of the second axis are never run; the count of a value over the group tells of them."""
    points = np.array([[value, 0.0] for value in range(4)])
    values = np.array([0.0, 0.0, -1.5, 1.5])
    ahead = np.array([[0.0, 2.0], [0.0, 3.0]])
    grouped, _ = learned(RELATED, points, values).predict(ahead)
    apart, _ = learned(Geometry(ordered=(False, False), levels=(4, 4)), points, values).predict(ahead)
    assert grouped[1] - grouped[0] > 0.2
    assert abs(apart[1] - apart[0]) < 1e-9


def test_the_group_of_ordered_axes_goes_by_their_mean() -> None:
    distances = MIXED.distances(np.array([[0.0, 0.0, 1.0, 3.0]]), np.array([[0.0, 0.0, 3.0, 1.0]]))
    assert distances[:, 0, 0].tolist() == [0.0, 0.0, 2.0, 2.0, 0.0]


def test_categories_are_alike_or_not_whatever_their_codes() -> None:
    distances = MIXED.distances(
        np.array([[0.0, 0.0, 0.0, 0.0]]), np.array([[0.0, code, 0.0, 0.0] for code in range(3)])
    )
    assert distances[1, 0].tolist() == [0.0, 1.0, 1.0]


def test_the_names_of_categories_do_not_change_a_prediction() -> None:
    points = scattered(MIXED, 12)
    values = np.random.default_rng(3).normal(size=12)
    renamed = points.copy()
    renamed[:, 1] = np.array([2.0, 0.0, 1.0])[points[:, 1].astype(int)]
    here, _ = learned(MIXED, points, values).predict(points)
    there, _ = learned(MIXED, renamed, values).predict(renamed)
    assert here == pytest.approx(there, abs=1e-5)


def test_noise_is_told_from_shape() -> None:
    geometry = Geometry(ordered=(True,), levels=(5,))
    random = np.random.default_rng(0)
    points = np.repeat(np.arange(5.0), 8)[:, None]
    loud = learned(geometry, points, random.normal(size=40), (0.1, 1.0))
    still = learned(geometry, points, points[:, 0] - 2 + random.normal(0, 0.05, size=40), (0.1, 1.0))
    assert loud.noise_sd == pytest.approx(1.0, rel=0.35)
    assert still.noise_sd < 0.15


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 7), min_size=1, max_size=5))
def test_a_fantasy_is_the_process_with_the_expected_values_added(seed: int, added: list[int]) -> None:
    points, ahead = scattered(MIXED, 8, seed), scattered(MIXED, 8, seed + 1)
    surrogate = learned(MIXED, points, np.random.default_rng(seed).normal(size=8))
    fantasy = Fantasy(surrogate, ahead)
    means, deviations = surrogate.predict(ahead)
    assert fantasy.means == pytest.approx(means) and fantasy.deviations == pytest.approx(deviations)
    for place in added:
        fantasy.add(place)
    everything = np.concatenate([points, ahead[added]])
    values = np.concatenate([np.random.default_rng(seed).normal(size=8), means[added]])
    exact = condition(MIXED, surrogate.hyperparameters, everything, values, np.ones(len(everything)))
    assert exact.predict(ahead)[0] == pytest.approx(means, abs=1e-6)
    assert fantasy.deviations == pytest.approx(exact.predict(ahead)[1], abs=1e-5)
