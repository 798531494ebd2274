"""Room on the disk: how much there is, and a reserve for the last records of a lab whose disk is full."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import humanize

from nightlab.errors import DiskError

__all__ = ["free_bytes", "keep_reserve", "release_reserve", "require_space"]

RESERVE_BYTES = 4 * 1024 * 1024
"""What the ledger and the checkpoints need to say why the study pauses."""


def free_bytes(path: Path) -> int:
    """Bytes that this user may still write on the disk of `path`, which need not exist yet."""
    place = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(place).free


def require_space(path: Path, needed_bytes: int) -> None:
    """Raises DiskError where fewer than `needed_bytes` are free on the disk of `path`."""
    if free_bytes(path) < needed_bytes:
        raise DiskError.because(path, f"less than {humanize.naturalsize(needed_bytes)} left on the disk")


def keep_reserve(path: Path, size_bytes: int = RESERVE_BYTES) -> bool:
    """Occupy `size_bytes` at `path` unless they are already; False where the disk has no room for it."""
    if path.exists() and path.stat().st_blocks * 512 >= size_bytes:
        return True
    if free_bytes(path) < 2 * size_bytes:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        # Written, not only sized: a file of holes holds no room.
        with path.open("wb") as file:
            file.write(os.urandom(size_bytes))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        return False
    return True


def release_reserve(path: Path) -> None:
    """Give the room back: what must still be written may use it now."""
    path.unlink(missing_ok=True)
