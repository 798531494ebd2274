"""How good the search is: nightlab and what a user would pick instead, on published tables.

`python -m bench.search --data DIR` runs every table of DIR × method × budget × seed × scenario, keeps each night in
`search-runs.jsonl` beside the results (a second call goes on where the first was ended), and writes `search.md`,
`search.json`, `search.svg` and `search.png`. bench/README.md tells what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import numpy as np

from bench.methods import METHODS, Method
from bench.night import Night
from bench.tables import Table, TableError, load_tables

__all__ = ["SCENARIOS", "Plan", "Task", "execute", "load_runs", "main", "play", "run_tasks", "tasks_of"]

SCENARIOS = {
    "default": "from what a user would start with",
    "mediocre": "from a random configuration between the table's 40 % and 60 % quantile, another one a seed",
}
NO_DATA = (
    "bench.search: give a folder with tables: make bench-search DATA=<folder> (or --data <folder>). It takes "
    "hpolib_*, hpobench_mlp_* and nb201_*.parquet and steplaw_*.csv; bench/README.md says where to get them."
)
SEEDS_A_CHUNK = 5
SHORT_TABLES_A_FAMILY = 2
DIGITS = 6
Named = TypeVar("Named", Table, Method)


@dataclass(frozen=True)
class Task:
    """One night: what a cached result is kept under."""

    table: str
    fingerprint: str
    method: str
    edition: str
    scenario: str
    budget: int
    seed: int


@dataclass(frozen=True)
class Plan:
    """What a call of the bench compares."""

    tables: tuple[Table, ...]
    methods: tuple[Method, ...]
    scenarios: tuple[str, ...]
    budgets: tuple[int, ...]
    seeds: int
    short: bool = False

    def budgets_of(self, method: Method) -> tuple[int, ...]:
        """The nights to play: one a budget where the method plans by it, else the longest, which holds the others."""
        return self.budgets if method.knows_budget else self.budgets[-1:]

    def seeds_of(self, method: Method) -> int:
        return max(2, self.seeds // 4) if self.short and method.slow else self.seeds


def tasks_of(plan: Plan) -> list[Task]:
    """Few seeds of everything before more seeds of anything, so that a bench ended early is a fair one."""
    return [
        Task(table.name, table.fingerprint, method.name, method.edition, scenario, budget, seed)
        for first in range(0, plan.seeds, SEEDS_A_CHUNK)
        for method in plan.methods
        for scenario in plan.scenarios
        if scenario in method.scenarios
        for budget in plan.budgets_of(method)
        for table in plan.tables
        for seed in range(first, min(first + SEEDS_A_CHUNK, plan.seeds_of(method)))
    ]


def play(task: Task, tables: Sequence[Table]) -> list[float]:
    """The true regret of the recommendation after each run of the night."""
    table = next(table for table in tables if table.fingerprint == task.fingerprint)
    seed = int(np.random.default_rng([task.seed, crc32(table.name.encode())]).integers(2**31))
    start = table.middling(np.random.default_rng(seed)) if task.scenario == "mediocre" else table.start
    night = Night(table, task.budget, seed, start)
    METHODS[task.method].play(night, seed, tables)
    return [round(regret, DIGITS) for regret in night.regrets()]


def load_runs(path: Path) -> dict[Task, list[float]]:
    """Every cached night; a line that was torn by a kill is passed over."""
    runs: dict[Task, list[float]] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            data = json.loads(line)
        except json.JSONDecodeError:
            continue
        regrets = data.pop("regrets")
        runs[Task(**data)] = regrets
    return runs


@cache
def _worker_tables(folder: str) -> list[Table]:
    return load_tables(Path(folder))


def _work(folder: str, tasks: Sequence[Task]) -> list[tuple[Task, list[float]]]:
    return [(task, play(task, _worker_tables(folder))) for task in tasks]


def run_tasks(folder: Path, tasks: Sequence[Task], cache_path: Path, jobs: int) -> None:
    """Plays what the cache does not hold yet, in processes, and appends each night as soon as it is over."""
    known = load_runs(cache_path)
    due = [task for task in tasks if task not in known]
    # A night runs on one thread: the processes share the machine.
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    chunks = list(_chunks(due))
    done = 0
    torn = cache_path.exists() and not cache_path.read_bytes().endswith(b"\n")
    with (
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
        cache_path.open("a", encoding="utf-8") as file,
    ):
        file.write("\n" if torn else "")
        for future in as_completed([pool.submit(_work, str(folder), chunk) for chunk in chunks]):
            for task, regrets in future.result():
                file.write(json.dumps(asdict(task) | {"regrets": regrets}) + "\n")
            file.flush()
            done += 1
            if done % 50 == 0 or done == len(chunks):
                print(f"{done} of {len(chunks)} chunks of nights", file=sys.stderr, flush=True)


def _chunks(tasks: Iterable[Task]) -> Iterator[list[Task]]:
    """Nights that differ only in their seed, a few together."""
    chunk: list[Task] = []
    for task in tasks:
        if chunk and (len(chunk) == SEEDS_A_CHUNK or _kind(chunk[0]) != _kind(task)):
            yield chunk
            chunk = []
        chunk.append(task)
    if chunk:
        yield chunk


def _kind(task: Task) -> tuple[str | int, ...]:
    return task.fingerprint, task.method, task.scenario, task.budget


def execute(plan: Plan, folder: Path, out: Path, jobs: int, *, report_only: bool = False) -> None:
    """Plays the plan's nights and writes its results."""
    from bench.search_plots import draw
    from bench.search_report import Results, write_report

    out.mkdir(parents=True, exist_ok=True)
    cache_path = out / "search-runs.jsonl"
    tasks = tasks_of(plan)
    if not report_only:
        run_tasks(folder, tasks, cache_path, jobs)
    runs = load_runs(cache_path)
    results = Results(plan, {task: runs[task] for task in tasks if task in runs})
    stem = "search-short" if plan.short else "search"
    write_report(results, out, stem)
    draw(results, out, stem)
    print(f"written: {out / stem}.md, .json, .svg, .png")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.search", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with tables")
    parser.add_argument("--budgets", type=_numbers, help="runs a night, the start's included [10,20,30,50]")
    parser.add_argument("--seeds", type=int, help="nights of each kind [50]")
    parser.add_argument("--methods", type=_names, help="comma-separated, by their beginnings [all]")
    parser.add_argument("--tables", type=_names, help="comma-separated, by their beginnings [all]")
    parser.add_argument("--scenarios", type=_names, help=f"of {', '.join(SCENARIOS)} [all]")
    parser.add_argument("--short", action="store_true", help="a few tables and seeds: minutes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes [one a core]")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results"))
    parser.add_argument("--report-only", action="store_true", help="write the results of the nights there are")
    given = parser.parse_args(arguments)
    if given.data is None:
        print(NO_DATA, file=sys.stderr)
        return 2
    try:
        plan = _plan(given, load_tables(given.data))
    except TableError as error:
        print(f"bench.search: {error}", file=sys.stderr)
        return 2
    execute(plan, given.data, given.out, given.jobs, report_only=given.report_only)
    return 0


