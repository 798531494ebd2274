"""Copies of the ledger, made while the study runs: what a recovery starts from."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from nightlab.configs.files import sync_folder
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge.sqlite import disk_error

__all__ = ["back_up", "story_of"]

BUSY_SECONDS = 5.0


def back_up(ledger: Path, newest: Path, before: Path) -> None:
    """Copy the ledger as it stands between two transactions to `newest`; the copy that was there becomes `before`.

    Killed at any moment it leaves at least the last whole copy. Raises DiskError when the disk takes no more,
    LedgerError where the ledger cannot be copied or the copy is not sound; both copies then stay as they were.
    """
    making = newest.parent / "new"
    with DiskError.at(newest.parent):
        # What a killed lab has left there, journals included.
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        try:
            copy = making / newest.name
            _copy(ledger, copy)
            with copy.open("rb") as file:
                os.fsync(file.fileno())
            if newest.exists():
                newest.replace(before)
            copy.replace(newest)
            sync_folder(newest.parent)
        finally:
            shutil.rmtree(making, ignore_errors=True)


def story_of(copy: Path) -> tuple[datetime, int] | None:
    """When the story told in a copy begins, and the id of its last event; None where it cannot be read."""
    if not copy.exists():
        return None
    try:
        # Nothing is made beside the copy, and nothing locked.
        with closing(sqlite3.connect(f"{copy.absolute().as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
            first, last = connection.execute("SELECT min(time), max(id) FROM events").fetchone()
        return datetime.fromisoformat(first).replace(tzinfo=UTC), int(last)
    except (sqlite3.Error, ValueError, TypeError):
        return None


def _copy(ledger: Path, copy: Path) -> None:
    try:
        with closing(_connect(ledger)) as source, closing(_connect(copy)) as target:
            # The finished copy is synced as a whole.
            target.execute("PRAGMA synchronous = OFF")
            source.backup(target)
            # One file, which nothing beside it completes.
            target.execute("PRAGMA journal_mode = DELETE")
            verdict = str(target.execute("PRAGMA integrity_check(1)").fetchone()[0])
    except sqlite3.Error as error:
        raise disk_error(copy, error) or LedgerError(f"{ledger}: cannot be copied: {error}") from error
    if verdict != "ok":
        raise LedgerError(f"{ledger}: its copy is not sound: {verdict.splitlines()[-1]}")


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS)
