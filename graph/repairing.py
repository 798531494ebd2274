"""When failed code ideas are mended: beside the loop, one at a time; at the end of the study not any more."""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.agents.repair import Fix, amend, propose_fix, repairs_due
from nightlab.knowledge.records import Run

__all__ = ["repair_failed"]

TOO_LATE = Fix(refused="the study's time is over")


def repair_failed(lab: Lab) -> None:
    """Carry out a fix that has come, and have the next one asked for."""
    for run in repairs_due(lab):
        if lab.is_overdue:
            amend(lab, run, TOO_LATE)
        elif (fix := lab.fixes.pop(run.key, None)) is not None:
            if amend(lab, run, fix):
                # It may have mended the others as well.
                return
        else:
            lab.aside.start(lambda run=run: _propose(lab, run))  # type: ignore[misc]


def _propose(lab: Lab, run: Run) -> None:
    fix = propose_fix(lab, run)
    if not lab.aside.is_closing:
        lab.fixes[run.key] = fix
