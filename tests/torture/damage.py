"""Nights whose ledger is really damaged, recovered and gone on with: nothing is lost or doubled."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from nightlab.configs.paths import StudyPaths
from tests.torture.bootstrap import Fault
from tests.torture.events import EVENTFUL_RUNS
from tests.torture.invariants import Breach, Night, compare, examine, unchanged
from tests.torture.matrix import Result, ended_badly, to_the_end
from tests.torture.nights import Nursery, Task
from tests.torture.people import listening, untold

__all__ = ["DAMAGES", "MOMENTS", "Blow", "beaten"]

Blow = tuple[Fault, str]
"""Where the lab dies, and the name of what its ledger then suffers."""
MOMENTS = (
    Fault("breaker", "after", 1),
    Fault("answer", "after", 1),
    Fault("observation", "after", 1),
    Fault("verdict", "before", 1),
    Fault("result card", "after", 1),
    Fault("report files", "before", 1),
)
"""In the order in which an eventful night comes to them."""
PAGE_BYTES = 4096
SHARE = 0.05
"""Of the bytes that are changed at random."""
TOLD = frozenset({"recovered", "damaged"})


def _journal(ledger: Path) -> Path:
    return ledger.with_name(f"{ledger.name}-wal")


def _cut(paths: StudyPaths, _chance: random.Random) -> None:
    _journal(paths.ledger).unlink(missing_ok=True)
    os.truncate(paths.ledger, paths.ledger.stat().st_size * 2 // 3)


def _pages(paths: StudyPaths, chance: random.Random) -> None:
    _journal(paths.ledger).unlink(missing_ok=True)
    with paths.ledger.open("r+b") as file:
        for page in range(0, paths.ledger.stat().st_size // PAGE_BYTES, 3):
            file.seek(page * PAGE_BYTES)
            file.write(chance.randbytes(PAGE_BYTES))


def _bytes(paths: StudyPaths, chance: random.Random) -> None:
    for path in (paths.ledger, _journal(paths.ledger)):
        content = bytearray(path.read_bytes() if path.exists() else b"")
        for _ in range(int(len(content) * SHARE)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content)


def _empty(paths: StudyPaths, _chance: random.Random) -> None:
    _journal(paths.ledger).unlink(missing_ok=True)
    os.truncate(paths.ledger, 0)


def _journal_gone(paths: StudyPaths, _chance: random.Random) -> None:
    _journal(paths.ledger).unlink(missing_ok=True)


def _with_newest_copy(paths: StudyPaths, chance: random.Random) -> None:
    _pages(paths, chance)
    paths.backups[0].write_bytes(chance.randbytes(3 * PAGE_BYTES))


def _with_row(paths: StudyPaths, chance: random.Random) -> None:
    _empty(paths, chance)
    paths.card.unlink(missing_ok=True)


DAMAGES: dict[str, Callable[[StudyPaths, random.Random], None]] = {
    "cut short": _cut,
    "pages overwritten": _pages,
    "random bytes": _bytes,
    "emptied": _empty,
    "without its journal": _journal_gone,
    "pages overwritten, its newest copy too": _with_newest_copy,
    "emptied, the study's row lost": _with_row,
}


def beaten(nursery: Nursery, folder: Path, blows: Sequence[Blow], calm: Night, *, seed: int = 0) -> Result:
    """One eventful night, killed and its ledger damaged at each of `blows`, then recovered and gone on with."""
    chance = random.Random(seed)  # noqa: S311
    with listening() as people:
        task = Task(folder, runs=EVENTFUL_RUNS, gated=True, target=people.url())
        fired, breaches = 0, []
        for fault, damage in blows:
            status = nursery.proceed(task, fault)
            if status != -signal.SIGKILL:
                breaches.append(Breach("wrong", f"no lab died {fault}: status {status}"))
                break
            fired += 1
            DAMAGES[damage](task.paths, chance)
            if status := nursery.run(task, None, "recover", "--study", str(task.file)):
                breaches.append(ended_badly(task, status))
        if "It starts from the copy of" not in task.said():
            breaches.append(Breach("wrong", "no recovery started from a copy"))
        breaches += to_the_end(nursery, task) or _compared(nursery, task, calm)
        if not breaches:
            breaches += untold(Night.of(task), people.received, fired)
    name = "; ".join(f"{damage} {fault}" for fault, damage in blows)
    return Result(name, fired, breaches)


def _compared(nursery: Nursery, task: Task, calm: Night) -> list[Breach]:
    night = Night.of(task)
    breaches = examine(night) + compare(_without_traces(night), calm)
    if status := nursery.run(task):
        breaches.append(ended_badly(task, status))
    return breaches + unchanged(night, Night.of(task))


def _without_traces(night: Night) -> Night:
    """Without what a recovery leaves on purpose: the damaged files, and its own events."""
    events = Counter({event: times for event, times in night.events.items() if event[0] not in TOLD})
    return replace(night, events=events, files={name for name in night.files if ".damaged-" not in name})
