"""A person who ends the search in the middle of confirmation, by the answer to a question of the lab's."""

from __future__ import annotations

from typing import Any

from nightlab.agents.context import Lab
from nightlab.configs.approvals import Approval
from nightlab.graph.mending import FAILURE, STOP
from nightlab.graph.questions import raise_question
from nightlab.knowledge.records import Phase, RunState
from tests.task import study_data

__all__ = ["LATE", "end_search"]

LATE: dict[str, Any] = {
    # Not enough for the first look at three pairs; where no further one can come, a win on the same three.
    "objective": study_data()["objective"] | {"min_effect": 0.1},
    "search": {"baseline_replicates": 2, "confirm_seeds": 3, "confirm_seeds_most": 6, "confirm_candidates": 1},
    "budget": {"runs": 20},
}
"""Of a study whose win is one only where the search ends after three pairs."""


def end_search(lab: Lab, *, confirmed: int, stop: bool = False) -> None:
    """Answer `stop` once so many runs of confirmation are audited; with `stop` the lab is asked to stop as well."""
    auto = Approval(policy="auto")

    def look() -> None:
        audited = [run for run in lab.ledger.runs(states=(RunState.REVIEWED,)) if run.phase is Phase.CONFIRM]
        if len(audited) < confirmed or lab.ledger.question("enough") is not None:
            return
        if stop:
            lab.stop_requested = lambda: True
        raise_question(lab, auto, FAILURE, "enough", "Go on?", options=[STOP], default=STOP)

    lab.on_change = look
