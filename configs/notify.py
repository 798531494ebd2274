"""Whom the lab tells what."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from nightlab.configs.section import Section

__all__ = ["NoticeKind", "Notify"]

NoticeKind = Literal["question", "confirmed", "ended", "breaker", "disk"]


class Notify(Section):
    """Whom the lab tells what. Needs the extra `nightlab[notify]`."""

    targets: list[str] = Field(default_factory=list)
    """Apprise addresses (Slack, Feishu/Lark, DingTalk, e-mail, webhook, …), or `env:NAME` for the variable that holds
    one, so that no secret stands in the file."""
    kinds: list[NoticeKind] = Field(default_factory=lambda: list(get_args(NoticeKind)))
    """What is told: a question was asked, a new best was confirmed, the study ended, the breaker tripped, the disk is
    nearly full."""
