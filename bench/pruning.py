"""What ending runs early saves, on published learning curves: `python -m bench.pruning --data FOLDER`.

Random search over the configurations of each task, one run after the other, under each rule for ending a run early. A
run costs the share of its steps that it took. Quality is the final loss of the best run that came to its end, 0 = the
best configuration of the pool, 1 = its median (or worse, or none yet). The rules see a loss at every second point of
the curve; each has its default settings, but the warm-up, which is the same for all that have one. nightlab is asked
twice: as where a study names no warm-up, and as where it names one of none, which these curves have.
"""

from __future__ import annotations

import argparse
import functools
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from bench.tables import Curves, TableError, load_curves
from nightlab.configs.pruning import PruningSettings
from nightlab.search.pruning import AFTER_WARMUP, UNKNOWN_WARMUP, Curve, Look, Warmup, should_prune

__all__ = ["METHODS", "Outcome", "main", "night"]

Floats = NDArray[np.float64]
Pool = Literal["all", "better half"]
BUDGETS = (5, 10, 20, 30, 50)
HIGHEST = max(BUDGETS)
ETA = 3
EVERY = 2
"""Points of the curve between two looks."""
EXPLANATION = """\
Random search, one run after the other. Quality of the best finished run after B full runs' worth of steps: 0 = best of
the pool, 1 = its median or worse; ± is the 95 % interval of the mean over seeds. The tables hold one run a
configuration, so nightlab knows no noise here; in a night that margin comes on top. It starts comparing at 12 % of the
steps; where it is told that these runs have no warm-up ("warm-up named"), at 4 %."""
RESULTS = Path(__file__).parent / "results"


class Rule(Protocol):
    """One night's way of ending runs early; it is told of every run in turn."""

    def start(self) -> None:
        """A new run begins."""

    def ends(self, step: int, losses: Floats) -> bool:
        """Whether the present run ends at `step`; `losses` up to there, nan where it diverged."""
        ...

    def finish(self, losses: Floats, *, pruned: bool) -> None:
        """The present run has ended with `losses`."""


class Never:
    """Every run goes to its end."""

    def start(self) -> None: ...

    def ends(self, step: int, losses: Floats) -> bool:  # noqa: ARG002
        return False

    def finish(self, losses: Floats, *, pruned: bool) -> None: ...


class ByOptuna:
    """One of Optuna's pruners, asked as its documentation says."""

    def __init__(self, make: Callable[[], object]) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Hyperband deals its brackets out by the name.
        self.study = optuna.create_study(study_name="bench", pruner=make())
        self.pruned = optuna.trial.TrialState.PRUNED

    def start(self) -> None:
        self.trial = self.study.ask()

    def ends(self, step: int, losses: Floats) -> bool:
        self.trial.report(float(losses[-1]), step)
        return bool(self.trial.should_prune())

    def finish(self, losses: Floats, *, pruned: bool) -> None:
        failed = not pruned and not math.isfinite(losses[-1])
        if pruned or failed:
            self.study.tell(self.trial, state=self.pruned)
        else:
            self.study.tell(self.trial, float(losses[-1]))


class IncumbentMargin:
    """Behind the best finished run's curve by more than a quarter of what it had gained, from a quarter on."""

    best: Floats | None = None

    def start(self) -> None: ...

    def ends(self, step: int, losses: Floats) -> bool:
        if self.best is None or 4 * step < len(self.best) - 1:
            return False
        return not losses[-1] - self.best[step] <= 0.25 * (self.best[0] - self.best[step])

    def finish(self, losses: Floats, *, pruned: bool) -> None:
        if not pruned and math.isfinite(losses[-1]) and (self.best is None or losses[-1] < self.best[-1]):
            self.best = losses


