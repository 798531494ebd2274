"""What the nights of the search bench add up to: means with intervals, comparisons table by table, a page."""

from __future__ import annotations

import json
import math
import os
import platform
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bench.methods import NIGHTLAB
from bench.tables import Table

if TYPE_CHECKING:
    from bench.search import Plan, Task

__all__ = ["Comparison", "Mean", "Results", "machine_line", "write_report"]

Floats = NDArray[np.float64]
RESAMPLES = 4000
CLEAR = 1.96
"""Standard errors of a difference on one table that make it a win or a loss; less is a tie."""
TARGETS = (0.05, 0.01)
VERSIONS = ("nightlab", "numpy", "scipy", "optuna", "cmaes", "torch", "smac", "scikit-learn")


@dataclass(frozen=True)
class Mean:
    """A mean over tables with its 95 % interval, which covers other seeds and other tables of these kinds."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


@dataclass(frozen=True)
class Comparison:
    """One method against another at one budget, over the tables."""

    ratio: Mean
    """Mean regret of the first over that of the second."""
    wins: int
    ties: int
    losses: int
    p_value: float
    """Wilcoxon's signed-rank test over the tables' means."""


@dataclass(frozen=True)
class Results:
    """The nights that were played of a plan."""

    plan: Plan
    runs: Mapping[Task, Sequence[float]]

    @cached_property
    def _nights(self) -> dict[tuple[str, str, int], dict[str, Floats]]:
        """(scenario, method, budget of the night) → table → (seeds, runs) regret of the recommendation."""
        rows: dict[tuple[str, str, int], dict[str, list[Sequence[float]]]] = defaultdict(lambda: defaultdict(list))
        for task, regrets in self.runs.items():
            rows[task.scenario, task.method, task.budget][task.table].append(regrets)
        return {key: {name: np.array(runs) for name, runs in tables.items()} for key, tables in rows.items()}

    def curves(self, scenario: str, method: str) -> dict[str, Floats]:
        """Table → (seeds, runs) of the longest nights; empty unless every table has at least two."""
        return self._complete(self._nights.get((scenario, method, self.plan.budgets[-1]), {}))

    def regrets(self, scenario: str, method: str, budget: int) -> dict[str, Floats]:
        """Table → (seeds,) regret after `budget` runs; empty unless every table has at least two."""
        own = self._nights.get((scenario, method, budget), {})
        nights = self._complete(own) or self._if_anytime(scenario, method)
        return {name: runs[:, budget - 1] for name, runs in nights.items()}

    def _if_anytime(self, scenario: str, method: str) -> dict[str, Floats]:
        anytime = any(m.name == method and not m.knows_budget for m in self.plan.methods)
        return self.curves(scenario, method) if anytime else {}

    def _complete(self, nights: Mapping[str, Floats]) -> dict[str, Floats]:
        names = [table.name for table in self.plan.tables]
        complete = all(len(nights.get(name, ())) > 1 for name in names)
        return {name: nights[name] for name in names} if complete else {}

    def methods(self, scenario: str) -> list[str]:
        """Those with nights on every table at every budget."""
        return [
            method.name
            for method in self.plan.methods
            if all(self.regrets(scenario, method.name, budget) for budget in self.plan.budgets)
        ]

    def mean(self, scenario: str, method: str, budget: int) -> Mean:
        regrets = self.regrets(scenario, method, budget)
        resampled = _resampled(regrets, _table_draws(len(regrets))).mean(axis=1)
        return _mean(float(np.mean([r.mean() for r in regrets.values()])), resampled)

    def compare(self, scenario: str, method: str, other: str, budget: int) -> Comparison:
        ours, theirs = self.regrets(scenario, method, budget), self.regrets(scenario, other, budget)
        draws = _table_draws(len(ours))
        ratios = _resampled(ours, draws, 1).mean(axis=1) / _resampled(theirs, draws, 2).mean(axis=1)
        value = _over_tables(ours) / _over_tables(theirs)
        count = Counter(_clear(ours[name], theirs[name]) for name in ours)
        differences = [float(ours[name].mean() - theirs[name].mean()) for name in ours]
        return Comparison(_mean(value, ratios), count[-1], count[0], count[1], _signed_rank(differences))

    def best_peer(self, scenario: str, budget: int) -> str | None:
        """The peer with the lowest mean over the tables at that budget."""
        peers = [name for name in self.methods(scenario) if name not in NIGHTLAB]
        return min(peers, key=lambda name: _over_tables(self.regrets(scenario, name, budget)), default=None)

    def best_peer_of_table(self, scenario: str, table: str, budget: int) -> str:
        """The peer with the lowest mean on one table: chosen after the fact, so a harder opponent than any one peer."""
        peers = [name for name in self.methods(scenario) if name not in NIGHTLAB]
        return min(peers, key=lambda name: float(self.regrets(scenario, name, budget)[table].mean()))

    def runs_to(self, scenario: str, method: str, target: float) -> tuple[float, float]:
        """Median number of runs until the recommendation's regret is at most `target`, and the share of nights with it.

        Every table weighs the same. The median is infinite where fewer than half of the nights get there.
        """
        firsts, weights = [], []
        for runs in self.curves(scenario, method).values():
            reached = runs <= target
            first = np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, math.inf)
            firsts.append(first)
            weights.append(np.full(len(first), 1 / len(first)))
        first, weight = np.concatenate(firsts), np.concatenate(weights)
        order = np.argsort(first, kind="stable")
        half = np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2 - 1e-9)
        return float(first[order][half]), float(weight[np.isfinite(first)].sum() / weight.sum())


def _over_tables(regrets: Mapping[str, Floats]) -> float:
    return float(np.mean([values.mean() for values in regrets.values()]))


def _table_draws(tables: int) -> NDArray[np.int_]:
    """(resamples, tables): which tables each resample holds."""
    return np.random.default_rng(0).integers(tables, size=(RESAMPLES, tables))


def _resampled(regrets: Mapping[str, Floats], draws: NDArray[np.int_], stream: int = 0) -> Floats:
    """(resamples, tables): means of the drawn tables, each with the normal error its seeds leave it."""
    means = np.array([values.mean() for values in regrets.values()])
    errors = np.array([_error(values) for values in regrets.values()])
    noise = np.random.default_rng([stream, 1]).normal(size=draws.shape)
    # A regret is never below 0, so neither is a mean of some.
    return np.maximum(means[draws] + errors[draws] * noise, 0.0)


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / math.sqrt(values.size))


def _mean(value: float, resampled: Floats) -> Mean:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Mean(value, float(low), float(high))


def _clear(ours: Floats, theirs: Floats) -> int:
    """−1 where ours is clearly lower on a table, 1 where it is clearly higher, else 0."""
    difference, error = float(ours.mean() - theirs.mean()), math.hypot(_error(ours), _error(theirs))
    return 0 if abs(difference) <= CLEAR * error else int(math.copysign(1, difference))


def _signed_rank(differences: Sequence[float]) -> float:
    from scipy.stats import wilcoxon

    if len(differences) < 2 or not any(differences):
        return 1.0
    return float(wilcoxon(differences).pvalue)


def write_report(results: Results, out: Path, stem: str) -> None:
    """Writes `<stem>.md` for people and `<stem>.json` for programs."""
    lines = ["# Search bench" + (", short form" if results.plan.short else ""), "", *_header(results), ""]
    for scenario in results.plan.scenarios:
        if results.methods(scenario):
            lines += _scenario(results, scenario, stem)
    lines += [*_notes(results), ""]
    (out / f"{stem}.md").write_text("\n".join(lines), encoding="utf-8")
    (out / f"{stem}.json").write_text(json.dumps(_data(results), indent=1) + "\n", encoding="utf-8")


def machine_line() -> str:
    """Date, interpreter, machine and the versions of what took part."""
    found = []
    for package in VERSIONS:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, Python {platform.python_version()}, {os.cpu_count()} cores, "
        f"{platform.system()} {platform.machine()}; {', '.join(found)}."
    )


def _header(results: Results) -> list[str]:
    plan = results.plan
    families = Counter(table.family for table in plan.tables)
    tables = ", ".join(f"{number} {family}" for family, number in sorted(families.items()))
    target = "bench-search-short" if plan.short else "bench-search"
    seeds = ", ".join(f"{name} {number}" for name, number in _fewer_seeds(results).items())
    what = (
        f"{len(plan.tables)} tables ({tables}), {plan.seeds} nights a table, method, start and budget"
        f"{f' ({seeds})' if seeds else ''}. Regret: (true mean of the recommended configuration − best of the table) / "
        "(start − best): 0 is the table's best, 1 the start, lower is better. Every run counts, the start's too. In "
        "brackets: 95 % interval over other seeds and other such tables."
    )
    return [f"{machine_line()} `make {target} DATA=…` measures again.", "", what]


def _fewer_seeds(results: Results) -> dict[str, int]:
    """Methods that have fewer nights than planned on some table."""
    found: dict[str, int] = {}
    for scenario in results.plan.scenarios:
        for name in results.methods(scenario):
            fewest = min(len(runs) for runs in results.curves(scenario, name).values())
            if fewest < results.plan.seeds:
                found[name] = min(fewest, found.get(name, fewest))
    return found


def _scenario(results: Results, scenario: str, stem: str) -> list[str]:
    from bench.search import SCENARIOS

    methods, budgets = results.methods(scenario), results.plan.budgets
    targets = [f"runs to {target:.0%} (share of nights)" for target in TARGETS]
    lines = [f"## {scenario.capitalize()} start: {SCENARIOS[scenario]}", ""]
    if scenario == results.plan.scenarios[0]:
        lines += [f"![regret over runs]({stem}.svg)", ""]
    lines += _table(["mean regret after", *map(str, budgets), *targets], _mean_rows(results, scenario, methods))
    if any(name in NIGHTLAB for name in methods) and results.best_peer(scenario, budgets[0]):
        lines += ["### Against the best peer of each budget", ""]
        head = ["method", "runs", "best peer", "its regret", "ratio", "tables better/tied/worse", "p"]
        lines += [*_table(head, _against_rows(results, scenario, methods)), *_worse(results, scenario, methods)]
    for budget in budgets:
        lines += [f"### Each table after {budget} runs", ""]
        lines += _table(["table", *methods], _table_rows(results, scenario, methods, budget))
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(head) - 1)]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *rows)] + [""]


def _mean_rows(results: Results, scenario: str, methods: Sequence[str]) -> list[list[str]]:
    lowest = {b: min(results.mean(scenario, name, b).value for name in methods) for b in results.plan.budgets}
    rows = []
    for name in methods:
        means = {budget: results.mean(scenario, name, budget) for budget in results.plan.budgets}
        cells = [f"**{mean}**" if mean.value == lowest[budget] else str(mean) for budget, mean in means.items()]
        reached = [_reached(*results.runs_to(scenario, name, target), results.plan.budgets[-1]) for target in TARGETS]
        rows.append([name, *cells, *reached])
    return rows


def _reached(median: float, share: float, most: int) -> str:
    return f"{f'{median:.0f}' if math.isfinite(median) else f'> {most}'} ({share:.0%})"


def _against_rows(results: Results, scenario: str, methods: Sequence[str]) -> list[list[str]]:
    rows = []
    for name in (name for name in methods if name in NIGHTLAB):
        for budget in results.plan.budgets:
            peer = results.best_peer(scenario, budget) or ""
            found = results.compare(scenario, name, peer, budget)
            regret = f"{results.mean(scenario, peer, budget).value:.3f}"
            ratio = f"{found.ratio.value:.2f} ({found.ratio.low:.2f}–{found.ratio.high:.2f})"
            score = f"{found.wins}/{found.ties}/{found.losses}"
            rows.append([name, str(budget), peer, regret, ratio, score, f"{found.p_value:.2g}"])
    return rows


def _worse(results: Results, scenario: str, methods: Sequence[str]) -> list[str]:
    """Where each nightlab is clearly worse than the peer that happens to be best on that very table."""
    lines = ["Clearly worse than the peer that is best *on that table* (picked after the fact):", ""]
    for name in (name for name in methods if name in NIGHTLAB):
        for budget in results.plan.budgets:
            ours, worse = results.regrets(scenario, name, budget), []
            for table in ours:
                peer = results.best_peer_of_table(scenario, table, budget)
                theirs = results.regrets(scenario, peer, budget)[table]
                if _clear(ours[table], theirs) > 0:
                    worse.append(f"{table} ({ours[table].mean():.3f}, {peer} {theirs.mean():.3f})")
            lines.append(f"* {name}, {budget} runs: {', '.join(worse) or 'nowhere'}")
    return [*lines, ""]


def _table_rows(results: Results, scenario: str, methods: Sequence[str], budget: int) -> list[list[str]]:
    regrets = {name: results.regrets(scenario, name, budget) for name in methods}
    rows = []
    for table in results.plan.tables:
        means = {name: float(regrets[name][table.name].mean()) for name in methods}
        lowest = min(means.values())
        cells = [f"{means[name]:.3f} ± {_error(regrets[name][table.name]):.3f}" for name in methods]
        rows.append(
            [table.name, *(f"**{c}**" if means[n] == lowest else c for n, c in zip(methods, cells, strict=True))]
        )
    families = sorted({table.family for table in results.plan.tables})
    return rows + [_family_row(results.plan.tables, family, regrets) for family in families]


def _family_row(tables: Sequence[Table], family: str, regrets: Mapping[str, Mapping[str, Floats]]) -> list[str]:
    names = [table.name for table in tables if table.family == family]
    means = [np.mean([own[name].mean() for name in names]) for own in regrets.values()]
    return [f"*mean of {family} ({len(names)})*", *(f"{mean:.3f}" for mean in means)]


def _notes(results: Results) -> list[str]:
    lines = ["## What this is made of", "", "Per table: the start, its distance from the best, the seeds' noise.", ""]
    head = ["table", "configurations", "start", "start − best", "sd of a run", "direction"]
    rows = []
    for table in results.plan.tables:
        start = ", ".join(f"{name} {value}" for name, value in table.parameters(table.start).items())
        gap = float(table.losses[table.start]) - table.optimum
        cells = str(int(np.isfinite(table.losses).sum()))
        rows.append([table.name, cells, start, f"{gap:.4g}", f"{table.seed_sd:.2g}", table.direction])
    lines += _table(head, rows)
    lines += [
        "After ± stands the standard error. Better, tied, worse: 1.96 standard errors of the difference on a table;"
    ]
    lines += ["p: Wilcoxon's signed-rank test over the tables. [How it is measured](../README.md)."]
    incomplete = [
        f"{method.name} ({scenario})"
        for scenario in results.plan.scenarios
        for method in results.plan.methods
        if scenario in method.scenarios and method.name not in results.methods(scenario)
    ]
    return (
        [*lines, "", f"Not played on every table yet, so left out: {', '.join(incomplete)}."] if incomplete else lines
    )


def _data(results: Results) -> dict[str, object]:
    plan = results.plan
    return {
        "about": machine_line(),
        "budgets": plan.budgets,
        "seeds": plan.seeds,
        "tables": {table.name: table.fingerprint for table in plan.tables},
        "scenarios": {
            scenario: {name: _method_data(results, scenario, name) for name in results.methods(scenario)}
            for scenario in plan.scenarios
        },
        "against_best_peer": {
            scenario: {
                name: {budget: _comparison_data(results, scenario, name, budget) for budget in plan.budgets}
                for name in results.methods(scenario)
                if name in NIGHTLAB
            }
            for scenario in plan.scenarios
        },
    }


def _comparison_data(results: Results, scenario: str, method: str, budget: int) -> dict[str, object]:
    peer = results.best_peer(scenario, budget)
    return {"peer": peer} | (asdict(results.compare(scenario, method, peer, budget)) if peer else {})


def _method_data(results: Results, scenario: str, method: str) -> dict[str, object]:
    return {
        "mean_regret": {b: vars(results.mean(scenario, method, b)) for b in results.plan.budgets},
        "tables": {
            b: {name: [float(r.mean()), _error(r), len(r)] for name, r in results.regrets(scenario, method, b).items()}
            for b in results.plan.budgets
        },
        "median_runs_to": {
            f"{target:g}": [None if math.isinf(n := found[0]) else n, found[1]]
            for target in TARGETS
            for found in [results.runs_to(scenario, method, target)]
        },
    }
