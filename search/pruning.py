"""Whether a running run has fallen so far behind that it is ended before its time.

Like is compared with like: the same schedule, at the same step. Far from the incumbent asynchronous successive halving
(Li et al., arXiv 1810.05934) with a margin for noise; near it only what is clearly worse than the incumbent's curve.
docs/pruning.md has the figures behind the constants.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, variance
from typing import Literal

from nightlab.configs.pruning import PruningSettings
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Phase

__all__ = ["Curve", "Look", "Point", "Pruning", "Warmup", "look_of", "schedule_of", "should_prune", "warmup_of"]

AFTER_WARMUP = 0.04
"""Share of the steps that a run goes on uncompared once a warm-up that is known has ended."""
UNKNOWN_WARMUP = 0.12
"""Share of the steps in which nothing is compared where the warm-up is not known."""

ETA = 3
"""Of what reached a rung one in so many goes on; a rung lies at so many times the steps of the one before."""
CLEARLY_FROM = 0.25
"""Share of the steps before which a run near the incumbent is not ended."""
DEVIATIONS = 3.0
CLEAR_SHARE = 0.25
"""Of what the incumbent had gained by a step: a run that far behind there is clearly worse."""
CLOSE_SHARE = 0.1
"""Of the same: a run less far behind goes on, whatever its rank."""
GROSS_SHARE = 0.3
"""Of a value: a run so much worse than the incumbent's curve, and than its own best, diverges under any schedule."""

Point = tuple[float, float]
"""Step and value."""
Look = Literal["first", "near", "row", "never"]
"""What a run is made for: a first look at a new value, a neighbour of the incumbent, a row of an orthogonal array whose
effect is needed, or what is never ended (baseline, confirmation, further seeds)."""
_LOOKS: dict[Phase, Look] = {Phase.SCREEN: "first", Phase.REFINE: "near", Phase.COMBINE: "row"}

# Weight decay and averaging of weights shape no curve; any other decay may.
_SHAPES_CURVE = re.compile(
    r"step|epoch|iters?\b|iterations|warm_?up|sched|anneal|cosine|cool_?down|(?<!weight)(?<!weight_)(?<!ema_)decay"
)
_WARMUP = re.compile(r"warm_?up")
# Something else about the warm-up than its length, or that of a profiler; `warmup_step_rate` is a length.
_NO_LENGTH = re.compile(r"profil|(lr|(?<!step_)rate|factor|momentum|decay|type|schedule|scheduler)$")
_SHARE = re.compile(r"ratio(?!n)|fraction|frac\b|share|proportion")
_STEPS = re.compile(r"step|iter|update")
# Units that nothing here can turn into steps.
_OTHER_UNIT = re.compile(r"epoch|token|sample|example|second|minute|hour|percent|pct")


@dataclass(frozen=True)
class Warmup:
    """The warm-up of a run's own schedule: the longer of the two, none where both are 0."""

    share: float = 0.0
    """Of the run's steps."""
    steps: float = 0.0

    def end(self, total_steps: float) -> float:
        """The step at which it has ended."""
        return max(self.share * total_steps, self.steps)


@dataclass(frozen=True)
class Curve:
    """What a run has reported so far."""

    number: int
    """Its experiment."""
    points: tuple[Point, ...]
    """By rising step; a value may be nan."""
    schedule: tuple[Scalar, ...] = ()
    """Values of the parameters that shape a curve: where they are equal, curves may be compared."""
    warmup: Warmup | None = None
    """None where it is not known."""
    ended: bool = False
    """Whether it ran to its end."""

    @cached_property
    def _steps(self) -> list[float]:
        return [step for step, _ in self.points]

    @cached_property
    def _reported(self) -> dict[float, float]:
        return dict(self.points)

    def at(self, step: float) -> float | None:
        """The value at `step`, linear between two reports; None outside of them or where one is not finite."""
        value = self._reported.get(step)
        if value is None:
            after = bisect_left(self._steps, step)
            if after in (0, len(self.points)):
                return None
            (x0, y0), (x, y) = self.points[after - 1 : after + 1]
            value = y0 + (y - y0) * (step - x0) / (x - x0)
        return value if math.isfinite(value) else None

    @property
    def last_step(self) -> float:
        return self.points[-1][0] if self.points else 0.0


