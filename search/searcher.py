"""Ask and tell: the search as a library, for people who run their own jobs.

    searcher = Searcher({"lr": Factor(levels=[1e-4, 3e-4, 1e-3], scale="log")}, {"lr": 1e-4}, budget=20)
    while suggestions := searcher.ask():
        for one in suggestions:
            searcher.tell(one.number, train(**one.parameters, seed=one.seed), seed=one.seed)
    print(searcher.best().parameters)

It is the engine the supervisor plans with (`propose`), and imports neither LangGraph nor git.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from nightlab.configs.levels import same_value
from nightlab.configs.study import Budget, Factor, LauncherSettings, Objective, Scalar, SearchSettings, Study
from nightlab.errors import ConfigError
from nightlab.knowledge.records import Phase, Proposal, Verdict
from nightlab.search.attribution import FactorEffect, factor_effects
from nightlab.search.belief import judge_all
from nightlab.search.engine import propose
from nightlab.search.evidence import Evidence
from nightlab.search.history import History, RankedFactor, Trial
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice
from nightlab.search.low_runs import split, whole_runs
from nightlab.search.pruning import Curve, Pruning, look_of, schedule_of, should_prune, warmup_of
from nightlab.search.ranking import rank_factors
from nightlab.search.space import configuration_key

__all__ = ["Best", "Searcher", "Suggestion"]

CAUTION = 0.75
"""Deviations of the surrogate by which a configuration is taken to be worse than expected: of two that look alike the
one that is known better."""


@dataclass(frozen=True)
class Suggestion:
    """One run to make: tell its value by `number` and `seed`."""

    number: int
    """Of the configuration, 0 for the baseline; the same with every seed."""
    parameters: dict[str, Scalar]
    seed: int
    phase: Phase
    reason: str


@dataclass(frozen=True)
class Best:
    """The configuration to use, by all that was told."""

    number: int
    parameters: dict[str, Scalar]
    value: float
    """Mean of its runs, in the metric's own unit; of many tried ones the best looks better than it is."""
    runs: int


