"""The crash matrix in its quick form: every boundary, before and after, in as few nights as possible.

`make torture` gives every fault a night of its own, at the first, the middle and the last pass.
"""

from __future__ import annotations

import signal
from pathlib import Path

from tests.torture.bootstrap import Fault
from tests.torture.boundaries import BOUNDARIES, HAPPENINGS
from tests.torture.events import EVENTFUL_RUNS
from tests.torture.invariants import Night, examine
from tests.torture.matrix import Reference, examine_against
from tests.torture.nights import Nursery, Task
from tests.torture.people import listening, untold

MOST_NIGHTS = 3


def test_an_undisturbed_night_passes_every_boundary_and_breaks_no_rule(calm: Reference) -> None:
    assert [name for name in BOUNDARIES | HAPPENINGS if not calm.counts.get(name)] == []
    assert examine(calm.night) == []


def test_killed_at_every_boundary_in_turn_the_night_ends_like_an_undisturbed_one(
    nursery: Nursery, calm: Reference, tmp_path: Path
) -> None:
    # In the order of their last passes: a lab that no longer meets its fault brings the night to its end.
    left = [Fault(name, when, 1) for name in calm.counts for when in ("before", "after")]
    for number in range(MOST_NIGHTS):
        with listening() as people:
            task = Task(tmp_path / str(number), runs=EVENTFUL_RUNS, gated=True, target=people.url())
            faults, left = left, _kill_in_turn(nursery, task, left)
            breaches = examine_against(nursery, task, calm.night)
            breaches += untold(Night.of(task), people.received, len(faults) - len(left))
        assert [str(breach) for breach in breaches] == []
        if not left:
            return
    assert left == []


def _kill_in_turn(nursery: Nursery, task: Task, faults: list[Fault]) -> list[Fault]:
    """Returns the faults that were not met."""
    for index, fault in enumerate(faults):
        status = nursery.proceed(task, fault)
        if status != -signal.SIGKILL:
            assert status == 0, f"{fault}\n{task.said()}"
            return faults[index:]
    assert nursery.proceed(task) == 0, task.said()
    return []
