"""Answers to questions, wherever they come from: the command line, a link, a reply. All are written the same way."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from nightlab.configs.notify import AnswerPage, Notify
from nightlab.configs.paths import StudyPaths
from nightlab.errors import ConfigError, GitError
from nightlab.graph.decisions import carry_out
from nightlab.graph.questions import settle
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Question, StudyStatus, utc_now
from nightlab.tools.notify.links import Links, study_key
from nightlab.tools.notify.listener import Listening, listening
from nightlab.tools.notify.messages import Notice, Ways, reply_noted, reply_refused
from nightlab.tools.notify.ntfy import Message, open_topic
from nightlab.tools.notify.page import Pages
from nightlab.tools.notify.reply import allowed, read_reply
from nightlab.tools.notify.server import Desk, serving
from nightlab.tools.redaction import Redactor
from nightlab.worktrees.git import Git

__all__ = ["AnswerDesk", "hearing", "record_answer"]

EXCERPT_BYTES = 6000
PORT_SECONDS = 3.0
"""How long a port in use is waited for."""
_LOGS = ("stderr.log", "stdout.log")


def record_answer(
    ledger: Ledger, git: Git, question_id: str, option: str, *, by: str, now: datetime | None = None
) -> tuple[Question, str | None]:
    """Write a person's answer, and carry out what no lab waits for; returns the question and what was done.

    Giving the same answer again changes nothing. Raises LedgerError for an unknown question, another option, or one
    that has another answer already, GitError where it cannot be carried out; it is noted then all the same.
    """
    settle(ledger, now or utc_now())
    with ledger.transaction():
        asked = ledger.question(question_id)
        answered = ledger.answer(question_id, option, by=by)
        if asked is not None and asked.answer is None:
            ledger.add_event("answered", f"{answered.id}: {answered.answer}, by {by}")
    return answered, carry_out(ledger, git, answered)


@dataclass(frozen=True)
class AnswerDesk:
    """Takes the answers that come from afar for one study, in whatever thread they come."""

    ledger: Ledger
    git: Git
    paths: StudyPaths
    redactor: Redactor
    go_on: str = "The lab goes on with it."
    """What follows from an answer, for who gave it."""
    now: Callable[[], datetime] = utc_now

    @property
    def study(self) -> str:
        return self.paths.study

    def give(self, question_id: str, option: str, by: str) -> str:
        """Record an answer by link; returns what follows from it. Raises LedgerError where it is refused."""
        try:
            _, done = record_answer(self.ledger, self.git, question_id, option, by=by, now=self.now())
        except GitError as error:
            return f"The answer is recorded, but could not be carried out: {error}"
        if done:
            return f"Now {done}."
        is_over = self.ledger.study_row().status is StudyStatus.FINISHED
        return "It is recorded; the study has ended." if is_over else self.go_on

    def excerpt(self, question: Question) -> str:
        """The beginning of the document, or the end of the log, that the evidence names inside the study folder."""
        evidence = Path(question.evidence)
        if not question.evidence or not evidence.is_absolute():
            return ""
        evidence = (evidence.with_suffix(".md") if evidence.suffix == ".html" else evidence).resolve()
        if not evidence.is_relative_to(self.paths.folder.resolve()):
            return ""
        try:
            if evidence.is_dir():
                return self._end_of_log(evidence)
            return self._text(evidence, start=0) if evidence.suffix == ".md" else ""
        except OSError:
            return ""

    def _end_of_log(self, folder: Path) -> str:
        logs = [log for name in _LOGS for log in folder.rglob(name) if log.stat().st_size]
        if not logs:
            return ""
        newest = max(logs, key=lambda log: (log.stat().st_mtime, log.name == _LOGS[0]))
        return self._text(newest, start=max(0, newest.stat().st_size - EXCERPT_BYTES))

    def _text(self, file: Path, start: int) -> str:
        with file.open("rb") as opened:
            opened.seek(start)
            piece = opened.read(EXCERPT_BYTES)
        # A secret may be cut at the edge that lies in the middle: what stands there is left out up to the next line.
        lines = piece.decode("utf-8", "replace").splitlines()
        lines = lines[1:] if start else lines[:-1] if len(piece) == EXCERPT_BYTES else lines
        return self.redactor.redact("\n".join(lines)).strip()

    def take(self, message: Message) -> Notice | None:
        """Record an answer by reply; returns the notice for who wrote it. Raises LedgerError in trouble."""
        settle(self.ledger, self.now())
        asked = self.ledger.questions()
        reply = read_reply(message.message, asked)
        if isinstance(reply, str):
            return self._refusal(message, reply)
        question, option = reply
        if question.answer == option:
            return None
        if question.answer is not None:
            return self._refusal(message, f"{question.id} was answered {question.answer} by {question.answered_by}")
        try:
            record_answer(self.ledger, self.git, question.id, option, by="reply", now=self.now())
        except GitError as error:
            return self._refusal(message, f"{question.id}: {option} is recorded, but not carried out: {error}")
        return reply_noted(self.study, message.id, question, option)

    def _refusal(self, message: Message, why: str) -> Notice:
        return reply_refused(self.study, message.id, why, allowed(self.ledger.questions(open_only=True)))


@contextmanager
def hearing(
    desk: AnswerDesk,
    settings: Notify,
    *,
    tell: Callable[[Notice], None],
    note: Callable[[str], None],
    pace: Listening | None = None,
) -> Iterator[Callable[[Question], Ways] | None]:
    """While the block lasts, answers by link and reply are taken; yields the ways for a question, None without any.

    What cannot be opened is told to `note` in a line, and the study goes on without it. `tell` gets the notices for
    who replied.
    """
    with ExitStack() as stack:
        links = _links(stack, desk, settings.answers, note)
        by_reply = _replies(stack, desk, settings.replies, tell, note, pace)

        def ways(question: Question) -> Ways:
            return Ways(links.url(question) if links else None, by_reply)

        yield ways if links or by_reply else None


def _links(stack: ExitStack, desk: AnswerDesk, page: AnswerPage, note: Callable[[str], None]) -> Links | None:
    address = page.address
    if address is None:
        return None
    calls = Desk(desk.ledger.question, desk.excerpt, desk.give, desk.now)
    try:
        key = study_key(desk.paths.answer_key)
        for attempt in _attempts():
            with attempt:
                server = stack.enter_context(serving(address, calls, Pages(desk.study, desk.redactor)))
    except OSError as error:
        mend = "another port in notify.answers.listen, or end what uses it"
        note(f"no answers by link: {page.listen}: {error.strerror or error} ({mend})")
        return None
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    server.links = Links(key, desk.study, page.public_url or f"http://{host}:{server.server_port}")
    note(f"answers by link: http://{host}:{server.server_port}")
    return server.links


def _attempts() -> Retrying:
    """`nightlab inbox --serve` gives its port up to a lab that starts, which takes a moment."""
    in_use = retry_if_exception(lambda error: isinstance(error, OSError) and error.errno == errno.EADDRINUSE)
    return Retrying(retry=in_use, stop=stop_after_delay(PORT_SECONDS), wait=wait_fixed(0.25), reraise=True)


def _replies(
    stack: ExitStack,
    desk: AnswerDesk,
    replies: str | None,
    tell: Callable[[Notice], None],
    note: Callable[[str], None],
    pace: Listening | None,
) -> bool:
    if replies is None:
        return False

    def take(message: Message) -> None:
        if notice := desk.take(message):
            tell(notice)

    try:
        topic = open_topic(replies)
    except ConfigError as error:
        note(f"no answers by reply: {error}")
        return False
    stack.enter_context(listening(topic, take, desk.paths.replies, desk.redactor, pace))
    return True
