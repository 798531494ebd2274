"""Writing a file so that a reader sees the old one or the new one, never half of it; setting a damaged one aside."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from nightlab.errors import DiskError

__all__ = ["set_aside", "sync_folder", "write_atomically"]


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text` (UTF-8, line ends as given), on disk before the name changes; makes the folder.

    Raises DiskError when the disk takes no more; `path` is then as it was, and nothing is left beside it.
    """
    with DiskError.at(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # One name a file: what a killed writer left is written over by the next, and gone.
        temporary = path.with_name(f".{path.name}.tmp")
        with _claimed(temporary) as file:
            try:
                file.truncate()
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(path)
            except OSError:
                temporary.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


@contextmanager
def _claimed(path: Path) -> Iterator[TextIO]:
    """The file, made where there is none, for this writer alone."""
    while True:
        with path.open("a", encoding="utf-8", newline="") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            # Whoever held it may have given it another name meanwhile.
            if path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno())):
                yield file
                return


def sync_folder(folder: Path) -> None:
    """Have the folder's names on disk: a renamed file survives a power cut only then."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def set_aside(path: Path, sides: Iterable[str] = ("-wal", "-shm")) -> Path:
    """Keep a damaged file and those beside it as `<name>.damaged-<UTC time>`; returns the copy's path."""
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    names = (f"{path.name}.damaged-{stamp}{mark}" for mark in ("", *(f"-{n}" for n in range(2, 1000))))
    kept = next(path.with_name(name) for name in names if not path.with_name(name).exists())
    # The sides go first: killed on the way, the file must not stand without what completes it and look whole.
    for side in sides:
        beside = path.with_name(path.name + side)
        if beside.exists():
            beside.replace(kept.with_name(kept.name + side))
    path.replace(kept)
    return kept
