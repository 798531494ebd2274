"""Eventful nights under faults: watchdog, breaker, questions and notices."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.torture.bootstrap import Fault
from tests.torture.invariants import Night
from tests.torture.matrix import Reference, Result, strike, undisturbed
from tests.torture.nights import Nursery
from tests.torture.people import listening, untold

__all__ = ["EVENTFUL_RUNS", "strike_events", "undisturbed_events"]

EVENTFUL_RUNS = 14
"""Enough for all that happens, and to confirm something."""


def undisturbed_events(nursery: Nursery, folder: Path) -> Reference:
    """Raises AssertionError when even this night does not come to its end, or tells something not exactly once."""
    with listening() as people:
        reference = undisturbed(nursery, folder, runs=EVENTFUL_RUNS, target=people.url())
        assert untold(reference.night, people.received, deaths=0) == []
    return reference


def strike_events(nursery: Nursery, folder: Path, faults: Sequence[Fault], calm: Night) -> Result:
    """One eventful night whose labs, and answers, die at `faults`, one after the other."""
    with listening() as people:
        result = strike(nursery, folder, faults, calm, runs=EVENTFUL_RUNS, target=people.url())
        if result.task is not None:
            result.breaches.extend(untold(Night.of(result.task), people.received, result.faults))
    return result
