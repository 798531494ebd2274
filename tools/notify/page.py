"""The pages on which a question is answered; every word that came from outside is redacted and escaped."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from http import HTTPStatus
from typing import Any

import humanize
from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from nightlab.knowledge.records import Question
from nightlab.tools.redaction import Redactor

__all__ = ["Page", "Pages", "is_closed"]

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Page:
    """What a browser gets."""

    status: HTTPStatus
    html: str


def is_closed(question: Question, now: datetime) -> bool:
    """Whether an answer comes too late: there is one, or the deadline has passed."""
    return question.answer is not None or (question.deadline is not None and question.deadline <= now)


class Pages:
    """The pages of one study."""

    def __init__(self, study: str, redactor: Redactor) -> None:
        self._study, self._redactor = study, redactor

    def asking(self, question: Question, excerpt: str, now: datetime, *, fault: str = "") -> Page:
        """The open question with its options; `excerpt` is of what its evidence names, `fault` of a wrong answer."""
        left = question.deadline - now if question.deadline else None
        values = {
            "question": question,
            "excerpt": excerpt,
            "deadline": _moment(question.deadline),
            "left": humanize.naturaldelta(left) if left else "",
            "asked": _moment(question.asked_at),
            "fault": fault,
        }
        status = HTTPStatus.BAD_REQUEST if fault else HTTPStatus.OK
        return self._page(status, f"Question {question.id}", values)

    def closed(self, question: Question) -> Page:
        """An old link: it says how the question was settled, and no more."""
        if question.answer is None:
            text = f"Its deadline has passed: {question.default} holds, as for every question nobody answers."
        else:
            when = _moment(question.answered_at)
            text = f"It was answered already: {question.answer}, by {question.answered_by}, {when}."
        return self._note(HTTPStatus.GONE, f"Question {question.id} is closed", text)

    def noted(self, question: Question, option: str, then: str) -> Page:
        return self._note(HTTPStatus.OK, f"Noted: {option}", f"{question.text}\n{then}", good=True)

    def refused(self, why: str) -> Page:
        return self._note(HTTPStatus.CONFLICT, "That did not work", why)

    def unknown(self) -> Page:
        """The same for a question that never was and for a link that is not its own: nothing is told."""
        text = (
            "This link leads to no question. It may have been cut when it was copied, or the question was asked anew."
        )
        return _drawn(HTTPStatus.NOT_FOUND, {"study": "", "title": "No such question", "note": text})

    def _note(self, status: HTTPStatus, title: str, text: str, *, good: bool = False) -> Page:
        return self._page(status, title, {"note": text, "good": good})

    def _page(self, status: HTTPStatus, title: str, values: dict[str, Any]) -> Page:
        safe = {name: self._safe(value) for name, value in values.items()}
        return _drawn(status, {"study": self._study, "title": self._safe(title)} | safe)

    def _safe(self, value: Any) -> Any:
        if isinstance(value, Question):
            return value.model_copy(update={name: self._safe(getattr(value, name)) for name in ("text", "evidence")})
        return _shown(self._redactor.redact(value)) if isinstance(value, str) else value


def _shown(text: str) -> str:
    return _CONTROL.sub("", _ESCAPE_SEQUENCE.sub("", text.replace("\r", "\n")))


def _drawn(status: HTTPStatus, values: dict[str, Any]) -> Page:
    empty = {"question": None, "excerpt": "", "note": "", "fault": "", "good": False}
    return Page(status, _template().render(empty | values))


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("nightlab.tools.notify"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("answer.html.j2")


def _moment(moment: datetime | None) -> str:
    return f"{moment.astimezone():%a %d %b, %H:%M %Z}" if moment else ""
