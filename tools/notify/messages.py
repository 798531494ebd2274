"""The messages: what happened, where, and what to do now, in a few plain lines."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from nightlab.knowledge.records import Effect, Question

__all__ = [
    "Notice",
    "NoticeKind",
    "Ways",
    "best_confirmed",
    "breaker_tripped",
    "disk_low",
    "merged",
    "question_asked",
    "reply_noted",
    "reply_refused",
    "study_ended",
]

_SHOWN_TITLES = 10


class NoticeKind(StrEnum):
    """What a person wants to hear of at night."""

    QUESTION = "question"
    CONFIRMED = "confirmed"
    ENDED = "ended"
    BREAKER = "breaker"
    DISK = "disk"


# How Apprise colours a message where the channel has colours.
_URGENCY = {
    NoticeKind.QUESTION: "warning",
    NoticeKind.CONFIRMED: "success",
    NoticeKind.ENDED: "info",
    NoticeKind.BREAKER: "failure",
    NoticeKind.DISK: "warning",
}


@dataclass(frozen=True)
class Notice:
    """One thing to tell; `key` is its identity: the same key is told once, also after a restart."""

    kind: NoticeKind
    study: str
    key: str
    title: str
    lines: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Lines below the others that go out whole and as they are: a link that is cut or redacted leads nowhere."""

    @property
    def heading(self) -> str:
        return " ".join(f"nightlab {self.study}: {self.title}".split())

    @property
    def body(self) -> str:
        """The lines, never empty: channels refuse a message without text."""
        return "\n".join(line for line in self.lines if line.strip()) or self.heading

    @property
    def urgency(self) -> str:
        return _URGENCY[self.kind]


def merged(notices: Sequence[Notice]) -> Notice:
    """One message for several notices of one kind and study; a single one stays as it is."""
    first, last = notices[0], notices[-1]
    if len(notices) == 1:
        return first
    titles = tuple(f"- {notice.title}" for notice in notices[:_SHOWN_TITLES])
    hidden = len(notices) - len(titles)
    lines = (*titles, f"- and {hidden} more" if hidden else "", "", *last.lines)
    links = tuple(link for notice in notices[-_SHOWN_TITLES:] for link in notice.links)
    title = f"{len(notices)} messages ({first.kind}), the last: {last.title}"
    return Notice(first.kind, first.study, last.key, title, lines, links)


@dataclass(frozen=True)
class Ways:
    """How a question is answered from where it is told, besides `nightlab answer`."""

    link: str | None = None
    """The question's own page."""
    by_reply: bool = False
    """Whether messages on the study's ntfy topic are heard."""


def question_asked(
    question: Question, *, report: Path, deadline: datetime | None = None, ways: Ways | None = None
) -> Notice:
    """A question, with the command for each answer, what happens without one, and the ways to answer from afar."""
    ways = ways or Ways()
    reply = f"Or as a message on the study's ntfy topic: {question.id} {'|'.join(question.options)}"
    without = f"Without an answer by {deadline:%Y-%m-%d %H:%M %Z}" if deadline else "The safe answer"
    return Notice(
        NoticeKind.QUESTION,
        question.study,
        f"question/{question.id}",
        f"question {question.id} ({question.kind})",
        (
            question.text,
            question.evidence,
            *(f"nightlab answer {question.id} {shlex.quote(option)}" for option in question.options),
            reply if ways.by_reply else "",
            f"{without}: {question.default}. What does not depend on it goes on.",
            f"Report so far: {report}",
        ),
        (f"Answer {question.id}: {ways.link}",) if ways.link else (),
    )


def reply_noted(study: str, reply: str, question: Question, option: str) -> Notice:
    """A reply that was taken, for who wrote it and everyone else who was asked."""
    title = f"question {question.id} is answered: {option}"
    return Notice(
        NoticeKind.QUESTION, study, f"reply/{reply}", title, (question.text, "By a reply to its notification.")
    )


def reply_refused(study: str, reply: str, why: str, allowed: Sequence[str]) -> Notice:
    """A reply that answers nothing; `reply` is the message's id, `allowed` what would be understood now."""
    return Notice(
        NoticeKind.QUESTION,
        study,
        f"reply/{reply}",
        f"a reply was not understood: {why}",
        (
            "What would be understood now:" if allowed else "No question is open now.",
            *(f"- {line}" for line in allowed),
        ),
    )


def best_confirmed(study: str, metric: str, number: int, effect: Effect, *, branch: str, report: Path) -> Notice:
    """A new best that held on fresh seeds."""
    interval = f" [{effect.low:+.4g}, {effect.high:+.4g}]" if effect.low is not None and effect.high is not None else ""
    return Notice(
        NoticeKind.CONFIRMED,
        study,
        f"confirmed/{number}/{effect.delta:.6g}",
        f"experiment {number:02d} is the new best",
        (
            f"{metric}: better than the baseline by {effect.delta:.4g}{interval} {effect.unit}".rstrip(),
            f"Confirmed on {effect.runs} fresh seeds.",
            f"Branch: {branch}",
            f"Report: {report}",
        ),
    )


def study_ended(study: str, outcome: str, *, report: Path, night: str) -> Notice:
    """The end of a study: `outcome` is the report's first sentence; `night` tells one run from the next."""
    return Notice(
        NoticeKind.ENDED,
        study,
        f"ended/{night}",
        "the study has ended",
        (outcome, f"Report: {report}", "`nightlab status`"),
    )


def breaker_tripped(study: str, cause: str, failures: int, *, log: Path, occasion: str) -> Notice:
    """So many equal failures that the lab stopped trying; `occasion` (its question's id) tells one from the next."""
    return Notice(
        NoticeKind.BREAKER,
        study,
        f"breaker/{cause}/{occasion}",
        f"stopped after {failures} equal failures: {cause}",
        (f"Log of the last one: {log}", "Look at the cause, then `nightlab inbox` to answer and go on."),
    )


def disk_low(study: str, folder: Path, free_bytes: int, needed_bytes: int, *, occasion: str) -> Notice:
    """Too little space to go on; `occasion` tells one shortage from the next."""
    return Notice(
        NoticeKind.DISK,
        study,
        f"disk/{occasion}",
        f"paused: {free_bytes / 1e9:.1f} GB free, {needed_bytes / 1e9:.1f} GB needed",
        (
            f"Folder: {folder}",
            "Make room, e.g. by `nightlab gc`: a running lab goes on by itself, a stopped one with `nightlab run`.",
        ),
    )
