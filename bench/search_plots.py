"""Pictures of the search bench: regret over the runs of a night, mean over tables, and family by family."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bench.methods import NIGHTLAB

if TYPE_CHECKING:
    from bench.search_report import Results

__all__ = ["draw"]

COLOURS = {
    "random": "#b8b8b8",
    "keep/discard": "#8a6d4f",
    "screening + array": "#c9a227",
    "CMA-ES": "#9a86c4",
    "SMAC": "#6f9e6b",
    "Optuna TPE": "#4f8fc0",
    "Optuna GP": "#1f4e79",
    "nightlab": "#c2334d",
    "nightlab + catalog": "#e8743b",
    "nightlab + misleading catalog": "#d58aa0",
}
LOWEST_SHOWN = 3e-3
BAND_ERRORS = 1.96


def draw(results: Results, out: Path, stem: str) -> None:
    """Writes `<stem>.svg` and `<stem>.png`: one large panel a scenario, one small one a family."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    scenarios = [name for name in results.plan.scenarios if results.methods(name)]
    if not scenarios:
        return
    families = sorted({table.family for table in results.plan.tables})
    with plt.rc_context(
        {"font.size": 9, "svg.hashsalt": "nightlab", "axes.spines.top": False, "axes.spines.right": False}
    ):
        figure = plt.figure(figsize=(11, 8.2), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=[1.45, 1])
        above, below = halves
        for axes, scenario in zip(
            np.atleast_1d(above.subplots(1, len(scenarios), sharey=True)), scenarios, strict=True
        ):
            _panel(axes, results, scenario, [table.name for table in results.plan.tables], band=True)
            axes.set_title(f"{scenario} start, mean over {len(results.plan.tables)} tables", loc="left", weight="bold")
        for axes, family in zip(np.atleast_1d(below.subplots(1, len(families))), families, strict=True):
            names = [table.name for table in results.plan.tables if table.family == family]
            _panel(axes, results, scenarios[0], names, band=False)
            axes.set_title(f"{family} ({len(names)}), {scenarios[0]} start", loc="left", fontsize=8.5)
        above.supylabel("regret of the recommendation: 0 best, 1 start", fontsize=9)
        below.supxlabel("runs of the night", fontsize=9)
        _legend(figure, above)
        figure.savefig(out / f"{stem}.svg", metadata={"Date": None})
        figure.savefig(out / f"{stem}.png", dpi=130)
        plt.close(figure)


def _panel(axes: Any, results: Results, scenario: str, tables: Sequence[str], *, band: bool) -> None:
    lowest = 1.0
    for method in results.methods(scenario):
        curves = results.curves(scenario, method)
        mean, error = _mean_curve({name: curves[name] for name in tables})
        runs = np.arange(1, mean.size + 1)
        ours = method in NIGHTLAB
        width = 2.2 if method == "nightlab" else 1.8 if ours else 1.2
        colour = COLOURS.get(method, "#444444")
        axes.plot(
            runs,
            mean,
            color=colour,
            lw=width,
            label=method,
            ls="--" if "misleading" in method else "-",
            zorder=3 if ours else 2,
        )
        if band:
            low = np.maximum(mean - BAND_ERRORS * error, LOWEST_SHOWN / 10)
            axes.fill_between(runs, low, mean + BAND_ERRORS * error, color=colour, alpha=0.13, lw=0)
        lowest = min(lowest, float(mean.min()))
    axes.set_yscale("log")
    axes.set_xlim(1, results.plan.budgets[-1])
    axes.set_ylim(max(LOWEST_SHOWN, 10 ** (math.floor(10 * math.log10(max(lowest, 1e-9))) / 10)) * 0.9, 1.3)
    ticks = [tick for tick in (1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005) if tick >= axes.get_ylim()[0]]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(_no_ticks())
    axes.set_xticks([1, *results.plan.budgets])
    axes.grid(visible=True, color="#e6e6e6", lw=0.6)


def _no_ticks() -> Any:
    from matplotlib.ticker import NullLocator

    return NullLocator()


def _mean_curve(curves: Mapping[str, NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean over tables after each run, and the standard error that the seeds leave it."""
    means = np.mean([runs.mean(axis=0) for runs in curves.values()], axis=0)
    variances = [runs.var(axis=0, ddof=1) / len(runs) for runs in curves.values()]
    return means, np.sqrt(np.sum(variances, axis=0)) / len(curves)


def _legend(figure: Any, above: Any) -> None:
    lines = above.axes[0].get_lines()
    figure.legend(
        lines, [line.get_label() for line in lines], loc="outside lower center", ncols=5, frameon=False, fontsize=9
    )
