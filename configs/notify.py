"""Whom the lab tells what, and how a question is answered from there."""

from __future__ import annotations

from typing import Literal, get_args
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Duration

__all__ = ["AnswerPage", "NoticeKind", "Notify"]

NoticeKind = Literal["question", "confirmed", "ended", "breaker", "disk"]

_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - recognised, not bound


class AnswerPage(Section):
    """A small web page of the lab's own: each question's notification carries a link on which it is answered."""

    listen: str | None = None
    """Address and port of the page, e.g. `127.0.0.1:8765`; without it there is no page and no link. Port 0 takes any
    free one, another at each start. Who can reach it still needs a question's own link."""
    public_url: str | None = None
    """How the page is reached from outside, where a tunnel or a reverse proxy leads to `listen`, e.g.
    `https://box.example/lab`. Left out, links name `listen` itself."""

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port to listen on; None without a page. Raises ValueError when `listen` names none."""
        if self.listen is None:
            return None
        parts = urlsplit(f"//{self.listen}")
        if not parts.hostname or parts.port is None or parts.netloc != self.listen or parts.username is not None:
            raise ValueError(self.listen)
        return parts.hostname, parts.port

    @model_validator(mode="after")
    def _reachable(self) -> AnswerPage:
        try:
            address = self.address
        except ValueError:
            refuse(Problem("is not an address with a port", ("listen",), "for example 127.0.0.1:8765", self.listen))
        if self.public_url is not None and not _is_web_address(self.public_url):
            mend = "for example https://box.example/lab, without ?, # and password"
            refuse(Problem("is not the address of a web page", ("public_url",), mend, self.public_url))
        if address is None and self.public_url is not None:
            refuse(Problem("leads nowhere: there is no listen", ("public_url",), "add listen: 127.0.0.1:8765"))
        if address is not None and address[0] in _EVERYWHERE and self.public_url is None:
            mend = "add public_url, e.g. http://this-machine:8765"
            refuse(Problem("says of no address by which the page is reached", ("listen",), mend, self.listen))
        return self


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_plain = not (parts.query or parts.fragment or parts.username) and parts.port != 0
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain and not any(map(str.isspace, text))


class Notify(Section):
    """Whom the lab tells what, and how a question is answered from there. Targets need the extra `nightlab[notify]`."""

    targets: list[str] = Field(default_factory=list)
    """Apprise addresses (Slack, Feishu/Lark, DingTalk, e-mail, webhook, …), or `env:NAME` for the variable that holds
    one, so that no secret stands in the file."""
    kinds: list[NoticeKind] = Field(default_factory=lambda: list(get_args(NoticeKind)))
    """What is told: a question was asked, a new best was confirmed, the study ended, the breaker tripped, the disk is
    nearly full."""
    answers: AnswerPage = AnswerPage()
    """A web page on which questions are answered by the links in their notifications."""
    replies: str | None = None
    """An ntfy topic (`ntfy://topic` at ntfy.sh, `ntfys://[user:password@ or tk_token@]host/topic`, `ntfy://` for plain
    http) or `env:NAME` for the variable that holds one. A message `<question> <option>` on it answers the question.
    Everyone who may write to the topic can answer: give each study a topic of its own with a name nobody guesses."""
    stay_seconds: Duration = Field(default=12 * 3600.0, alias="stay")
    """With `answers.listen` or `replies`: how long a lab that has nothing to do but wait for a person stays, so that an
    answer by link or reply reaches it and it goes on."""

    @property
    def hears(self) -> bool:
        """Whether a question can be answered from where it is told."""
        return self.answers.listen is not None or self.replies is not None