@dataclass(frozen=True)
class Pruning:
    """Why a run is ended: where it stood, and what it would have come to."""

    step: float
    total_steps: float | None
    """Steps of a whole run of the same schedule; None where none has ended yet."""
    value: float
    reference: float | None
    """What the best comparable configuration had at this step; None where there is none."""
    estimate: float
    """A guess of the final value: as far behind the reference at its end as now, nan after divergence."""
    diverged: bool
    reason: str
    """One line."""


def look_of(number: int, phase: Phase, *, first_seed: bool) -> Look:
    """What a run is made for; only the first seed of an experiment may fall behind."""
    return _LOOKS.get(phase, "never") if number and first_seed else "never"


def schedule_of(study: Study, parameters: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
    """The values that shape a run's curve: of the declared parameters, else of those whose names say so.

    That of the fidelity always does.
    """
    declared, fidelity = study.search.pruning.schedule_parameters, study.search.fidelity
    shaping = [n for n in sorted(study.parameters) if _SHAPES_CURVE.search(n.lower())] if declared is None else declared
    own = [fidelity.parameter] if fidelity else []
    return tuple(parameters[name] for name in dict.fromkeys([*shaping, *own]))


def warmup_of(study: Study, parameters: Mapping[str, Scalar]) -> Warmup | None:
    """The warm-up that a configuration names, the longest of several; None where it names none that can be read."""
    declared = study.search.pruning.warmup_parameter
    names = [declared] if declared else [name for name in parameters if _names_warmup(name.lower())]
    found = [_warmup(name.lower(), parameters[name]) for name in names]
    read = [one for one in found if one is not None]
    longest = Warmup(max((one.share for one in read), default=0.0), max((one.steps for one in read), default=0.0))
    # `warmup_steps: 0` says nothing beside `warmup_epochs: 5`.
    return None if longest == Warmup() and len(read) < max(1, len(found)) else longest


def _names_warmup(name: str) -> bool:
    return bool(_WARMUP.search(name)) and not _NO_LENGTH.search(name)


def _warmup(name: str, value: Scalar) -> Warmup | None:
    """What the parameter says in the unit of its name; without one up to 1 a share, above it steps."""
    if isinstance(value, bool | str) or not 0 <= value < math.inf:
        return None
    if _SHARE.search(name):
        return Warmup(share=value) if value <= 1 else None
    if _OTHER_UNIT.search(name) and value:
        return None
    # Nobody warms up for less than one step: transformers reads it as a share, too.
    is_share = value < 1 if _STEPS.search(name) else value <= 1
    return Warmup(share=value) if is_share else Warmup(steps=value)


def should_prune(
    settings: PruningSettings,
    curve: Curve,
    peers: Iterable[Curve],
    *,
    look: Look,
    maximize: bool = False,
    min_effect: float = 0.0,
) -> Pruning | None:
    """Why the run of `curve` should end now; None as long as it may go on.

    `peers` are the curves of all other runs, ended or not; those the review rejected are left out. `min_effect` is in
    the metric's unit. The same arguments give the same answer.
    """
    if settings.mode == "off" or look == "never" or not curve.points:
        return None
    case = _Case(settings, curve, tuple(peers), -1.0 if maximize else 1.0, min_effect)
    diverged = case.not_finite() or case.gross()
    if diverged or look == "row" or case.is_whole:
        return diverged
    return case.clearly_worse() or (case.halved() if look == "first" and settings.mode == "auto" else None)


@dataclass(frozen=True)
class _Case:
    """One running run among its peers; `sign` turns values so that lower is better."""

    settings: PruningSettings
    curve: Curve
    peers: tuple[Curve, ...]
    sign: float
    min_effect: float

    @cached_property
    def comparable(self) -> tuple[Curve, ...]:
        return tuple(peer for peer in self.peers if peer.schedule == self.curve.schedule and peer.points)

    @cached_property
    def incumbent(self) -> tuple[Curve, ...]:
        """The best configuration that ended under the same schedule, one curve a seed."""
        return self._best(self.comparable)

    def _best(self, curves: Iterable[Curve]) -> tuple[Curve, ...]:
        ended = _by_number(curve for curve in curves if curve.ended and math.isfinite(curve.points[-1][1]))
        groups = [tuple(group) for group in ended.values()]
        return min(groups, key=lambda group: self.sign * fmean(c.points[-1][1] for c in group), default=())

    @cached_property
    def total_steps(self) -> float | None:
        return max((curve.last_step for curve in self.incumbent), default=None)

    @property
    def is_whole(self) -> bool:
        """Whether it has done its last step: its result is all but there, and ending it would save nothing."""
        return self.total_steps is not None and self.curve.last_step >= self.total_steps

    @cached_property
    def start(self) -> float:
        """The first step at which anything is compared."""
        assert self.total_steps is not None
        if self.settings.warmup is not None:
            return max(self.settings.warmup * self.total_steps, self._own_warmup(self.total_steps))
        if self.curve.warmup is None:
            return UNKNOWN_WARMUP * self.total_steps
        return self._own_warmup(self.total_steps) + AFTER_WARMUP * self.total_steps

    def _own_warmup(self, total_steps: float) -> float:
        return 0.0 if self.curve.warmup is None else self.curve.warmup.end(total_steps)

    def not_finite(self) -> Pruning | None:
        if len(self.curve.points) < 2 or any(math.isfinite(value) for _, value in self.curve.points[-2:]):
            return None
        return self._pruning(None, "not finite twice in a row", diverged=True)

    def gross(self) -> Pruning | None:
        """Divergence: away from its own best as well as from the best curve, its own schedule's where there is one.

        A run that only stays behind does not diverge: under another schedule it may yet come down.
        """
        best = self.incumbent or self._best(self.peers)
        if not best:
            return None
        total = max(curve.last_step for curve in best)
        share = UNKNOWN_WARMUP if self.settings.warmup is None else self.settings.warmup
        start = max(CLEARLY_FROM * total, self._own_warmup(total) + share * total)
        latest = [step for step, _ in self.curve.points[-2:]]
        if len(latest) < 2 or latest[0] < start:
            return None
        for step in latest:
            gap, there, fallen = self._gap(step, best), _mean_at(best, step), self._fallen_back(step)
            if gap is None or there is None or not fallen:
                return None
            if gap <= max(GROSS_SHARE * abs(there), CLEAR_SHARE * self._gain(step, best), self.min_effect):
                return None
        return self._pruning(best, "it has diverged", diverged=True)

    def _fallen_back(self, step: float) -> bool:
        """Whether the run is far worse at `step` than it has been before."""
        own, earlier = self.curve.at(step), [v for s, v in self.curve.points if s <= step and math.isfinite(v)]
        best = min((self.sign * value for value in earlier), default=math.inf)
        return own is not None and self.sign * own - best > GROSS_SHARE * abs(best)

    def clearly_worse(self) -> Pruning | None:
        """Behind the incumbent's curve, twice in a row, by more than noise and a share of its gain explain."""
        latest = [step for step, _ in self.curve.points[-2:]]
        if self.total_steps is None or len(latest) < 2 or latest[0] < self.start:
            return None
        if latest[1] < CLEARLY_FROM * self.total_steps or not all(self._behind(s, CLEAR_SHARE) for s in latest):
            return None
        return self._pruning(self.incumbent, "clearly worse")

    def halved(self) -> Pruning | None:
        """Outside the best of those that reached the last rung it has passed, and not close to the incumbent."""
        if self.total_steps is None or (rung := self._rung()) is None:
            return None
        # Most are close enough, and this is sooner known than their rank.
        if not self._behind(rung, CLOSE_SHARE) or not self._behind(self.curve.last_step, CLOSE_SHARE):
            return None
        own = self.curve.at(rung)
        means = (_mean_at(group, rung) for group in _by_number(self.comparable).values())
        others = [value for value in means if value is not None]
        count = len(others) + 1
        if own is None or count < ETA:
            return None
        rank = 1 + sum(self.sign * other < self.sign * own for other in others)
        kept = count // ETA
        if rank <= kept:
            return None
        what = (
            f"place {rank} of {count} that got to step {rung:.6g}, of which {kept} {'goes' if kept == 1 else 'go'} on"
        )
        return self._pruning(self.incumbent, what)

    def _rung(self) -> float | None:
        """The last rung that the run has passed."""
        assert self.total_steps is not None
        rung, passed = max(self.start, self.total_steps / 1000), None
        while rung < self.total_steps and rung <= self.curve.last_step:
            rung, passed = rung * ETA, rung
        return passed

    def _gap(self, step: float, group: Sequence[Curve]) -> float | None:
        """How much worse than the mean of `group` the run is at `step`."""
        own, there = self.curve.at(step), _mean_at(group, step)
        return None if own is None or there is None else self.sign * (own - there)

    def _gain(self, step: float, group: Sequence[Curve]) -> float:
        """What `group` had gained by `step` since its first report."""
        gains = [self.sign * (curve.points[0][1] - there) for curve in group if (there := curve.at(step)) is not None]
        return max(0.0, fmean(gains)) if gains else 0.0

    def _behind(self, step: float, share: float) -> bool:
        gap = self._gap(step, self.incumbent)
        noise = DEVIATIONS * max(self._deviation(step), self._deviation(None))
        return gap is not None and gap > max(noise, share * self._gain(step, self.incumbent), self.min_effect)

    def _deviation(self, step: float | None) -> float:
        """Pooled standard deviation between seeds of one configuration at `step`, or at the end; 0 where unknown.

        Taken over every schedule: a curve's noise is known from the baseline's replicates or not at all.
        """
        groups = _by_number(peer for peer in self.peers if peer.ended and peer.points)
        squares, freedom = 0.0, 0
        for group in groups.values():
            found = [curve.points[-1][1] if step is None else curve.at(step) for curve in group]
            values = [value for value in found if value is not None and math.isfinite(value)]
            if len(values) > 1:
                squares += variance(values) * (len(values) - 1)
                freedom += len(values) - 1
        return math.sqrt(squares / freedom) if freedom else 0.0

    def _pruning(self, group: Sequence[Curve] | None, what: str, *, diverged: bool = False) -> Pruning:
        step, value = self.curve.points[-1]
        there = _mean_at(group, step) if group else None
        gap = self._gap(step, group) if group else None
        estimate = math.nan
        if group and gap is not None:
            # It need not fall further behind than now, and it can hardly end worse than it stands.
            estimate = fmean(curve.points[-1][1] for curve in group) + self.sign * gap
            estimate = self.sign * min(self.sign * estimate, self.sign * value)
        place = f"step {step:.6g}" + (f" of {self.total_steps:.6g}" if self.total_steps else "")
        beside = f", the best had {there:.4g} there" if there is not None else ""
        reason = f"at {place}: {value:.4g}{beside}; {what}"
        return Pruning(step, self.total_steps, value, there, estimate, diverged, reason)


def _by_number(curves: Iterable[Curve]) -> dict[int, list[Curve]]:
    groups: dict[int, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.number, []).append(curve)
    return groups


def _mean_at(curves: Sequence[Curve] | None, step: float) -> float | None:
    values = [value for curve in curves or () if (value := curve.at(step)) is not None]
    return sum(values) / len(values) if values else None
