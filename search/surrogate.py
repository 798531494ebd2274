"""A Gaussian process over levels: what is known of the objective between the configurations that were run.

The kernel is a weighted sum of an additive part (one term an axis, one a group of related axes) and of the product over
all axes: Matérn 5/2 on the distance of ordered levels, exponential on whether categorical ones differ; besides, what is
each configuration's own. Length-scales, noise, roughness, amplitude and the weight of the two parts are the posterior
mode under weak log-normal priors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit

__all__ = ["Fantasy", "Geometry", "Hyperparameters", "Surrogate", "condition", "fit"]

Array = NDArray[np.float64]

JITTER = 1e-8
LENGTH_SD = 0.8
AMPLITUDE_SD = 0.7
ADDITIVE_LOGIT = 0.5
ROUGHNESS, ROUGHNESS_LOG_SD = 0.01, 1.0
"""Prior of the variance that is a configuration's own. Without it a smooth process takes for noise what a table or a
training run is rough by, and believes neighbours more than the repeats of the configuration itself."""
MOST_STEPS = 40


@dataclass(frozen=True)
class Geometry:
    """What the axes are like: which are ordered, how many levels each has, which belong together."""

    ordered: tuple[bool, ...]
    levels: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...] = ()
    """Axes with the same values (`dropout_1`, `dropout_2`), which often act alike."""

    @property
    def axes(self) -> int:
        return len(self.ordered)

    @property
    def components(self) -> int:
        """Axes and groups."""
        return self.axes + len(self.groups)

    def distances(self, one: Array, other: Array) -> Array:
        """Distances of every pair, `(components, len(one), len(other))`, from `(points, axes)` level positions."""
        return np.array([self.distance(component, one, other) for component in range(self.components)])

    def distance(self, component: int, one: Array, other: Array) -> Array:
        """The same by one component, an axis or after them a group, `(len(one), len(other))`."""
        if component >= self.axes:
            return self._between(self.groups[component - self.axes], one, other)
        apart: Array = np.abs(one[:, component, None] - other[None, :, component])
        return apart if self.ordered[component] else (apart > 0).astype(float)

    def _between(self, group: tuple[int, ...], one: Array, other: Array) -> Array:
        mine, theirs = one[:, group], other[:, group]
        if self.ordered[group[0]]:
            between: Array = np.abs(mine.mean(axis=1)[:, None] - theirs.mean(axis=1)[None, :])
            return between
        values = range(self.levels[group[0]])
        counts = [np.array([(points == value).sum(axis=1) for value in values]) for points in (mine, theirs)]
        return np.asarray(np.abs(counts[0][:, :, None] - counts[1][:, None, :]).sum(axis=0) / 2.0, dtype=float)

    def places(self, component: int, points: Array) -> tuple[Array, NDArray[np.int64]]:
        """Points that stand for all by one component, and for each of `points` the place of that which it is like."""
        group = (component,) if component < self.axes else self.groups[component - self.axes]
        kinds = np.sort(points[:, group], axis=1)
        codes = (
            kinds.sum(axis=1) if self.ordered[group[0]] else kinds @ (1.0 + max(self.levels)) ** np.arange(len(group))
        )
        _, first, places = np.unique(codes, return_index=True, return_inverse=True)
        return points[first], places

    @property
    def smooth(self) -> NDArray[np.bool_]:
        """Which components have the Matérn kernel."""
        return np.array([*self.ordered, *(self.ordered[group[0]] for group in self.groups)])

    @property
    def expected_lengths(self) -> Array:
        """Prior medians of the length-scales: an ordered axis is expected to change over two thirds of its levels."""
        own = [
            2.0 * max(1.0, (levels - 1) / 3) if ordered else 2.0
            for ordered, levels in zip(self.ordered, self.levels, strict=True)
        ]
        return np.array([*own, *(4.0 for _ in self.groups)])


def _components(geometry: Geometry, distances: Array, lengths: Array) -> tuple[Array, Array]:
    """Kernel of each component and its derivative by the logarithm of its length-scale."""
    scaled = distances / lengths[:, None, None]
    smooth = geometry.smooth[:, None, None]
    reach = np.where(smooth, math.sqrt(5.0), 1.0) * scaled
    decay = np.exp(-reach)
    kernel = np.where(smooth, 1.0 + reach + reach**2 / 3.0, 1.0) * decay
    slope = np.where(smooth, reach**2 * (1.0 + reach) / 3.0, reach) * decay
    return kernel, slope


def _matern(scaled: Array) -> Array:
    reach = math.sqrt(5.0) * scaled
    return np.asarray((1.0 + reach + reach**2 / 3.0) * np.exp(-reach))


@dataclass(frozen=True)
class Hyperparameters:
    """The fitted kernel."""

    lengths: Array
    noise: float
    """Variance of one run."""
    amplitude: float
    additive: float
    """Weight of the additive part, 0 to 1."""
    roughness: float
    """Variance of what is a configuration's own: no neighbour tells of it, and no further seed makes it less."""

    @classmethod
    def of(cls, theta: Array) -> Hyperparameters:
        roughness, noise, amplitude, logit = theta[-4:]
        return cls(np.exp(theta[:-4]), math.exp(noise), math.exp(amplitude), float(expit(logit)), math.exp(roughness))

    @property
    def variance(self) -> float:
        """Of a configuration's noise-free value before anything was seen."""
        return self.amplitude + self.roughness