@dataclass
class ByNightlab:
    """`nightlab.search.pruning`, asked as the lab asks it. The tables hold one seed: the noise is not known."""

    settings: PruningSettings
    look: Look
    length: int
    slope: float = 0.0
    """Learning-curve extrapolation: how far the last half's fall is carried on."""
    warmup: Warmup | None = None
    peers: list[Curve] = field(default_factory=list)

    def start(self) -> None: ...

    def ends(self, step: int, losses: Floats) -> bool:
        waits = (UNKNOWN_WARMUP if self.warmup is None else AFTER_WARMUP) * self.length
        if math.isfinite(losses[-1]) and step < waits:
            # Spares the bench a call that always says no.
            return False
        run = self._curve(losses, ended=False)
        return should_prune(self.settings, run, self.peers, look=self.look) is not None

    def finish(self, losses: Floats, *, pruned: bool) -> None:
        self.peers.append(self._curve(losses, ended=not pruned))

    def _curve(self, losses: Floats, *, ended: bool) -> Curve:
        steps = np.arange(len(losses))
        values = losses + self.slope * (losses - losses[steps // 2])
        points = zip(steps[::EVERY].tolist(), values[::EVERY].tolist(), strict=True)
        return Curve(len(self.peers), tuple(points), warmup=self.warmup, ended=ended)


def _optuna(name: str, *given: object, **options: object) -> Rule:
    import optuna

    return ByOptuna(functools.partial(getattr(optuna.pruners, name), *given, **options))


def _nightlab(look: Look, length: int, slope: float = 0.0, warmup: Warmup | None = None) -> Rule:
    return ByNightlab(PruningSettings(), look, length, slope, warmup)


METHODS: dict[str, Callable[[int], Rule]] = {
    "full runs": lambda _: Never(),
    "Optuna median": lambda n: _optuna("MedianPruner", n_warmup_steps=round(0.12 * n)),
    "Optuna ASHA, from 4 %": lambda n: _optuna("SuccessiveHalvingPruner", max(1, round(0.04 * n)), ETA),
    "Optuna ASHA, from 12 %": lambda n: _optuna("SuccessiveHalvingPruner", max(1, round(0.12 * n)), ETA),
    "Optuna Hyperband": lambda n: _optuna("HyperbandPruner", max(1, round(0.04 * n)), n, ETA),
    "incumbent's curve + ¼": lambda _: IncumbentMargin(),
    "nightlab careful": lambda n: _nightlab("near", n),
    "nightlab (default)": lambda n: _nightlab("first", n),
    "nightlab (default), warm-up named": lambda n: _nightlab("first", n, warmup=Warmup()),
    "nightlab, extrapolated": lambda n: _nightlab("first", n, slope=0.5),
}
"""Name → rule for curves of so many steps."""


@dataclass(frozen=True)
class Outcome:
    """One simulated night."""

    quality: Floats
    """After 1, 2, … full runs' worth of steps; 0 is the pool's best, 1 its median or worse."""
    runs: int
    pruned: int
    wrong_top: int
    """Pruned runs that would have ended in the best 5 % of the pool."""
    wrong_win: int
    """Pruned runs that would have beaten the best run finished before."""


def night(
    losses: Floats, finals: Floats, order: Sequence[int], rule: Rule, scale: tuple[float, float, float]
) -> Outcome:
    """Runs the configurations in `order` until `HIGHEST` full runs' worth of steps are spent.

    `scale`: final losses of the pool's best, of its best 5 % and of its median.
    """
    best_of_pool, top, median = scale
    length = losses.shape[1] - 1
    spent, runs, best = 0, 0, math.inf
    kills: list[tuple[float, float]] = []
    quality = np.ones(HIGHEST)
    for index in order:
        rule.start()
        runs, curve, step, ended = runs + 1, losses[index], 0, False
        while step < length and not ended:
            step += 1
            ended = step < length and step % EVERY == 0 and rule.ends(step, curve[: step + 1])
        rule.finish(curve[: step + 1], pruned=ended)
        spent += step
        if ended:
            kills.append((float(finals[index]), best))
        elif finals[index] < best:
            best = float(finals[index])
            first = -(-spent // length)
            quality[max(first - 1, 0) :] = min(1.0, (best - best_of_pool) / (median - best_of_pool))
        if spent >= HIGHEST * length:
            break
    top_kills = sum(final <= top for final, _ in kills)
    return Outcome(quality, runs, len(kills), top_kills, sum(final < then for final, then in kills))


def _finals(losses: Floats) -> Floats:
    """(configurations,): the last loss, infinite where it diverged."""
    finals: Floats = np.where(np.isfinite(losses[:, -1]), losses[:, -1], np.inf)
    return finals


def _nights(curves: Curves, pool: Pool, method: str, seeds: int) -> list[Outcome]:
    finals = _finals(curves.losses)
    members = np.arange(len(finals))
    if pool == "better half":
        members = members[finals <= np.median(finals)]
    inside = finals[members]
    scale = (float(inside.min()), float(np.quantile(inside, 0.05)), float(np.median(inside)))
    length = curves.losses.shape[1] - 1
    found = []
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(members).tolist()
        found.append(night(curves.losses, finals, order, METHODS[method](length), scale))
    return found


@dataclass(frozen=True)
class Summary:
    """One method on one pool, over all tasks and seeds."""

    pool: Pool
    method: str
    quality: Floats
    """Mean after 1, 2, … full runs."""
    error: Floats
    """Standard error of it, over seeds."""
    runs: float
    pruned: float
    wrong_top: float
    """Share of the pruned."""
    wrong_win: float
    seconds: float


def _summary(tasks: list[Curves], pool: Pool, method: str, seeds: int) -> Summary:
    begun = time.perf_counter()
    per_task = [_nights(curves, pool, method, seeds) for curves in tasks]
    nights = [one for found in per_task for one in found]
    qualities = np.array([[one.quality for one in found] for found in per_task])
    error = np.sqrt((qualities.var(axis=1, ddof=1) / seeds).sum(axis=0)) / len(tasks)
    pruned = sum(one.pruned for one in nights)
    return Summary(
        pool,
        method,
        qualities.mean(axis=(0, 1)),
        error,
        sum(one.runs for one in nights) / len(nights),
        pruned / len(nights),
        sum(one.wrong_top for one in nights) / max(1, pruned),
        sum(one.wrong_win for one in nights) / max(1, pruned),
        time.perf_counter() - begun,
    )


def _compute_needed(summary: Summary, goal: float) -> float | None:
    """Full runs' worth of steps until the mean quality is `goal`; None where it is not reached."""
    reached = np.flatnonzero(summary.quality <= goal)
    return float(reached[0] + 1) if reached.size else None


def _table(summaries: list[Summary]) -> Iterator[str]:
    full = next(one for one in summaries if one.method == "full runs")
    heads = [f"B = {budget}" for budget in BUDGETS]
    yield f"| rule | {' | '.join(heads)} | compute for the quality of 20 / 30 / 50 full runs | runs started | pruned |"
    yield "|---|" + "---|" * (len(BUDGETS) + 3)
    for one in summaries:
        cells = [f"{one.quality[b - 1]:.3f} ± {1.96 * one.error[b - 1]:.3f}" for b in BUDGETS]
        needed = [_compute_needed(one, float(full.quality[b - 1])) for b in (20, 30, 50)]
        shares = [f"{n / b:.0%}" if n else "–" for n, b in zip(needed, (20, 30, 50), strict=True)]
        yield f"| {one.method} | {' | '.join(cells)} | {' / '.join(shares)} | {one.runs:.0f} | {one.pruned:.0f} |"


def _kills(summaries: list[Summary]) -> Iterator[str]:
    yield "| rule | would have ended in the best 5 % | would have beaten the best run so far |"
    yield "|---|---|---|"
    for one in summaries:
        if one.pruned:
            yield f"| {one.method} | {one.wrong_top:.2%} | {one.wrong_win:.2%} |"


def _page(summaries: list[Summary], tasks: list[Curves], seeds: int) -> str:
    by_pool = {pool: [one for one in summaries if one.pool == pool] for pool in ("all", "better half")}
    names = ", ".join(curves.name for curves in tasks)
    versions = f"Python {platform.python_version()}, numpy {version('numpy')}, Optuna {version('optuna')}"
    made = f"`python -m bench.pruning`, {datetime.now(UTC):%Y-%m-%d}, {versions}; {seeds} seeds a task. Tasks: {names}."
    return "\n".join(
        [
            "# What ending runs early saves",
            "",
            made,
            "",
            EXPLANATION,
            "",
            "## All configurations",
            "",
            *_table(by_pool["all"]),
            "",
            "Wrong kills, as a share of the pruned runs:",
            "",
            *_kills(by_pool["all"]),
            "",
            "![quality against compute](pruning.png)",
            "",
            "## Near the incumbent: the better half of the configurations only",
            "",
            *_table(by_pool["better half"]),
            "",
            "Wrong kills, as a share of the pruned runs:",
            "",
            *_kills(by_pool["better half"]),
            "",
        ]
    )


def _plot(summaries: list[Summary], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    optuna = ("Optuna median", "Optuna ASHA, from 4 %", "Optuna ASHA, from 12 %", "Optuna Hyperband")
    shown = ("full runs", *optuna, "nightlab careful")
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True)
    for axis, pool in zip(axes, ("all", "better half"), strict=True):
        for one in summaries:
            ours = one.method.startswith("nightlab (default)")
            if one.pool != pool or not (ours or one.method in shown):
                continue
            x = np.arange(1, HIGHEST + 1)
            (line,) = axis.plot(
                x, one.quality, label=one.method, linewidth=2.6 if ours else 1.4, zorder=3 if ours else 2
            )
            low, high = one.quality - 1.96 * one.error, one.quality + 1.96 * one.error
            axis.fill_between(x, low, high, alpha=0.12, color=line.get_color(), linewidth=0)
        axis.set_title("all configurations" if pool == "all" else "the better half only")
        axis.set_xlabel("compute, in full runs")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("0 = best of the pool, 1 = its median")
    axes[0].set_ylim(0, 1)
    axes[1].legend(frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with taskset_*.parquet files")
    parser.add_argument("--seeds", type=int, default=50, help="nights a task and rule")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for pruning.md and pruning.png")
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 2) // 2))
    options = parser.parse_args()
    if options.seeds < 2:
        parser.error("argument --seeds: at least 2, for an interval")
    try:
        tasks = load_curves(options.data)
    except TableError as error:
        parser.error(str(error))
    pools: tuple[Pool, ...] = ("all", "better half")
    summaries = []
    with ProcessPoolExecutor(options.processes) as executor:
        jobs = [executor.submit(_summary, tasks, pool, method, options.seeds) for pool in pools for method in METHODS]
        for job in jobs:
            one = job.result()
            summaries.append(one)
            cells = " ".join(f"{one.quality[b - 1]:.3f}" for b in BUDGETS)
            print(f"{one.pool:12s} {one.method:34s} {cells}  {one.seconds:.0f} s", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "pruning.md").write_text(_page(summaries, tasks, options.seeds), encoding="utf-8")
    _plot(summaries, options.out / "pruning.png")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
