"""What the runs say of the whole lattice: a surrogate on standardised values, and the incumbent it believes in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell
from nightlab.search.lattice import Lattice, Point
from nightlab.search.surrogate import Fantasy, Geometry, Hyperparameters, Surrogate, condition, fit

__all__ = ["Landscape", "Seen"]

Array = NDArray[np.float64]

REFIT_EVERY = 3
"""Hyperparameters are fitted anew at every third value: they move slowly, and fitting is most of the cost."""
FREELY_REFITTED = 12
MOST_FITTED = 80
MOST_CONDITIONED = 400
CLOSE_DEVIATIONS = 2.0
"""Deviations of the difference by which a point may be behind and still be the best."""
ALIKE_DEVIATIONS = 0.5
"""Deviations of the difference up to which two configurations are as good as each other."""
UNKNOWN_NOISE = (0.05, 1.0)
"""Prior of a run's variance, of standardised values, and its log-deviation where no configuration was repeated."""
KNOWN_NOISE_LOG_SD = 0.5


@dataclass(frozen=True)
class Seen:
    """One point with what was measured there, lower is better whatever the metric's direction."""

    point: Point
    value: float | None
    """Mean; None where it failed or has no value yet."""
    runs: int
    sound: bool
    pending: bool
    rejected: bool = False
    """By review: nothing is believed of it, and it is not run again."""
    doubt: float = 0.0
    """Variance besides the noise, where the value is guessed from runs at low fidelity."""

    @property
    def failed(self) -> bool:
        return self.value is None and not self.pending and not self.rejected


@dataclass(frozen=True)
class Scale:
    """The standardisation: straight below the median, logarithmic above, so that bad points do not rule the fit."""

    median: float
    spread: float
    shift: float
    size: float

    @classmethod
    def of(cls, values: Array) -> Scale:
        median = float(np.median(values))
        better = values[values <= np.quantile(values, 0.75)]
        spread = float(better.std()) or float(values.std()) or abs(median) * 0.02 or 1.0
        bent = cls(median, spread, 0.0, 1.0).apply(values)
        size = float(bent.std()) if len(values) > 2 else 1.0
        return cls(median, spread, float(bent.mean()), size or 1.0)

    def apply(self, values: Array) -> Array:
        straight = (values - self.median) / self.spread
        bent = np.where(straight > 0, np.log1p(np.maximum(straight, 0)), straight)
        return np.asarray((bent - self.shift) / self.size, dtype=float)

    @property
    def unit(self) -> float:
        """One standardised unit in the metric's own, near the incumbent."""
        return self.spread * self.size


@lru_cache(maxsize=128)
def _fitted(
    geometry: Geometry, points: tuple[tuple[float, ...], ...], values: tuple[float, ...], runs: tuple[float, ...],
    doubts: tuple[float, ...], noise: tuple[float, float],
) -> Hyperparameters:  # fmt: skip
    return fit(geometry, np.array(points), np.array(values), np.array(runs), noise, np.array(doubts))


