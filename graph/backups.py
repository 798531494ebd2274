"""When the ledger is copied: after every change, but never for more than a small share of the lab's time."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from nightlab.agents.context import Lab
from nightlab.configs.paths import StudyPaths
from nightlab.errors import DiskError, LedgerError, StudyBusyError
from nightlab.graph.process import hold_study
from nightlab.knowledge.backup import back_up

__all__ = ["Backups", "copy_without_lab"]

_log = logging.getLogger(__name__)
SHARE = 0.01
"""Of the lab's time that copies may take; a ledger of 1,000 experiments is then copied every second or two."""


@dataclass
class Backups:
    """Keeps the latest two copies of a lab's ledger; none is made while the disk is short."""

    lab: Lab
    due_at: float = 0.0
    copied: tuple[tuple[int, int], ...] = ()
    """What the ledger's files looked like before the last copy."""

    def take_due(self) -> None:
        """Copy the ledger where it has changed, unless the last copy was made just now."""
        if time.monotonic() >= self.due_at and self._looks() != self.copied:
            self.take()

    def take(self) -> None:
        """Copy the ledger. A copy that cannot be made is logged, and does not stop the lab."""
        if not self.lab.has_room:
            return
        began, looks = time.monotonic(), self._looks()
        try:
            back_up(self.lab.paths.ledger, *self.lab.paths.backups)
            self.copied = looks
        except (DiskError, LedgerError, OSError) as error:
            _log.warning("the ledger was not copied: %s", error)
        ended = time.monotonic()
        self.due_at = ended + (ended - began) / SHARE

    def _looks(self) -> tuple[tuple[int, int], ...]:
        """Size and time of the ledger's files: both change with every write."""
        ledger = self.lab.paths.ledger
        files = [path for path in (ledger, ledger.with_name(f"{ledger.name}-wal")) if path.exists()]
        return tuple((file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def copy_without_lab(paths: StudyPaths) -> None:
    """Copy the ledger after a change that no lab sees, e.g. an answer; a running lab does it by itself."""
    try:
        with hold_study(paths):
            back_up(paths.ledger, *paths.backups)
    except (StudyBusyError, DiskError, LedgerError, OSError) as error:
        _log.debug("the ledger was not copied: %s", error)
