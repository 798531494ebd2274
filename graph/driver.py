"""Driving the supervisor graph: first start, resume after a stop or a kill, answers to its questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langgraph.types import Command, Interrupt

from nightlab.agents.context import Lab
from nightlab.agents.recovery import write_study
from nightlab.errors import DiskError
from nightlab.graph.backups import Backups
from nightlab.graph.checkpoints import mend_checkpoints, open_checkpoints, prune
from nightlab.graph.disk import pause
from nightlab.graph.questions import settle_overdue
from nightlab.graph.state import GRAPH_VERSION, LabState
from nightlab.graph.supervisor import build_supervisor
from nightlab.knowledge.records import StudyStatus
from nightlab.tools.disk import keep_reserve, release_reserve

__all__ = ["run_lab"]

# A night of ten thousand experiments is some 100,000 supersteps; LangGraph's default limit is for conversations.
RECURSION_LIMIT = 10_000_000


def run_lab(lab: Lab) -> StudyStatus:
    """Run the study until it is finished, stopped by a person or waiting for an answer; returns which.

    Every start enters at `reconcile`: the ledger, not the checkpoint, says what is due, and LangGraph resumes a killed
    thread in the middle of the loop, where nobody would look at git and the backend first. The checkpoint holds the
    loop's phase and the open interrupt.

    Raises DiskError when the disk takes no more; the study then waits for room, and goes on when it is run again.
    """
    try:
        with DiskError.at(lab.paths.folder):
            write_study(lab.paths, lab.ledger.study_row())
            keep_reserve(lab.paths.reserve)
            if damage := mend_checkpoints(lab.paths.checkpoints, lab.study.study):
                lab.ledger.add_event("damaged", damage)
            status = _invoke(lab)
            # The ledger has the last word: nobody comes back to a study that is finished there.
            if status is StudyStatus.FINISHED:
                release_reserve(lab.paths.reserve)
            write_study(lab.paths, lab.ledger.study_row().model_copy(update={"status": status}))
            lab.ledger.update_study(status=status)
    except DiskError as error:
        pause(lab, error)
        raise
    lab.on_change()
    return status


def _invoke(lab: Lab) -> StudyStatus:
    thread = lab.study.study
    config: dict[str, Any] = {"configurable": {"thread_id": thread}, "recursion_limit": RECURSION_LIMIT}
    with open_checkpoints(lab.paths.checkpoints) as saver:
        graph = build_supervisor(saver)
        lab.prune_checkpoints = lambda: prune(saver, thread)
        backups = Backups(lab)
        lab.back_up = backups.take_due
        lab.ledger.update_study(status=StudyStatus.RUNNING)
        entry: LabState | Command[Any] = {"study": thread, "graph_version": GRAPH_VERSION}
        settle_overdue(lab)
        if answers := _answered(lab, graph.get_state(config).interrupts):  # type: ignore[arg-type]
            entry = Command(resume=answers)
        output = graph.invoke(entry, config, context=lab, durability="sync", version="v2")  # type: ignore[call-overload]
        prune(saver, thread)
        backups.take()
    return _status(lab, waiting=bool(output.interrupts))


def _answered(lab: Lab, pending: Sequence[Interrupt]) -> dict[str, dict[str, str | None]]:
    """Interrupt id → answer, for those that were answered in the ledger while no lab ran."""
    asked = {interrupt.id: lab.ledger.question(str(interrupt.value["id"])) for interrupt in pending}
    return {
        interrupt_id: {"answer": question.answer, "by": question.answered_by}
        for interrupt_id, question in asked.items()
        if question is not None and question.answer is not None
    }


def _status(lab: Lab, *, waiting: bool) -> StudyStatus:
    if waiting:
        return StudyStatus.WAITING
    return StudyStatus.STOPPED if lab.ledger.study_row().finished_at is None else StudyStatus.FINISHED
