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
    """An orthonormal basis of the whitened design."""
    residuals: Matrix
    whitener: _Whitener
    """Makes the runs' random parts independent and equally large."""

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


class _Groups:
    """The runs by one label: sums over each group, in time linear in the runs."""

    def __init__(self, labels: Sequence[int]) -> None:
        _, self.of_run, self.sizes = np.unique(np.asarray(labels), return_inverse=True, return_counts=True)
        self._order = np.argsort(self.of_run, kind="stable")
        self._starts = np.cumsum(self.sizes) - self.sizes

    def sums(self, columns: Matrix) -> Matrix:
        """Groups × columns."""
        return np.asarray(np.add.reduceat(columns[self._order], self._starts, axis=0))

    def members(self) -> Matrix:
        """Runs × groups: 1 where a run belongs to the group."""
        return np.asarray(self.of_run[:, None] == np.arange(len(self.sizes))[None, :], dtype=float)

    def without(self, columns: Matrix) -> Matrix:
        """The columns without their groups' means."""
        return np.asarray(columns - (self.sums(columns) / self.sizes[:, None])[self.of_run])


class _Whitener:
    """A symmetric root of the inverse of `1 + own · same configuration + common · same seed`, and its determinant.

    Configurations are blocks, so theirs is known; the seeds, of which there are few, are a correction of low rank.
    """

    def __init__(self, configurations: _Groups, seeds: _Groups, own: float, common: float) -> None:
        self._configurations = configurations
        grown = 1.0 + own * configurations.sizes
        self._shrunk = ((1.0 - grown**-0.5) / configurations.sizes)[:, None] if own else None
        self.log_variance = float(np.log(grown).sum())
        self._directions: Matrix | None = None
        if common:
            directions, sizes, _ = np.linalg.svd(self._by_configuration(seeds.members()), full_matrices=False)
            grown = 1.0 + common * sizes**2
            self._directions, self._scaled = directions, (1.0 - grown**-0.5)[:, None]
            self.log_variance += float(np.log(grown).sum())

    def _by_configuration(self, columns: Matrix) -> Matrix:
        if self._shrunk is None:
            return columns
        return np.asarray(columns - (self._shrunk * self._configurations.sums(columns))[self._configurations.of_run])

    def __call__(self, columns: Matrix) -> Matrix:
        """The columns (n × k) made white."""
        columns = self._by_configuration(columns)
        if self._directions is None:
            return columns
        return np.asarray(columns - self._directions @ (self._scaled * (self._directions.T @ columns)))


@dataclass(frozen=True)
class _Design:
    """The design's singular vectors and values, those of its rank only."""

    left: Matrix
    sizes: Matrix
    right: Matrix

    @classmethod
    def of(cls, design: Matrix) -> _Design:
        left, sizes, right = np.linalg.svd(design, full_matrices=False)
        kept = sizes > 1e-9 * sizes[0]
        return cls(left[:, kept], sizes[kept], right[kept])

    def white(self, whitener: _Whitener) -> tuple[Matrix, Matrix]:
        """An orthonormal basis of the whitened design, and the triangle that leads from it back to `left`."""
        basis, triangle = np.linalg.qr(whitener(self.left))
        return basis, triangle


def fit_additive(values: Matrix, design: Matrix, configurations: Sequence[int], seeds: Sequence[int]) -> Fit:
    """The model of `values` (n) on `design` (n × p, first column ones), with the configuration and seed of each run."""
    own, common = _Groups(configurations), _Groups(seeds)
    known = _Design.of(design)
    allowed = [RATIOS if _is_apart(one, design, known) else RATIOS[:1] for one in (own, common)]

    def score(ratios: tuple[float, float]) -> float:
        found = _likelihood(values, known, _Whitener(own, common, *ratios), any(ratios))
        return found - WORTH_IT * sum(ratio > 0 for ratio in ratios)

    alone = max(((0.0, seed) for seed in allowed[1]), key=score)
    best = max(((ratio, alone[1]) for ratio in allowed[0]), key=score)
    return _fit(values, known, _Whitener(own, common, *best), best)


def _is_apart(groups: _Groups, design: Matrix, known: _Design) -> bool:
    """Whether the groups' variance can be told from the design's effects and from the noise."""
    runs = len(design)
    if len(groups.sizes) in (1, runs):
        return False
    rest = np.linalg.matrix_rank(groups.without(design), tol=1e-9 * float(known.sizes[0]))
    return bool(len(known.sizes) < len(groups.sizes) + rest < runs)


def _likelihood(values: Matrix, design: _Design, whitener: _Whitener, is_mixed: bool) -> float:
    basis, triangle = design.white(whitener)
    whitened = whitener(values[:, None])[:, 0]
    rest = whitened - basis @ (basis.T @ whitened)
    degrees = len(values) - len(design.sizes)
    squares = float(rest @ rest)
    if degrees < 1 or squares <= TINY * float(whitened @ whitened) * TINY:
        return -np.inf if is_mixed else 0.0
    log_sizes = np.log(np.abs(np.diag(triangle))).sum() + np.log(design.sizes).sum()
    return float(-0.5 * (degrees * np.log(squares / degrees) + whitener.log_variance + 2 * log_sizes))


def _fit(values: Matrix, design: _Design, whitener: _Whitener, ratios: Sequence[float]) -> Fit:
    basis, triangle = design.white(whitener)
    whitened = whitener(values[:, None])[:, 0]
    # The whitened design is basis · triangle · sizes · right: each factor is inverted on its own.
    inverse = (design.right.T / design.sizes) @ np.linalg.inv(triangle)
    residuals = whitened - basis @ (basis.T @ whitened)
    degrees = max(0, len(values) - len(design.sizes) - sum(ratio > 0 for ratio in ratios))
    noise = float(residuals @ residuals) / degrees if degrees else 0.0
    return Fit(
        coefficients=inverse @ (basis.T @ whitened),
        covariance=noise * inverse @ inverse.T,
        degrees=degrees,
        projection=design.right.T @ design.right,
        noise_sd=noise**0.5,
        configuration_sd=(noise * ratios[0]) ** 0.5,
        seed_sd=(noise * ratios[1]) ** 0.5,
        whitened=basis,
        residuals=residuals,
        whitener=whitener,
    )


def next_interaction(fit: Fit, columns: Matrix) -> int | None:
    """The one of `columns` (n × k) that clearly belongs into the model besides what is in it; None without one.

    Clearly: an F test at one in a hundred, corrected for the number of columns.
    """
    if fit.degrees < 2 or not columns.size or fit.noise_sd == 0:
        return None
    whitened = fit.whitener(columns)
    apart = whitened - fit.whitened @ (fit.whitened.T @ whitened)
    sizes = (apart**2).sum(axis=0)
    usable = sizes > 1e-6 * (whitened**2).sum(axis=0)
    explained = np.where(usable, (apart.T @ fit.residuals) ** 2 / np.where(usable, sizes, 1.0), 0.0)
    left = np.maximum(float(fit.residuals @ fit.residuals) - explained, 0.0)
    # Rounded: of columns that say the same the first.
    best = int(np.argmax(np.round(explained / float(fit.residuals @ fit.residuals), 9)))
    if left[best] == 0:
        return best
    ratio = float((explained[best] / (left[best] / (fit.degrees - 1))) ** 0.5)
    chance = 2 * float(stdtr(fit.degrees - 1, -ratio))
    return best if chance * columns.shape[1] < CHANCE_OF_INTERACTION else None
