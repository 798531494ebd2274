"""A linear mixed model of all runs: what each level adds, with seeds and configurations as random effects.

`value = baseline + sum of the levels' effects + configuration + seed + noise`. The configuration's own part is what the
levels do not add up to; the seed's is what all configurations have in common on the same seed. Their variances are
chosen by restricted likelihood from a coarse grid, the seed's first, and only where the data clearly ask for them
(Patterson and Thompson 1971, "Recovery of inter-block information when block sizes are unequal").
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import stdtr

__all__ = ["Fit", "fit_additive", "next_interaction"]

Matrix = NDArray[np.float64]

RATIOS = (0.0, 0.3, 1.0, 3.0, 10.0)
"""Variance of a random effect over that of the noise."""
WORTH_IT = 1.0
"""Log-likelihood that one more random effect must bring."""
CHANCE_OF_INTERACTION = 0.01
TINY = 1e-9


@dataclass(frozen=True)
class Fit:
    """A fitted model; arrays are by the design's columns, the first of which is the baseline."""

    coefficients: Matrix
    covariance: Matrix
    degrees: int
    """Degrees of freedom behind the noise; 0: no interval can be given."""
    projection: Matrix
    """Onto what the runs determine: the identity where they determine everything."""
    noise_sd: float
    configuration_sd: float
    seed_sd: float
    whitened: Matrix
    residuals: Matrix
    factor: Matrix
    """Cholesky factor of the runs' covariance in units of the noise."""

    def is_determined(self, contrast: Matrix) -> bool:
        """Whether the runs tell this combination of coefficients apart from all others."""
        return bool(np.allclose(self.projection @ contrast, contrast, atol=1e-6))

    def mixed_with(self, column: int) -> list[int]:
        """The columns that cannot be told from this one."""
        found: list[int] = np.flatnonzero(np.abs(self.projection[column]) > 1e-6).tolist()
        return [other for other in found if other not in (0, column)]

    def error(self, contrast: Matrix) -> float:
        """Standard error of a combination of coefficients, in the metric's unit."""
        return math.sqrt(max(0.0, float(contrast @ self.covariance @ contrast)))


def fit_additive(values: Matrix, design: Matrix, configurations: Sequence[int], seeds: Sequence[int]) -> Fit:
    """The model of `values` (n) on `design` (n × p, first column ones), with the configuration and seed of each run."""
    members = [_members(configurations), _members(seeds)]
    groups = [one @ one.T for one in members]
    allowed = [RATIOS if _is_apart(one, design) else RATIOS[:1] for one in members]

    def score(ratios: tuple[float, float]) -> float:
        return _likelihood(values, design, groups, ratios) - WORTH_IT * sum(ratio > 0 for ratio in ratios)

    alone = max(((0.0, seed) for seed in allowed[1]), key=score)
    best = max(((own, alone[1]) for own in allowed[0]), key=score)
    return _fit(values, design, groups, best)


def _members(labels: Sequence[int]) -> Matrix:
    """Runs × labels: 1 where a run has the label."""
    array = np.asarray(labels)
    return np.asarray(array[:, None] == np.unique(array)[None, :], dtype=float)


def _is_apart(members: Matrix, design: Matrix) -> bool:
    """Whether the groups' variance can be told from the design's effects and from the noise."""
    runs, groups = members.shape
    if groups in (1, runs):
        return False
    return bool(np.linalg.matrix_rank(design) < np.linalg.matrix_rank(np.hstack([design, members])) < runs)


def _factor(groups: Sequence[Matrix], ratios: Sequence[float]) -> Matrix:
    """Cholesky factor of the runs' covariance in units of the noise; what it solves is white."""
    variance = np.eye(len(groups[0])) + sum(ratio * group for ratio, group in zip(ratios, groups, strict=True))
    return np.asarray(np.linalg.cholesky(variance))


def _white(factor: Matrix, columns: Matrix) -> Matrix:
    return np.asarray(solve_triangular(factor, columns, lower=True))


def _decomposed(whitened: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    left, sizes, right = np.linalg.svd(whitened, full_matrices=False)
    kept = sizes > 1e-9 * sizes[0]
    return left[:, kept], sizes[kept], right[kept]


def _likelihood(values: Matrix, design: Matrix, groups: Sequence[Matrix], ratios: Sequence[float]) -> float:
    factor = _factor(groups, ratios)
    left, sizes, _ = _decomposed(_white(factor, design))
    whitened = _white(factor, values)
    rest = whitened - left @ (left.T @ whitened)
    degrees = len(values) - len(sizes)
    squares = float(rest @ rest)
    if degrees < 1 or squares <= TINY * float(whitened @ whitened) * TINY:
        return -np.inf if any(ratios) else 0.0
    log_variance = 2 * np.log(np.diag(factor)).sum()
    return float(-0.5 * (degrees * np.log(squares / degrees) + log_variance + 2 * np.log(sizes).sum()))


def _fit(values: Matrix, design: Matrix, groups: Sequence[Matrix], ratios: Sequence[float]) -> Fit:
    factor = _factor(groups, ratios)
    left, sizes, right = _decomposed(_white(factor, design))
    whitened = _white(factor, values)
    coefficients = right.T @ ((left.T @ whitened) / sizes)
    residuals = whitened - left @ (left.T @ whitened)
    degrees = max(0, len(values) - len(sizes) - sum(ratio > 0 for ratio in ratios))
    noise = float(residuals @ residuals) / degrees if degrees else 0.0
    return Fit(
        coefficients=coefficients,
        covariance=noise * (right.T / sizes**2) @ right,
        degrees=degrees,
        projection=right.T @ right,
        noise_sd=noise**0.5,
        configuration_sd=(noise * ratios[0]) ** 0.5,
        seed_sd=(noise * ratios[1]) ** 0.5,
        whitened=left,
        residuals=residuals,
        factor=factor,
    )


def next_interaction(fit: Fit, columns: Matrix) -> int | None:
    """The one of `columns` (n × k) that clearly belongs into the model besides what is in it; None without one.

    Clearly: an F test at one in a hundred, corrected for the number of columns.
    """
    if fit.degrees < 2 or not columns.size or fit.noise_sd == 0:
        return None
    whitened = _white(fit.factor, columns)
    apart = whitened - fit.whitened @ (fit.whitened.T @ whitened)
    sizes = (apart**2).sum(axis=0)
    usable = sizes > 1e-6 * (whitened**2).sum(axis=0)
    explained = np.where(usable, (apart.T @ fit.residuals) ** 2 / np.where(usable, sizes, 1.0), 0.0)
    left = np.maximum(float(fit.residuals @ fit.residuals) - explained, 0.0)
    best = int(np.argmax(explained))
    if left[best] == 0:
        return best
    ratio = float((explained[best] / (left[best] / (fit.degrees - 1))) ** 0.5)
    chance = 2 * float(stdtr(fit.degrees - 1, -ratio))
    return best if chance * columns.shape[1] < CHANCE_OF_INTERACTION else None
