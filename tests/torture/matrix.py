"""The crash matrix: which faults there are, and one night under a list of them."""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.torture.bootstrap import Fault
from tests.torture.boundaries import BOUNDARIES
from tests.torture.invariants import Breach, Night, compare, examine, unchanged
from tests.torture.nights import HUNG, Nursery, Task

__all__ = ["Reference", "Result", "faults_of", "strike", "undisturbed"]


class Reference(NamedTuple):
    """An undisturbed night, and how often each boundary was passed in it."""

    night: Night
    counts: dict[str, int]


class Result(NamedTuple):
    """What came of one night."""

    name: str
    faults: int
    """How many times its lab was really killed."""
    breaches: list[Breach]


def undisturbed(nursery: Nursery, folder: Path) -> Reference:
    """Raises AssertionError when even this night does not come to its end."""
    task = Task(folder, gated=True)
    counts = task.folder / "counts.json"
    status = nursery.run(task, counts=counts)
    assert status == 0, task.said()
    return Reference(Night.of(task), json.loads(counts.read_text()))


def faults_of(counts: dict[str, int]) -> Iterator[tuple[Fault, ...]]:
    """Each boundary, before and after, at its first, middle and last pass.

    Where it dies in the middle, the lab that takes over dies at its own first pass, too.
    """
    for name in BOUNDARIES:
        last = counts[name]
        for when in ("before", "after"):
            for turn in sorted({1, (last + 1) // 2, last}):
                again = (Fault(name, when, 1),) if 1 < turn < last else ()
                yield (Fault(name, when, turn), *again)


def strike(nursery: Nursery, folder: Path, faults: Iterable[Fault], calm: Night) -> Result:
    """One night whose labs die at `faults`, one after the other; a fault that a lab does not meet lets it finish."""
    task = Task(folder, gated=True)
    faults = list(faults)
    fired, breaches = 0, []
    for fault in faults:
        status = nursery.run(task, fault)
        if status == -signal.SIGKILL:
            fired += 1
        elif status:
            breaches.append(_ended_badly(task, status))
    breaches += to_the_end(nursery, task) or examine_against(nursery, task, calm)
    return Result(", then ".join(map(str, faults)), fired, breaches)


def to_the_end(nursery: Nursery, task: Task) -> list[Breach]:
    """One more lab, which nobody kills."""
    status = nursery.run(task)
    return [_ended_badly(task, status)] if status else []


def _ended_badly(task: Task, status: int) -> Breach:
    how = "did not end" if status == HUNG else f"ended with status {status}"
    return Breach("wrong", f"a lab {how}: {' | '.join(task.said().splitlines()[-3:])}")


def examine_against(nursery: Nursery, task: Task, calm: Night | None) -> list[Breach]:
    """All invariants of a night that is over, the last being that a further `run` does nothing."""
    night = Night.of(task)
    breaches = examine(night) + (compare(night, calm) if calm else [])
    status = nursery.run(task)
    if status:
        breaches.append(_ended_badly(task, status))
    return breaches + unchanged(night, Night.of(task))


def chance(seed: int) -> random.Random:
    """Reproducible chance; nothing secret hangs on it."""
    return random.Random(seed)  # noqa: S311