@dataclass(frozen=True)
class Landscape:
    """The lattice with what was seen on it."""

    lattice: Lattice
    seen: tuple[Seen, ...]
    noise_sd: float | None
    """Of one run, from repeats, in the metric's unit; None while nothing was repeated."""
    guesses: tuple[Seen, ...] = ()
    """What runs at low fidelity say of points that were not run whole; one that failed counts as run."""

    @classmethod
    def of(cls, lattice: Lattice, evidence: Evidence, guesses: tuple[Seen, ...] = ()) -> Landscape:
        """From the runs before confirmation, which must not choose what is confirmed."""
        sign = -1.0 if evidence.study.maximize else 1.0
        found: dict[Point, Seen] = {}
        for cell in evidence.cells:
            point = lattice.point_of(cell.parameters)
            if point is None or not cell.trials:
                continue
            seen = Seen(point, None, 0, False, False, rejected=True) if cell.rejected else _seen(point, cell, sign)
            found[point] = _joined(found[point], seen) if point in found else seen
        noise = evidence.exploration_noise
        sd = noise.sd if noise.degrees >= 2 and noise.sd > 0 else None
        failed = [guess for guess in guesses if guess.value is None and guess.point not in found]
        return cls(lattice, (*found.values(), *failed), sd, tuple(g for g in guesses if g.value is not None))

    @cached_property
    def known(self) -> dict[Point, Seen]:
        """By point, the ones still running or rejected among them."""
        return {seen.point: seen for seen in self.seen}

    @cached_property
    def measured(self) -> tuple[Seen, ...]:
        return tuple(seen for seen in self.seen if seen.value is not None)

    @cached_property
    def failed(self) -> tuple[Seen, ...]:
        return tuple(seen for seen in self.seen if seen.failed)

    @cached_property
    def _told(self) -> tuple[list[Seen], Array]:
        """Points with a value or a failure, and their values; a failure counts as the worst value there is."""
        told = [*self.guesses, *(seen for seen in self.seen if seen.value is not None or seen.failed)]
        worst = max(seen.value for seen in self.measured if seen.value is not None)
        values = np.array([worst if seen.value is None else seen.value for seen in told])
        if len(told) > MOST_CONDITIONED:
            order = np.argsort(values, kind="stable")
            keep = sorted(
                {*order[: MOST_CONDITIONED // 2].tolist(), *range(len(told) - MOST_CONDITIONED // 2, len(told))}
            )
            told, values = [told[i] for i in keep], values[keep]
        return told, values

    @cached_property
    def scale(self) -> Scale:
        return Scale.of(self._told[1])

    def positions(self, points: list[Point]) -> Array:
        """Codes for the surrogate, `(points, axes)`."""
        codes = self.lattice.codes
        return np.array([[codes[axis][at] for axis, at in enumerate(point)] for point in points], dtype=float)

    @cached_property
    def hyperparameters(self) -> Hyperparameters:
        told, values = self._told
        count = len(told)
        if count > FREELY_REFITTED:
            count -= count % REFIT_EVERY
        values, told = values[:count], told[:count]
        if count > MOST_FITTED:
            best = np.argsort(values, kind="stable")[: MOST_FITTED // 2].tolist()
            keep = sorted({*best, *range(count - MOST_FITTED // 2, count)})
            values, told = values[keep], [told[i] for i in keep]
        scale = Scale.of(values)
        points = self.positions([seen.point for seen in told])
        return _fitted(
            self.lattice.geometry,
            tuple(map(tuple, points.tolist())),
            tuple(scale.apply(values).tolist()),
            tuple(float(max(1, seen.runs)) for seen in told),
            tuple(seen.doubt / scale.unit**2 for seen in told),
            self._noise_prior(scale),
        )

    def _noise_prior(self, scale: Scale) -> tuple[float, float]:
        if self.noise_sd is None:
            return UNKNOWN_NOISE
        # Rounded, so that the cache holds while the estimate of the noise moves a little.
        variance = min(1.0, max(1e-4, (self.noise_sd / scale.unit) ** 2))
        return float(f"{variance:.1g}"), KNOWN_NOISE_LOG_SD

    @cached_property
    def surrogate(self) -> Surrogate:
        told, values = self._told
        points = self.positions([seen.point for seen in told])
        runs = np.array([float(max(1, seen.runs)) for seen in told])
        doubts = np.array([seen.doubt for seen in told]) / self.scale.unit**2
        return condition(self.lattice.geometry, self.hyperparameters, points, self.scale.apply(values), runs, doubts)

    @cached_property
    def _expected(self) -> list[tuple[float, Point]]:
        # Where everything failed on some seed, the baseline too, what was measured must do.
        sound = [seen.point for seen in self.measured if seen.sound] or [seen.point for seen in self.measured]
        means, _ = self.surrogate.predict(self.positions(sound))
        return sorted(zip(means.tolist(), sound, strict=True), key=lambda entry: entry[0])

    def bounds(self, caution: float) -> list[float]:
        """What each of `measured` may be at worst: so many deviations above its expected value, standardised."""
        means, deviations = self.surrogate.predict(self.positions([seen.point for seen in self.measured]))
        return [float(bound) for bound in means + caution * deviations]

    @property
    def incumbent(self) -> Point:
        """The point that was run and is expected to be best, its neighbours' values considered."""
        return self._expected[0][1]

    @property
    def best(self) -> float:
        """Expected value of the incumbent, standardised."""
        return self._expected[0][0]

    def simplest(self, least_gain: float) -> Point:
        """The incumbent, or what is as good with part of its changes: nobody should keep a change that does nothing.

        As good: behind by no more than `least_gain`, in the metric's unit, or half a deviation of the difference.
        """
        best, base = self.incumbent, self.lattice.baseline
        if best == base:
            return best
        parts = [
            point
            for _, point in self._expected
            if point != base and all(at in (whole, own) for at, whole, own in zip(point, best, base, strict=True))
        ]
        means, deviations = self.surrogate.predict(self.positions(parts))
        close = np.maximum(least_gain / self.scale.unit, ALIKE_DEVIATIONS * np.hypot(deviations, deviations[0]))
        alike = [point for point, near in zip(parts, means - means[0] <= close, strict=True) if near]
        return min(alike, key=lambda point: sum(at != own for at, own in zip(point, base, strict=True)))

    def leaders(self, most: int) -> list[Point]:
        """The points that may be the best of those that were run, at most `most`, the most promising first."""
        points = [point for _, point in self._expected[: 4 * most]]
        means, deviations = self.surrogate.predict(self.positions(points))
        near = means - means[0] <= CLOSE_DEVIATIONS * np.hypot(deviations, deviations[0])
        return [point for point, close in zip(points, near, strict=True) if close][:most]

    @property
    def run_noise(self) -> float:
        """Deviation of one run as the surrogate sees it, in the metric's unit."""
        return self.surrogate.noise_sd * self.scale.unit

    def log_improvement(self, means: Array, deviations: Array) -> Array:
        """ln of the expected improvement on the incumbent, all standardised."""
        return _log_expected_improvement((self.best - means) / deviations) + np.log(deviations)

    def gains(self, points: list[Point]) -> tuple[Array, Array]:
        """Expected improvement of each point's value over the incumbent's and its deviation, in the metric's unit."""
        means, deviations = self.surrogate.predict(self.positions(points))
        return (self.best - means) * self.scale.unit, deviations * self.scale.unit

    def fantasy(self, points: list[Point]) -> Fantasy:
        """What is expected of the points, while some of them are added as if they had been run."""
        return Fantasy(self.surrogate, self.positions(points))


def _seen(point: Point, cell: Cell, sign: float) -> Seen:
    values = [sign * value for value in cell.explored]
    estimates = [sign * t.value for t in cell.trials if t.state == "pruned" and t.value is not None]
    told = values or estimates
    mean = sum(told) / len(told) if told else None
    if cell.failures and not values:
        mean = None
    return Seen(point, mean, len(values), bool(values) and cell.sound, cell.pending)


def _joined(one: Seen, other: Seen) -> Seen:
    """Two configurations that mean the same."""
    runs = one.runs + other.runs
    values = [(seen.value, max(1, seen.runs)) for seen in (one, other) if seen.value is not None]
    mean = sum(value * count for value, count in values) / sum(count for _, count in values) if values else None
    return Seen(
        one.point,
        mean,
        runs,
        one.sound or other.sound,
        one.pending or other.pending,
        rejected=one.rejected or other.rejected,
    )


def _log_expected_improvement(ahead: Array) -> Array:
    """ln(φ(a) + a·Φ(a)), stable far below 0 (Ament et al. 2023, "Unexpected improvements to expected improvement")."""
    density = np.exp(-0.5 * ahead**2) / math.sqrt(2 * math.pi)
    near = np.log(np.maximum(density + ahead * ndtr(ahead), 1e-300))
    low = np.minimum(ahead, -1.0)
    # Mills' ratio: φ + aΦ = φ·(1 − |a|·Φ(a)/φ(a)).
    mills = np.exp(np.log(-low) + log_ndtr(low) + 0.5 * low**2 + 0.5 * math.log(2 * math.pi))
    far = -0.5 * low**2 - 0.5 * math.log(2 * math.pi) + np.log(np.maximum(1 - mills, 1e-12))
    return np.asarray(np.where(ahead > -4, near, far), dtype=float)
