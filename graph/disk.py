"""A disk that runs full: no new job while there is too little room, and a pause when the records have none either."""

from __future__ import annotations

import humanize

from nightlab.agents.context import Lab
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge.records import Question, StudyStatus
from nightlab.tools.disk import free_bytes, release_reserve, require_space
from nightlab.tools.notify.messages import disk_low

__all__ = ["KIND", "RECORD_BYTES", "pause", "watch_disk"]

KIND = "disk-space"
MADE = "made"
RECORD_BYTES = 16 * 1024 * 1024
"""What checkpoints, result cards and the report need; with less the study pauses before one is half written."""


def watch_disk(lab: Lab) -> None:
    """Once a turn: ask for room where there is too little for another job, and take the question back by oneself.

    Raises DiskError where not even the lab's own records have room.
    """
    require_space(lab.paths.folder, RECORD_BYTES)
    asked = _open_questions(lab)
    if lab.has_room:
        for question in asked:
            lab.ledger.answer(question.id, MADE, by="nightlab")
            lab.ledger.add_event("disk", "there is room on the disk again: the study goes on")
    elif not asked:
        wanted_bytes = lab.study.disk.min_free_bytes
        wanted, free = humanize.naturalsize(wanted_bytes), humanize.naturalsize(free_bytes(lab.paths.runtime))
        _ask(lab, f"{free} free on the disk of {lab.paths.runtime}; disk.min_free is {wanted}", wanted_bytes)


def pause(lab: Lab, error: DiskError) -> None:
    """Write down that the study waits for room, as far as there is room for that; jobs go on by themselves."""
    release_reserve(lab.paths.reserve)
    try:
        with lab.ledger.transaction():
            lab.ledger.update_study(status=StudyStatus.WAITING)
            if not _open_questions(lab):
                _ask(lab, str(error), RECORD_BYTES)
        lab.on_change()
    except (DiskError, LedgerError):
        # Whoever looks at the study sees that no lab runs it, and the command has said why.
        return


def _open_questions(lab: Lab) -> list[Question]:
    return [question for question in lab.ledger.questions(open_only=True) if question.kind == KIND]


def _ask(lab: Lab, what: str, needed_bytes: int) -> None:
    number = sum(question.kind == KIND for question in lab.ledger.questions()) + 1
    text = f"No new job: {what}. Make room; a running lab goes on by itself."
    question = Question(
        id=f"disk-{number}",
        study=lab.study.study,
        kind=KIND,
        text=text,
        options=[MADE],
        default=MADE,
        evidence=str(lab.paths.runtime),
        asked_at=lab.now(),
    )
    with lab.ledger.transaction():
        lab.ledger.ask(question)
        lab.ledger.add_event("question", text)
    left_bytes = free_bytes(lab.paths.runtime)
    lab.notify(disk_low(lab.study.study, lab.paths.runtime, left_bytes, needed_bytes, occasion=question.id))
