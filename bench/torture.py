"""The crash tests in full: a night of its own for every fault, nights of random kills, power cuts and stops.

`python -m bench.torture` prints a table and writes it to `bench/results/torture.md`; exit status 1 when a rule was
broken. About 300 nights of a few seconds each, two at a time; `--only` picks groups, `--seed` other random moments.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from queue import SimpleQueue

from nightlab.errors import NightlabError
from tests.torture.bootstrap import Fault
from tests.torture.boundaries import BOUNDARIES, HAPPENINGS
from tests.torture.chaos import cuts_at_the_start, power_cuts, random_kills, random_stops, twins
from tests.torture.damage import DAMAGES, MOMENTS, beaten
from tests.torture.events import strike_events, undisturbed_events
from tests.torture.invariants import Breach
from tests.torture.matrix import Reference, Result, faults_of, strike, stutter, undisturbed
from tests.torture.nights import Nursery

RESULTS = Path(__file__).with_name("results") / "torture.md"
PACKAGES = ("nightlab", "langgraph", "langgraph-checkpoint-sqlite", "sqlalchemy", "gitpython", "filelock", "psutil")
KINDS = ("lost", "doubled", "left over", "wrong")
RUNS = 12
MOST_TOLD = 4
"""Breaches of one night that are told; one often causes many."""
KILLS = 50
SHARES = 5
"""Parts of the random kills that are made side by side."""
NIGHTS_OF_KIND = 6
START_NIGHTS = 3
NIGHT_SECONDS = 8.0
"""About how long an undisturbed night takes; random moments lie within."""
# Late enough that a lab comes to wait for its jobs: before that the jobs of these nights do not end.
STUTTERS = (Fault("ledger write", "after", 12), Fault("checkpoint", "before", 30), Fault("git command", "after", 20))

Work = Callable[[Nursery, Path], Result]


@dataclass
class Group:
    """One row of the table."""

    name: str
    faults: int = 0
    nights: int = 0
    breaches: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.nights += result.nights
        self.faults += result.faults
        self.breaches.update(breach.kind for breach in result.breaches)
        self.told += [f"{result.name}: {breach}" for breach in result.breaches[:MOST_TOLD]]


def works(calm: Reference, eventful: Reference, seed: int, kills: int) -> Iterator[tuple[str, Work]]:
    """Every night with the row it belongs to."""
    for faults in faults_of(calm.counts):
        yield "each boundary, before and after", _strike(faults, calm)
    for faults in faults_of(eventful.counts, HAPPENINGS):
        yield "questions, notices, watchdog, breaker", _strike_events(faults, eventful)
    for number, damage in enumerate(DAMAGES):
        for first in (0, 1):
            blows = [(fault, damage) for fault in MOMENTS[first::2]]
            yield "the ledger damaged and recovered", _beaten(blows, eventful, seed + number)
    for _ in range(START_NIGHTS):
        yield "power cuts around a command's start", cuts_at_the_start
    for fault in STUTTERS:
        yield "every lab dies at the same place", _stutter(fault, calm)
    for number in range(SHARES):
        yield "kills at random", _random(random_kills, seed + number, -(-kills // SHARES))
    for number in range(NIGHTS_OF_KIND):
        yield "power cuts", _random(power_cuts, seed + number, 2)
        yield "SIGTERM and SIGINT at random", _random(random_stops, seed + number, 6)
        yield "two labs at once", lambda _nursery, folder: twins(folder)


def _strike(faults: Sequence[Fault], calm: Reference) -> Work:
    return lambda nursery, folder: strike(nursery, folder, faults, calm.night, runs=RUNS)


def _strike_events(faults: Sequence[Fault], calm: Reference) -> Work:
    return lambda nursery, folder: strike_events(nursery, folder, faults, calm.night)


def _beaten(blows: Sequence[tuple[Fault, str]], calm: Reference, seed: int) -> Work:
    return lambda nursery, folder: beaten(nursery, folder, blows, calm.night, seed=seed)


def _stutter(fault: Fault, calm: Reference) -> Work:
    return lambda nursery, folder: stutter(nursery, folder, fault, calm.night, runs=RUNS)


def _random(kind: Callable[[Path, random.Random, int, float], Result], seed: int, faults: int) -> Work:
    chance = random.Random(seed)  # noqa: S311
    return lambda _nursery, folder: kind(folder, chance, faults, NIGHT_SECONDS)


def run_all(folder: Path, options: argparse.Namespace) -> list[Group]:
    """All nights, some at a time; whatever broke a rule is kept in `folder`."""
    groups: dict[str, Group] = {}
    with ExitStack() as stack:
        nurseries: SimpleQueue[Nursery] = SimpleQueue()
        for _ in range(options.processes):
            nurseries.put(stack.enter_context(Nursery()))
        first = nurseries.get()
        calm = undisturbed(first, folder / "calm", runs=RUNS)
        eventful = undisturbed_events(first, folder / "eventful")
        nurseries.put(first)

        def night(number: int, group: str, work: Work) -> None:
            nursery = nurseries.get()
            place = folder / f"{number:03d}"
            try:
                result = work(nursery, place)
            except (NightlabError, AssertionError, subprocess.CalledProcessError) as error:
                result = Result(group, 0, [Breach("wrong", f"cannot be examined: {error}")])
            finally:
                nurseries.put(nursery)
            groups.setdefault(group, Group(group)).add(result)
            told = "; ".join(map(str, result.breaches[:MOST_TOLD])) or "as it should"
            print(f"{number:3d}  {result.name}: {told}", flush=True)
            if not result.breaches:
                shutil.rmtree(place)

        chosen = [work for work in works(calm, eventful, options.seed, options.kills) if options.only in work[0]]
        with ThreadPoolExecutor(options.processes) as pool:
            for done in [pool.submit(night, number, *work) for number, work in enumerate(chosen)]:
                done.result()
    return list(groups.values())


def table(groups: Sequence[Group]) -> list[str]:
    lines = [f"| what | nights | faults injected | {' | '.join(KINDS)} |", "|---|--:|--:|--:|--:|--:|--:|"]
    for group in groups:
        counts = " | ".join(str(group.breaches[kind]) for kind in KINDS)
        lines.append(f"| {group.name} | {group.nights} | {group.faults} | {counts} |")
    sums = " | ".join(str(sum(group.breaches[kind] for group in groups)) for kind in KINDS)
    lines.append(f"| all | {sum(g.nights for g in groups)} | {sum(g.faults for g in groups)} | {sums} |")
    return lines


RULES = f"""\
{len(BOUNDARIES)} boundaries between two effects, and {len(HAPPENINGS)} that only an eventful night passes (a job that
hangs and is ended, equal failures, a soft limit, a question that a person answers and two whose deadline passes,
messages to a real service), each before and after, at the first, middle and last pass; a lab killed in the middle is
followed by one that is killed at its own first pass. Answers are given, and killed, as commands of their own.