class Searcher:
    """A search over `space` from `baseline` within `budget` runs.

    `space`: parameter → factor; `baseline`: every parameter → its value, also of those no factor changes. `priors`:
    factor → P(better than the baseline's value) of each of its values in the factor's own order, 0 to 1, the
    baseline's own value counted at 0.5 where it is among them. `data`: factors that change the data, which come first
    where tuning gains no more. `slots`: runs that are made side by side. The same
    arguments and the same answers give the same suggestions. Raises ConfigError for a space that does not fit.
    """

    def __init__(
        self,
        space: Mapping[str, Factor],
        baseline: Mapping[str, Scalar],
        *,
        budget: int,
        direction: Literal["minimize", "maximize"] = "minimize",
        min_effect: float = 0.0,
        settings: SearchSettings | None = None,
        priors: Mapping[str, Sequence[float]] | None = None,
        forbidden: Sequence[Mapping[str, Scalar]] = (),
        data: Collection[str] = (),
        slots: int = 1,
        seed: int = 0,
    ) -> None:
        declared = {name for key, one in space.items() for name in (one.parameters_set if one.settings else [key])}
        if missing := sorted(declared - set(baseline)):
            raise ConfigError(
                f"baseline: no value for {', '.join(missing)} (give every parameter of the space its own)"
            )
        self._study = _study(space, baseline, budget, direction, min_effect, settings, slots)
        ranked = rank_factors(self._study, self._study.space, tiers={}, priors={})
        self._factors = tuple(_with_chances(self._study, factor, (priors or {}).get(factor.name)) for factor in ranked)
        self._forbidden = tuple(dict(one) for one in forbidden)
        if unknown := sorted(set(data) - {factor.name for factor in self._factors}):
            raise ConfigError(f"data: {', '.join(unknown)} is no factor of the space ({', '.join(space)})")
        self._data = frozenset(data)
        self._budget, self._seed = budget, seed
        self._trials: list[Trial] = []
        self._points: dict[int, list[tuple[float, float]]] = {}
        self.causes: dict[int, str] = {}
        """Configuration → why its last failed run failed."""
        self._numbers: dict[str, int] = {configuration_key(self._study.parameters): 0}

    @property
    def history(self) -> History:
        """All that was asked and told."""
        whole, low = split(self._study, self._trials)
        left = self._budget - len(whole) - whole_runs(self._study, len(low))
        return History(self._factors, whole, left, forbidden=self._forbidden, data=self._data, low=low)

    def ask(self, count: int | None = None) -> list[Suggestion]:
        """Up to `count` runs to make now, by default as many as slots are free; empty while only waiting can help."""
        flying = sum(trial.state == "pending" for trial in self._trials)
        wanted = max(0, self._study.backend.slots - flying) if count is None else count
        return [self._suggest(proposal) for proposal in propose(self._study, self.history, self._seed)[:wanted]]

    def _suggest(self, proposal: Proposal) -> Suggestion:
        number = self._numbers.setdefault(configuration_key(proposal.parameters), len(self._numbers))
        self._trials.append(
            Trial(number, proposal.parameters, proposal.changed, proposal.seed, proposal.phase, "pending")
        )
        return Suggestion(number, dict(proposal.parameters), proposal.seed, proposal.phase, proposal.reason)

    def tell(self, number: int, value: float, *, seed: int | None = None, step: float | None = None) -> None:
        """The result of a run or, with `step`, what it has come to on the way.

        `seed` may be left out while the configuration has one run out. A result that is not finite counts as a failure.
        Raises KeyError for a run that is not out.
        """
        index = self._out(number, seed)
        if step is not None:
            self._points.setdefault(index, []).append((step, value))
        elif math.isfinite(value):
            self._trials[index] = replace(self._trials[index], state="measured", value=value)
        else:
            self.fail(number, "not finite", seed=seed)

    def fail(self, number: int, cause: str, *, seed: int | None = None) -> None:
        """A run that failed for good, out of memory or diverged, as `cause` says: the search keeps away from there."""
        index = self._out(number, seed)
        self._trials[index] = replace(self._trials[index], state="failed", value=None)
        self.causes[number] = cause

    def should_prune(self, number: int, *, seed: int | None = None) -> str | None:
        """Why a run, by what was told with `step`, should be ended before its time; None: let it run on."""
        found = self._pruning(self._out(number, seed))
        return found.reason if found else None

    def prune(self, number: int, *, seed: int | None = None) -> None:
        """A run was ended before its time: it counts as what it would have come to."""
        index = self._out(number, seed)
        found = self._pruning(index)
        self._trials[index] = replace(self._trials[index], state="pruned", value=found.estimate if found else None)

    def _pruning(self, index: int) -> Pruning | None:
        trial = self._trials[index]
        first = next(one.seed for one in self._trials if one.number == trial.number)
        return should_prune(
            self._study.search.pruning,
            self._curve(index),
            [self._curve(other) for other in self._points if other != index],
            look=look_of(trial.number, trial.phase, first_seed=trial.seed == first),
            maximize=self._study.maximize,
            min_effect=self._study.objective.min_effect,
        )

    def _curve(self, index: int) -> Curve:
        trial = self._trials[index]
        points = tuple(sorted(self._points.get(index, ())))
        schedule = schedule_of(self._study, trial.parameters)
        warmup = warmup_of(self._study, trial.parameters)
        return Curve(trial.number, points, schedule, warmup, ended=trial.state == "measured")

    def _out(self, number: int, seed: int | None) -> int:
        out = [
            index
            for index, trial in enumerate(self._trials)
            if trial.number == number and trial.state == "pending" and seed in (None, trial.seed)
        ]
        if not out:
            raise KeyError(f"run {number}, seed {seed}: not asked for, or its result is known already")
        if len(out) > 1:
            raise KeyError(f"run {number}: out with several seeds, say which (seed=…)")
        return out[0]

    def best(self) -> Best:
        """The configuration to use: a confirmed one, else the one that is good even if the surrogate errs a little.

        Raises ValueError before any run was told of.
        """
        evidence = Evidence.of(self._study, self.history.trials)
        sign = -1.0 if self._study.maximize else 1.0
        sound = [cell for cell in evidence.cells if cell.sound]
        if not sound:
            raise ValueError("no run has a value yet: ask, run, tell")
        kept = {number for number, verdict in self.verdicts().items() if verdict.kind == "keep"}
        is_kept = any(cell.number in kept for cell in sound)
        sound = [cell for cell in sound if cell.number in kept or not is_kept]
        means = {cell.number: sign * sum(cell.values) / len(cell.values) for cell in sound}
        first = min(sound, key=lambda cell: means[cell.number])
        if is_kept or not self._factors:
            return Best(first.number, dict(first.parameters), sign * means[first.number], len(first.values))
        landscape = Landscape.of(Lattice.of(self._study, self._factors, self._forbidden), evidence)
        points = {seen.point: bound for bound, seen in zip(landscape.bounds(CAUTION), landscape.measured, strict=True)}
        chosen = min(sound, key=lambda cell: _bound(points, landscape.lattice.point_of(cell.parameters)))
        return Best(chosen.number, dict(chosen.parameters), sign * means[chosen.number], len(chosen.values))

    def verdicts(self) -> dict[int, Verdict]:
        """The verdict on every configuration, as a study's report gives it."""
        return judge_all(self._study, self.history)

    def effects(self) -> list[FactorEffect]:
        """What each factor and level does, with intervals, from all runs."""
        return factor_effects(self._study, self.history)

    def should_stop(self) -> bool:
        """Whether nothing is left to try or the budget is used up, and no run is out."""
        waiting = any(trial.state == "pending" for trial in self._trials)
        return not waiting and not propose(self._study, self.history, self._seed)


