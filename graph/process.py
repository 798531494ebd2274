"""One lab a study: the lock that makes it so, and who holds it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from filelock import FileLock, Timeout

from nightlab.configs.paths import StudyPaths
from nightlab.errors import StudyBusyError

__all__ = ["hold_study", "running_lab"]


@contextmanager
def hold_study(paths: StudyPaths) -> Iterator[None]:
    """Be the only lab of the study for as long as the block lasts.

    The lock is the kernel's, so a killed lab leaves none behind. Raises StudyBusyError when another lab holds it.
    """
    paths.folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(paths.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        process = running_lab(paths)
        pid = process.pid if process else None
        raise StudyBusyError(
            f"study {paths.study} is being run by process {pid or 'unknown'} already "
            "(follow it with `nightlab status --watch`, end it with `nightlab stop`)",
            pid=pid,
        ) from None
    try:
        me = psutil.Process(os.getpid())
        paths.lab_process.write_text(json.dumps({"pid": me.pid, "create_time": me.create_time()}))
        yield
    finally:
        paths.lab_process.unlink(missing_ok=True)
        lock.release()


def running_lab(paths: StudyPaths) -> psutil.Process | None:
    """The process that runs the study now; a recycled pid is told apart by its start time."""
    try:
        entry = json.loads(paths.lab_process.read_text())
        process = psutil.Process(entry["pid"])
        alive = process.create_time() == entry["create_time"] and process.status() != psutil.STATUS_ZOMBIE
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None
    return process if alive else None