A ledger is damaged where its lab was killed, three times a night: cut short, pages overwritten, random bytes, emptied,
without its journal, its newest copy or the study's row destroyed with it; `nightlab recover`, and the night goes on.

A night with one slot (all but random kills, power cuts, labs at once, stops) must equal an undisturbed one: its
experiments, runs, seeds, states, values, verdicts, lessons, commits, events, questions with their answers, files.
With two slots the order hangs on which job ends first; there each value must be the task's own for its configuration
and seed, each level of the space must have been tried, and the true best must be confirmed. Everywhere: each training
command ran once a run (a run lost with the machine has a second attempt, and both count; a command that may have
begun when the machine died did not begin again under the same attempt), what was to be told was told, and never after
it was recorded as told, result cards on all branches, no worktree, lock, process, temporary file or half branch left,
the user's checkout as it was, `git fsck` clean, and a further `run` changes nothing."""


def page(groups: Sequence[Group], seconds: float, seed: int) -> str:
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    measured = f"{datetime.now(UTC):%Y-%m-%d}, `make torture` (seed {seed}), {seconds / 60:.0f} minutes"
    system = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, git {git}"
    parts = [
        "# Crash tests",
        f"{measured}; {system}, {packages}.",
        "\n".join(table(groups)),
        RULES,
        "\n".join(f"* {line}" for group in groups for line in group.told),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=2, help="nights at a time")
    parser.add_argument("--kills", type=int, default=KILLS, help="how many kills at random moments")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the name of a row; then nothing is written")
    parser.add_argument("--keep", action="store_true", help="keep the repositories of nights that broke a rule")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="nightlab-torture-"))
    began = time.monotonic()
    groups = run_all(folder, options)
    print("\n" + "\n".join(table(groups)))
    if not options.only:
        RESULTS.write_text(page(groups, time.monotonic() - began, options.seed))
    if not options.keep:
        shutil.rmtree(folder)
    return 1 if any(group.breaches for group in groups) else 0


if __name__ == "__main__":
    sys.exit(main())
