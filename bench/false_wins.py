"""What a night claims that is not there, and what it finds that is.

`python -m bench.false_wins` runs simulated nights (see `bench.noisy_nights`), prints two tables and writes them to
`bench/results/false_wins.md` with a plot beside it. Nothing is trained; with 200 nights a row it takes an hour or so on
one core. `--nights 20` gives a first idea.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from scipy.special import betaincinv

from bench.noisy_nights import NOISES, flat_task, gain_task, greedy_wins, reported_wins

__all__ = ["Share", "false_wins", "greedy_false_wins", "main", "power"]

RESULTS = Path(__file__).with_name("results")
BUDGETS = (10, 12, 14, 20, 30, 50)
GAINS = (1.0, 2.0, 3.0)
POWER_BUDGETS = (20, 30, 40, 50)
GOAL_FALSE, GOAL_FOUND = 0.05, 0.8


@dataclass(frozen=True)
class Share:
    """How many of some nights did something, with the Clopper-Pearson interval at 95 %."""

    count: int
    nights: int

    @property
    def share(self) -> float:
        return self.count / self.nights

    @property
    def low(self) -> float:
        return float(betaincinv(self.count, self.nights - self.count + 1, 0.025)) if self.count else 0.0

    @property
    def high(self) -> float:
        return float(betaincinv(self.count + 1, self.nights - self.count, 0.975)) if self.count < self.nights else 1.0

    def __str__(self) -> str:
        return f"{100 * self.share:.1f} % [{100 * self.low:.1f}, {100 * self.high:.1f}]"


def false_wins(noise: str, runs: int, nights: int) -> Share:
    """Nights of `runs` runs on the flat task that report a win."""
    return Share(sum(bool(reported_wins(flat_task(), NOISES[noise], runs, seed)) for seed in range(nights)), nights)


def greedy_false_wins(noise: str, runs: int, nights: int) -> Share:
    """The same for keep/discard: nights that end with anything but the baseline."""
    return Share(sum(bool(greedy_wins(flat_task(), NOISES[noise], runs, seed)) for seed in range(nights)), nights)


def power(gain: float, runs: int, nights: int) -> Share:
    """Nights that report a win with the one level in it that is better by `gain` deviations."""
    return Share(sum(_finds(gain, runs, seed) for seed in range(nights)), nights)


def _finds(gain: float, runs: int, seed: int) -> bool:
    task = gain_task(gain, seed)
    return any(task.is_in(changed) for changed in reported_wins(task, NOISES["normal"], runs, seed))


Table = dict[str, dict[int, Share]]


def _table(names: Sequence[str], budgets: Sequence[int], measure: Callable[[str, int], Share]) -> Table:
    found: Table = {}
    for name in names:
        for runs in budgets:
            found.setdefault(name, {})[runs] = share = measure(name, runs)
            print(f"{name}, {runs} runs: {share}", flush=True)
    return found


def _rows(table: Table) -> list[str]:
    budgets = list(next(iter(table.values())))
    head = ["| | " + " | ".join(f"{runs} runs" for runs in budgets) + " |", "|---" * (len(budgets) + 1) + "|"]
    body = [f"| {name} | " + " | ".join(str(share) for share in row.values()) + " |" for name, row in table.items()]
    return [*head, *body]


def page(false: Table, greedy: Table, found: Table, nights: int) -> str:
    """The results as a Markdown page."""
    where = f"{datetime.now(UTC):%Y-%m-%d}, commit {_commit()}, Python {platform.python_version()}"
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "scipy"))
    lines = [
        "# False wins, and gains found",
        "",
        f"{where}; {packages}.",
        f"{nights} simulated nights a cell: share of them with its 95 % Clopper-Pearson interval.",
        "`make bench-false-wins` measures again.",
        "",
        "![False wins by budget, and gains found](false_wins.svg)",
        "",
        "## Nights that report a win where nothing matters",
        "",
        "Six factors with thirteen levels, all of them without effect; any gain above 0 would count (`min_effect` 0).",
        "The goal is at most 5 %.",
        "",
        *_rows(false),
        "",
        "*shared by seed*: seven tenths of the variance is common to all configurations on the same seed. *uneven*:",
        "every configuration has a deviation of its own, from half to three times the baseline's. *drifting*:",
        "everything gets better by two deviations from the first run to the last.",
        "",
        "## The same for keep/discard",
        "",
        "A change of one variable is kept when one run of it is lower than the best so far.",
        "",
        *_rows(greedy),
        "",
        "## Nights that find the one level that matters",
        "",
        "One of the thirteen levels, another in each night, is better by so many deviations of the noise. Found means",
        "that a configuration with it is confirmed on fresh seeds. The goal is 80 % for two deviations at 40 runs.",
        "",
        *_rows(found),
    ]
    return "\n".join(lines) + "\n"


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def plot(false: Table, found: Table, path: Path) -> None:
    """Both tables as curves with intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, table, goal, title in (
        (left, false, GOAL_FALSE, "Nights with a false win"),
        (right, found, GOAL_FOUND, "Nights that find the gain"),
    ):
        for name, row in table.items():
            shares = list(row.values())
            bars = [[s.share - s.low for s in shares], [s.high - s.share for s in shares]]
            axes.errorbar(
                list(row), [s.share for s in shares], yerr=bars, marker="o", ms=3, capsize=2, lw=1, label=name
            )
        axes.axhline(goal, color="0.5", ls="--", lw=1)
        axes.set(title=title, xlabel="runs in the night", ylim=(0, None))
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:.0f} %")
        axes.legend(fontsize=7, frameon=False)
    figure.savefig(path)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description="False wins and power of simulated nights.")
    parser.add_argument("--nights", type=int, default=200, help="nights a cell (default 200)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--budgets", type=_numbers, default=BUDGETS, help="runs a night where nothing matters")
    parser.add_argument("--power-budgets", type=_numbers, default=POWER_BUDGETS, help="runs a night with a gain in it")
    parser.add_argument("--noises", type=lambda text: text.split(","), default=list(NOISES), help="comma-separated")
    options = parser.parse_args()
    nights: int = options.nights
    greedy = _table(options.noises, options.budgets, lambda noise, runs: greedy_false_wins(noise, runs, nights))
    false = _table(options.noises, options.budgets, lambda noise, runs: false_wins(noise, runs, nights))
    names = {f"gain of {gain:g}": gain for gain in GAINS}
    found = _table(list(names), options.power_budgets, lambda name, runs: power(names[name], runs, nights))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "false_wins.md").write_text(page(false, greedy, found, nights))
    plot(false, found, options.out / "false_wins.svg")


if __name__ == "__main__":
    main()
