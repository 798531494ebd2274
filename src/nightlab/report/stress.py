"""What the stress checks measured."""

from __future__ import annotations

from collections.abc import Iterable

from nightlab.knowledge.stress import ENDED, Stress, StressState
from nightlab.report.model import StressRow
from nightlab.search.stress import middle

__all__ = ["stress_rows"]


def stress_rows(stresses: Iterable[Stress]) -> tuple[StressRow, ...]:
    """One row for each check and experiment of which a repeat has ended, the baseline first."""
    groups: dict[tuple[str, int], list[Stress]] = {}
    for one in stresses:
        if one.state in ENDED:
            groups.setdefault((one.check, one.number), []).append(one)
    return tuple(_row(*key, groups[key]) for key in sorted(groups))


def _row(check: str, number: int, ended: list[Stress]) -> StressRow:
    names = sorted({name for one in ended for name in one.values})
    values = ((name, middle(ended, name)) for name in names)
    failed = [one for one in ended if one.state is not StressState.MEASURED]
    why = next((one.detail for one in failed if one.detail), "")
    told = tuple((name, value) for name, value in values if value is not None)
    return StressRow(number, check, len(ended), len(failed), told, why)
