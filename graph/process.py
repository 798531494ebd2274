"""One lab a study: the lock that makes it so, and who holds it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
from filelock import FileLock, Timeout

from nightlab.configs.files import write_atomically
from nightlab.configs.paths import StudyPaths
from nightlab.errors import StudyBusyError
from nightlab.tools.backends.local_runner import boot_id, start_time

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
        write_atomically(paths.lab_process, json.dumps(_identity(os.getpid())))
        yield
    finally:
        paths.lab_process.unlink(missing_ok=True)
        lock.release()


def running_lab(paths: StudyPaths) -> psutil.Process | None:
    """The process that runs the study now; a recycled process id is told apart by its start time and the boot."""
    try:
        entry = json.loads(paths.lab_process.read_text())
        process = psutil.Process(entry["pid"])
    except (FileNotFoundError, ValueError, TypeError, KeyError, psutil.NoSuchProcess):
        return None
    return process if entry == _identity(process.pid) else None


def _identity(pid: int) -> dict[str, object]:
    # Not psutil's creation time: that moves with every correction of the system's clock.
    return {"pid": pid, "start_time": start_time(pid), "boot_id": boot_id()}
