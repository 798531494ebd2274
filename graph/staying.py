"""A lab that stays for a person: an answer by link or reply needs somebody who hears it."""

from __future__ import annotations

import time
from datetime import timedelta

from nightlab.agents.context import Lab
from nightlab.graph.driver import run_lab
from nightlab.graph.questions import news_of, settle_overdue
from nightlab.knowledge.records import StudyStatus

__all__ = ["run_and_stay"]

LOOK_SECONDS = 0.5


def run_and_stay(lab: Lab, *, hears: bool) -> StudyStatus:
    """`run_lab`; a lab that `hears` answers from afar stays for those to its open questions, and goes on with them.

    It stays `notify.stay` at most, at the end of the study too: its last questions are asked there. A person who asks
    the lab to stop ends the waiting, and so does the end of the budget's time where the study waits for an answer.
    """
    status = run_lab(lab)
    while hears and status is StudyStatus.WAITING and _heard(lab):
        status = run_lab(lab)
    if hears and status is StudyStatus.FINISHED:
        _heard(lab, everything=True)
    return status


def _heard(lab: Lab, *, everything: bool = False) -> bool:
    """Wait for something new, or until no question is open any more; False when that did not come in time."""
    asked = [question.id for question in lab.ledger.questions(open_only=True)]
    if not asked or lab.stop_requested():
        return False
    stay_seconds = lab.study.notify.stay_seconds
    give_up, until = time.monotonic() + stay_seconds, lab.now() + timedelta(seconds=stay_seconds)
    lab.write_reports()
    lab.ledger.add_event("staying", f"for answers ({', '.join(asked)}), until {until.astimezone():%a %H:%M} at most")
    lab.on_change()
    before = news_of(lab)
    while time.monotonic() < give_up and not lab.stop_requested():
        settle_overdue(lab)
        is_new = news_of(lab) != before or lab.is_overdue
        if not lab.ledger.questions(open_only=True) or (is_new and not everything):
            lab.on_change()
            return True
        time.sleep(LOOK_SECONDS)
    return False