def _bound(bounds: Mapping[tuple[int, ...], float], point: tuple[int, ...] | None) -> float:
    return math.inf if point is None else bounds.get(point, math.inf)


def _study(
    space: Mapping[str, Factor],
    baseline: Mapping[str, Scalar],
    budget: int,
    direction: Literal["minimize", "maximize"],
    min_effect: float,
    settings: SearchSettings | None,
    slots: int,
) -> Study:
    """The part of a study that the search reads; who runs the jobs, and how, is the caller's."""
    study = Study(
        study="search",
        scenario="search",
        method="search",
        base_model="none",
        objective=Objective(metric="value", direction=direction, min_effect=min_effect),
        parameters=dict(baseline),
        space=dict(space),
        launcher=LauncherSettings(command="none"),
        budget=Budget(runs=budget),
        search=settings or SearchSettings(),
    )
    return study.model_copy(update={"backend": study.backend.model_copy(update={"slots": slots})})


def _with_chances(study: Study, factor: RankedFactor, prior: Sequence[float] | None) -> RankedFactor:
    """The factor with the chances of its levels, the likeliest first."""
    if prior is None:
        return factor
    given_as = study.space[factor.name]
    declared = given_as.values if given_as.settings is None else [*given_as.settings]
    if len(prior) != len(declared):
        raise ConfigError(f"priors: {factor.name} has {len(declared)} values, {len(prior)} chances are given")
    given = [
        next(chance for value, chance in zip(declared, prior, strict=True) if same_value(value, level))
        for level in factor.levels
    ]
    order = sorted(range(len(given)), key=lambda place: -given[place])
    chances = tuple(min(0.95, max(0.05, given[place])) for place in order)
    return replace(factor, levels=tuple(factor.levels[place] for place in order), chances=chances)
