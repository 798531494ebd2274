"""What tells people away from the terminal: messages, and the channels that deliver them."""

from __future__ import annotations

from nightlab.tools.notify.messages import Notice, NoticeKind
from nightlab.tools.notify.notifier import Notifier
from nightlab.tools.notify.targets import check_targets, target_secrets

__all__ = ["Notice", "NoticeKind", "Notifier", "check_targets", "target_secrets"]
