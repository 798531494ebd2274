"""The crash matrix: which faults there are, and one night under a list of them."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.torture.bootstrap import Fault
from tests.torture.boundaries import BOUNDARIES
from tests.torture.invariants import Breach, Night, compare, examine, unchanged
from tests.torture.nights import HUNG, Nursery, Task

__all__ = [
    "Reference",
    "Result",
    "ended_badly",
    "examine_against",
    "faults_of",
    "strike",
    "stutter",
    "to_the_end",
    "undisturbed",
]


MOST_DEATHS = 300
"""A night of labs that always die at the same place makes some progress with each, or it is broken."""


class Reference(NamedTuple):
    """An undisturbed night, and how often each boundary was passed in it."""

    night: Night
    counts: dict[str, int]


class Result(NamedTuple):
    """What came of one night, or of a few."""

    name: str
    faults: int
    """How many times its lab was really killed."""
    breaches: list[Breach]
    nights: int = 1
    task: Task | None = None
    """Of the night, where it was one."""


def undisturbed(nursery: Nursery, folder: Path, *, runs: int, target: str | None = None) -> Reference:
    """Raises AssertionError when even this night does not come to its end."""
    task = Task(folder, runs=runs, gated=True, target=target)
    counts = task.folder / "counts.json"
    status = nursery.proceed(task, counts=counts)
    assert status == 0, task.said()
    return Reference(Night.of(task), json.loads(counts.read_text()))


def faults_of(counts: dict[str, int], boundaries: Iterable[str] = BOUNDARIES) -> Iterator[tuple[Fault, ...]]:
    """Each boundary, before and after, at its first, middle and last pass.

    Where it dies in the middle, the lab that takes over dies at its own first pass, too.
    """
    for name in boundaries:
        last = counts[name]
        for when in ("before", "after"):
            for turn in sorted({1, (last + 1) // 2, last}):
                again = (Fault(name, when, 1),) if 1 < turn < last else ()
                yield (Fault(name, when, turn), *again)


def strike(
    nursery: Nursery, folder: Path, faults: Iterable[Fault], calm: Night, *, runs: int, target: str | None = None
) -> Result:
    """One night whose labs die at `faults`, one after the other; a fault that a lab does not meet lets it finish."""
    task = Task(folder, runs=runs, gated=True, target=target)
    faults = list(faults)
    fired, breaches = 0, []
    for fault in faults:
        status = nursery.proceed(task, fault)
        if status == -signal.SIGKILL:
            fired += 1
        elif status:
            breaches.append(ended_badly(task, status))
    breaches += to_the_end(nursery, task) or examine_against(nursery, task, calm)
    return Result(", then ".join(map(str, faults)), fired, breaches, task=task)


def stutter(nursery: Nursery, folder: Path, fault: Fault, calm: Night, *, runs: int) -> Result:
    """One night of which every lab dies at the same place, until one ends for want of work."""
    task = Task(folder, runs=runs, gated=True)
    fired, status = 0, -signal.SIGKILL
    while status == -signal.SIGKILL and fired < MOST_DEATHS:
        status = nursery.run(task, fault)
        fired += status == -signal.SIGKILL
    breaches = to_the_end(nursery, task) or examine_against(nursery, task, calm)
    if status:
        breaches.append(ended_badly(task, status))
    return Result(f"always {fault}", fired, breaches)


def to_the_end(nursery: Nursery, task: Task) -> list[Breach]:
    """One more lab, which nobody kills."""
    status = nursery.proceed(task)
    return [ended_badly(task, status)] if status else []


def ended_badly(task: Task, status: int) -> Breach:
    how = "did not end" if status == HUNG else f"ended with status {status}"
    return Breach("wrong", f"a lab {how}: {' | '.join(task.said().splitlines()[-3:])}")


def examine_against(nursery: Nursery, task: Task, calm: Night | None) -> list[Breach]:
    """All invariants of a night that is over, the last being that a further `run` does nothing."""
    night = Night.of(task)
    breaches = examine(night) + (compare(night, calm) if calm else [])
    status = nursery.run(task)
    if status:
        breaches.append(ended_badly(task, status))
    return breaches + unchanged(night, Night.of(task))