@dataclass(frozen=True)
class Surrogate:
    """The process given what was seen: predicts the mean and the deviation of the noise-free value."""

    geometry: Geometry
    hyperparameters: Hyperparameters
    points: Array
    factor: Array
    weights: Array

    @property
    def noise_sd(self) -> float:
        """Deviation of one run, in the units of the values it was fitted to."""
        return math.sqrt(self.hyperparameters.noise)

    def predict(self, points: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at `(n, axes)` level positions."""
        cross = _kernel(self.geometry, self.hyperparameters, points, self.points)
        spread = solve_triangular(self.factor, cross.T, lower=True)
        variance = self.hyperparameters.variance - (spread**2).sum(axis=0)
        return cross @ self.weights, np.sqrt(np.maximum(variance, 1e-10))


class Fantasy:
    """What the process says of some points while runs are added that give just what is expected of them.

    Such a run leaves every mean as it was and only shrinks deviations, so one row of the factor is all it costs.
    """

    def __init__(self, surrogate: Surrogate, points: Array) -> None:
        """`points` (n, axes): those to be looked at, and those that may be added."""
        self._surrogate, self._points = surrogate, points
        cross = _kernel(surrogate.geometry, surrogate.hyperparameters, points, surrogate.points)
        self._rows: Array = solve_triangular(surrogate.factor, cross.T, lower=True)
        self._used = len(self._rows)
        self._variance = surrogate.hyperparameters.variance - (self._rows**2).sum(axis=0)
        self.means: Array = cross @ surrogate.weights

    @property
    def deviations(self) -> Array:
        """Standard deviations, `(n,)`."""
        return np.asarray(np.sqrt(np.maximum(self._variance, 1e-10)), dtype=float)

    def add(self, *places: int) -> None:
        """One run at each of the points `places`."""
        if not places:
            return
        found, chosen, used = self._surrogate.hyperparameters, list(places), self._used
        rows = self._rows[:used]
        between = _kernel(self._surrogate.geometry, found, self._points[chosen], self._points)
        rest = between - rows[:, chosen].T @ rows
        own = rest[:, chosen]
        own[np.diag_indices(len(chosen))] = np.maximum(self._variance[chosen], 0.0) + found.noise + JITTER
        added = solve_triangular(np.linalg.cholesky(own), rest, lower=True)
        self._reserve(used + len(chosen))
        self._rows[used : used + len(chosen)] = added
        self._used += len(chosen)
        self._variance = self._variance - (added**2).sum(axis=0)

    def _reserve(self, rows: int) -> None:
        if rows > len(self._rows):
            more = np.empty((rows + len(self._rows) // 2 - len(self._rows), self._rows.shape[1]))
            self._rows = np.concatenate([self._rows, more])


def _kernel(geometry: Geometry, found: Hyperparameters, one: Array, other: Array) -> Array:
    product: Array = np.ones((len(one), len(other)))
    total: Array = np.zeros_like(product)
    same = np.ones_like(product, dtype=bool)
    both = np.concatenate([one, other])
    for component in range(geometry.components):
        # There are few levels and many pairs of points: the kernel is computed once for each pair of levels.
        kinds, places = geometry.places(component, both)
        reach = geometry.distance(component, kinds, kinds) / found.lengths[component]
        table = _matern(reach) if geometry.smooth[component] else np.exp(-reach)
        mine, theirs = places[: len(one)], places[len(one) :]
        kernel = table[mine][:, theirs]
        total += kernel
        if component < geometry.axes:
            product *= kernel
            same &= mine[:, None] == theirs[None, :]
    mixed = found.additive * (total / geometry.components) + (1 - found.additive) * product
    return np.asarray(found.amplitude * mixed + found.roughness * same, dtype=float)


def condition(
    geometry: Geometry, found: Hyperparameters, points: Array, values: Array, runs: Array, doubts: Array | float = 0.0
) -> Surrogate:
    """The process with these hyperparameters, given values that are means of `runs` runs each.

    `doubts` (n,): variance of each value besides the noise.
    """
    kernel = _kernel(geometry, found, points, points)
    kernel[np.diag_indices(len(points))] += found.noise / runs + doubts + JITTER
    factor = np.asarray(np.linalg.cholesky(kernel), dtype=float)
    return Surrogate(geometry, found, points, factor, cho_solve((factor, True), values))


def fit(
    geometry: Geometry, points: Array, values: Array, runs: Array, noise: tuple[float, float],
    doubts: Array | float = 0.0,
) -> Hyperparameters:  # fmt: skip
    """The posterior mode of the hyperparameters; `noise`: prior median of one run's variance and its log-deviation.

    `points` (n, axes) level positions, `values` (n,) standardised means, `runs` (n,) how many runs each is the mean of,
    `doubts` (n,) variance of each besides the noise.
    """
    lengths = np.log(geometry.expected_lengths)
    centre = np.array([*lengths, math.log(ROUGHNESS), math.log(noise[0]), 0.0, ADDITIVE_LOGIT])
    widths = np.array([*(LENGTH_SD for _ in lengths), ROUGHNESS_LOG_SD, noise[1], AMPLITUDE_SD, 1.0])
    distances = geometry.distances(points, points)
    bounds = [*((c - 3, c + 3) for c in centre[:-3]), (math.log(1e-5), math.log(2.0)), (-3.0, 3.0), (-4.0, 4.0)]
    start = np.clip(centre, [low for low, _ in bounds], [high for _, high in bounds])

    def loss(theta: Array) -> tuple[float, Array]:
        likelihood, gradient = _negative_likelihood(geometry, distances, values, runs, theta, doubts)
        away = (theta - centre) / widths
        return likelihood + 0.5 * float(away @ away), gradient + away / widths

    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": MOST_STEPS})
    return Hyperparameters.of(found.x)


def _negative_likelihood(
    geometry: Geometry, distances: Array, values: Array, runs: Array, theta: Array, doubts: Array | float = 0.0
) -> tuple[float, Array]:
    found, axes = Hyperparameters.of(theta), geometry.axes
    kernel, slope = _components(geometry, distances, found.lengths)
    additive, product = kernel.mean(axis=0), kernel[:axes].prod(axis=0)
    mixed = found.additive * additive + (1 - found.additive) * product
    same = (distances[:axes] == 0).all(axis=0)
    total = found.amplitude * mixed + found.roughness * same
    total[np.diag_indices(len(values))] += found.noise / runs + doubts + JITTER
    factor = np.linalg.cholesky(total)
    inverse = cho_solve((factor, True), np.eye(len(values)))
    weights = inverse @ values
    outer = 0.5 * (inverse - np.outer(weights, weights))
    scaled = found.amplitude * outer
    by_length = found.additive / len(kernel) * np.einsum("kij,ij->k", slope, scaled)
    rest = np.einsum("kij,ij->k", slope[:axes] / np.maximum(kernel[:axes], 1e-300), product * scaled)
    by_length[:axes] += (1 - found.additive) * rest
    by_roughness = float((outer * same).sum()) * found.roughness
    by_noise = float((np.diag(outer) * found.noise / runs).sum())
    by_amplitude = float((scaled * mixed).sum())
    by_weight = float((scaled * (additive - product)).sum()) * found.additive * (1 - found.additive)
    likelihood = 0.5 * float(values @ weights) + float(np.log(np.diag(factor)).sum())
    return likelihood, np.array([*by_length, by_roughness, by_noise, by_amplitude, by_weight])