def _plan(given: argparse.Namespace, tables: Sequence[Table]) -> Plan:
    chosen = _begin(tables, given.tables, "table")
    methods = _begin(list(METHODS.values()), given.methods, "method")
    unknown = set(given.scenarios or ()) - set(SCENARIOS)
    if unknown:
        raise TableError(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(SCENARIOS)}")
    for method in methods:
        if method.missing:
            raise TableError(f"{method.name} needs {method.missing}: pip install 'nightlab[bench]', or leave it out")
    if given.short:
        families = {table.family for table in chosen}
        chosen = [
            table
            for family in sorted(families)
            for table in [t for t in chosen if t.family == family][:SHORT_TABLES_A_FAMILY]
        ]
    return Plan(
        tables=tuple(chosen),
        methods=tuple(method for method in methods if given.methods or not (given.short and method.name == "SMAC")),
        scenarios=tuple(given.scenarios or (["default"] if given.short else SCENARIOS)),
        budgets=tuple(sorted(given.budgets or ([20] if given.short else [10, 20, 30, 50]))),
        seeds=given.seeds or (8 if given.short else 50),
        short=given.short,
    )


def _begin(items: Sequence[Named], beginnings: Sequence[str] | None, what: str) -> list[Named]:
    """The items whose name is one of the beginnings, or begins so where none is."""
    if beginnings is None:
        return list(items)
    found = []
    for beginning in beginnings:
        exact = [item for item in items if item.name == beginning]
        fitting = exact or [item for item in items if item.name.startswith(beginning)]
        if not fitting:
            raise TableError(f"no {what} {beginning!r}; there are {', '.join(item.name for item in items)}")
        found += [item for item in fitting if item not in found]
    return found


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str) -> list[int]:
    return [int(name) for name in _names(text)]


if __name__ == "__main__":
    sys.exit(main())
