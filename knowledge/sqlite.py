"""What an SQLite error says of the file and of the disk below it."""

from __future__ import annotations

from pathlib import Path

from nightlab.errors import DiskError

__all__ = ["disk_error"]

_NO_MORE = {
    "SQLITE_FULL": "the disk is full",
    "SQLITE_READONLY": "it is read-only",
    "SQLITE_IOERR_WRITE": "the disk takes no more",
    "SQLITE_IOERR_FSYNC": "the disk takes no more",
    "SQLITE_IOERR_DIR_FSYNC": "the disk takes no more",
    "SQLITE_IOERR_TRUNCATE": "the disk takes no more",
    "SQLITE_IOERR_SHMSIZE": "the disk is full",
}


def disk_error(path: Path, error: BaseException | None) -> DiskError | None:
    """The DiskError for `path` where `error`, of the sqlite3 driver, says that the disk takes no more; else None."""
    reason = _NO_MORE.get(str(getattr(error, "sqlite_errorname", "")))
    return DiskError.because(path, reason) if reason else None
