"""What people are told while a study runs, and what they answer from there; nothing of it can stop the lab."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace

from nightlab.agents.context import Lab
from nightlab.errors import ConfigError, NightlabError
from nightlab.graph.answering import AnswerDesk, hearing
from nightlab.graph.decisions import best_kept
from nightlab.graph.questions import tell_question
from nightlab.knowledge.records import StudyRow
from nightlab.tools.notify import Notifier
from nightlab.tools.notify.channel import Memory, Pace
from nightlab.tools.notify.listener import Listening
from nightlab.tools.notify.messages import best_confirmed, study_ended

__all__ = ["open_notices", "tell_best", "tell_end"]

_log = logging.getLogger(__name__)
FLUSH_SECONDS = 15.0
"""Longest time that messages still on their way keep an ended lab."""


@contextmanager
def open_notices(
    lab: Lab, pace: Pace | None = None, flush_seconds: float = FLUSH_SECONDS, listen: Listening | None = None
) -> Iterator[bool]:
    """While the block lasts the lab tells its study's targets and hears the answers that come back by link or reply.

    Yields whether it hears any. What cannot be opened is told in the study's story, and the lab runs without it.
    """
    with _telling(lab, pace, flush_seconds), _hearing(lab, listen) as hears:
        if lab.study.notify.targets:
            _tell_open_questions(lab)
        yield hears


@contextmanager
def _telling(lab: Lab, pace: Pace | None, flush_seconds: float) -> Iterator[None]:
    """Without any target, nothing is loaded."""
    notifier = _opened(lab, pace) if lab.study.notify.targets else None
    if notifier is None:
        yield
        return
    before, shown = lab.ledger.study_row(), lab.on_change

    def keep_counts() -> None:
        counts = _counts(before, notifier)
        try:
            if counts != lab.ledger.study_row().notices:
                lab.ledger.update_study(notices=counts)
        except NightlabError as error:
            _log.warning("counting notifications failed: %s", error)

    def changed() -> None:
        keep_counts()
        shown()

    lab.notify, lab.on_change = notifier.send, changed
    try:
        yield
    finally:
        lab.on_change = shown
        notifier.close(flush_seconds)
        keep_counts()


@contextmanager
def _hearing(lab: Lab, listen: Listening | None) -> Iterator[bool]:
    if not lab.study.notify.hears:
        yield False
        return
    desk = AnswerDesk(lab.ledger, lab.git, lab.paths, lab.redactor, now=lab.now)

    def note(text: str) -> None:
        lab.ledger.add_event("notify", text)

    with hearing(desk, lab.study.notify, tell=lab.notify, note=note, pace=listen) as ways:
        before = lab.ways_to_answer
        lab.ways_to_answer = ways or before
        try:
            yield ways is not None
        finally:
            lab.ways_to_answer = before


def _opened(lab: Lab, pace: Pace | None) -> Notifier | None:
    notify = lab.study.notify
    memory = Memory(seen=lab.ledger.was_told, mark=lab.ledger.mark_told)
    try:
        return Notifier(notify.targets, lab.redactor, kinds=notify.kinds, memory=memory, pace=pace)
    except ConfigError as error:
        lab.ledger.add_event("notify", f"nobody is told: {'; '.join(str(error).splitlines())}")
        return None


def _counts(before: StudyRow, notifier: Notifier) -> dict[str, int]:
    return {name: before.notices.get(name, 0) + count for name, count in asdict(notifier.counts).items()}


def _tell_open_questions(lab: Lab) -> None:
    """A lab killed right after asking has told nobody."""
    for question in lab.ledger.questions(open_only=True):
        if question.kind != "disk-space":
            tell_question(lab, question)


def tell_best(lab: Lab) -> None:
    """The confirmed best; each experiment is told once, however often its effect is measured again."""
    if (best := best_kept(lab)) is None:
        return
    experiment, verdict = best
    assert verdict.effect is not None
    study = lab.study
    notice = best_confirmed(
        study.study,
        study.objective.metric,
        experiment.number,
        verdict.effect,
        branch=experiment.branch,
        report=lab.paths.final_report_html,
    )
    lab.notify(replace(notice, key=f"confirmed/{experiment.number}"))


def tell_end(lab: Lab) -> None:
    """The study's end, with what it found; a study that goes on with more budget ends again."""
    ends = sum(event.kind == "finished" for event in lab.ledger.events())
    best = best_kept(lab)
    found = f"Experiment {best[0].number:02d} ({best[0].variable}) is confirmed" if best else "No win was confirmed"
    tried = sum(experiment.number > 0 for experiment in lab.ledger.experiments())
    outcome = f"{found}; {tried} experiments were tried."
    report = lab.paths.final_report_html
    lab.notify(study_ended(lab.study.study, outcome, report=report, night=str(ends)))
