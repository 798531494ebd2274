"""The mixed model against the textbook's formulas with whole matrices, and what it makes of ties."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nightlab.search.additive import RATIOS, fit_additive, next_interaction

Array = NDArray[np.float64]


def runs(seed: int) -> tuple[Array, Array, list[int], list[int]]:
    """Values, design, configuration and seed of each run; configurations and seeds have effects of their own."""
    random = np.random.default_rng(seed)
    cells, terms = int(random.integers(6, 25)), int(random.integers(1, 6))
    levels = (random.random((cells, terms)) < 0.4).astype(float)
    of_run = [(cell, one) for cell in range(cells) for one in range(int(random.integers(1, 5)))]
    configurations, seeds = [cell for cell, _ in of_run], [one for _, one in of_run]
    design = np.column_stack([np.ones(len(of_run)), levels[configurations]])
    values = design @ random.normal(size=terms + 1) + random.normal(size=len(of_run))
    values += float(random.choice([0.0, 2.0])) * random.normal(size=cells)[configurations]
    values += float(random.choice([0.0, 3.0])) * random.normal(size=5)[seeds]
    return values, design, configurations, seeds


def same(labels: list[int]) -> Array:
    return np.asarray(np.equal.outer(labels, labels), dtype=float)


@pytest.mark.parametrize("seed", range(40))
def test_coefficients_and_errors_are_those_of_generalised_least_squares(seed: int) -> None:
    values, design, configurations, seeds = runs(seed)
    fit = fit_additive(values, design, configurations, seeds)
    own, common = ((sd / fit.noise_sd) ** 2 for sd in (fit.configuration_sd, fit.seed_sd))
    assert min(abs(own - ratio) for ratio in RATIOS) < 1e-6 and min(abs(common - ratio) for ratio in RATIOS) < 1e-6
    inverse = np.linalg.inv(np.eye(len(values)) + own * same(configurations) + common * same(seeds))
    bread = np.linalg.pinv(design.T @ inverse @ design)
    rest = values - design @ (bread @ design.T @ inverse @ values)
    rank = int(np.linalg.matrix_rank(design))
    variance = rest @ inverse @ rest / (len(values) - rank - (own > 0) - (common > 0))
    assert fit.noise_sd**2 == pytest.approx(variance)
    assert design @ fit.coefficients == pytest.approx(values - rest)
    assert design @ fit.covariance @ design.T == pytest.approx(variance * design @ bread @ design.T, abs=1e-9)


def test_the_variances_chosen_are_the_likeliest_of_the_grid() -> None:
    """By the restricted likelihood with whole matrices, each variance above 0 paying its price."""

    def score(own: float, common: float) -> float:
        variance = np.eye(len(values)) + own * same(configurations) + common * same(seeds)
        inverse = np.linalg.inv(variance)
        information = design.T @ inverse @ design
        rest = values - design @ np.linalg.solve(information, design.T @ inverse @ values)
        degrees = len(values) - design.shape[1]
        logs = np.linalg.slogdet(variance)[1] + np.linalg.slogdet(information)[1]
        return float(-0.5 * (degrees * np.log(rest @ inverse @ rest / degrees) + logs)) - (own > 0) - (common > 0)

    mixed = 0
    for seed in range(40):
        values, design, configurations, seeds = runs(seed)
        if np.linalg.matrix_rank(design) < design.shape[1]:
            continue
        fit = fit_additive(values, design, configurations, seeds)
        own, common = ((sd / fit.noise_sd) ** 2 for sd in (fit.configuration_sd, fit.seed_sd))
        first = max(RATIOS, key=lambda ratio: score(0.0, ratio))
        assert common == pytest.approx(first)
        assert own == pytest.approx(max(RATIOS, key=lambda ratio: score(ratio, first)))
        mixed += own > 0 and common > 0
    assert mixed >= 3


def test_of_two_columns_that_say_the_same_the_first_enters() -> None:
    random = np.random.default_rng(0)
    levels = (random.random((30, 2)) < 0.5).astype(float)
    together = levels[:, :1] * levels[:, 1:]
    values = 5.0 * together[:, 0] + 0.1 * random.normal(size=30)
    fit = fit_additive(values, np.column_stack([np.ones(30), levels]), list(range(30)), [0] * 30)
    assert next_interaction(fit, np.hstack([levels[:, :1] * 0.0, together, together])) == 1
