"""One writer at a time among branches and worktrees, even when a killed lab left its git running."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

import tenacity
from filelock import FileLock, Timeout

from nightlab.configs.paths import StudyPaths
from nightlab.errors import DiskError, GitError

__all__ = ["git_lock"]

WAIT_SECONDS = 300.0


@contextmanager
def git_lock(paths: StudyPaths, wait_seconds: float = WAIT_SECONDS) -> Iterator[int]:
    """Hold the repository's git lock; yields a descriptor to hand to the git processes started under it.

    After kill -9 the file lock is free at once while git works on; git's own copy of the descriptor keeps the second
    lock until it has ended, so nobody clears a tree away under it. Raises GitError after `wait_seconds`.
    """
    with DiskError.at(paths.runtime):
        paths.runtime.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(paths.git_lock, timeout=wait_seconds):
            with DiskError.at(paths.git_children_lock):
                descriptor = os.open(paths.git_children_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                _wait_for_children(descriptor, wait_seconds)
                yield descriptor
                fcntl.flock(descriptor, fcntl.LOCK_UN)
            finally:
                os.close(descriptor)
    except Timeout as error:
        raise GitError(
            f"{paths.git_lock}: another process has been changing branches for {wait_seconds:g} s "
            "(wait for it, or end it and start again)"
        ) from error


def _wait_for_children(descriptor: int, wait_seconds: float) -> None:
    try:
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(BlockingIOError),
            wait=tenacity.wait_fixed(0.05),
            stop=tenacity.stop_after_delay(wait_seconds),
            reraise=True,
        ):
            with attempt:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise GitError(
            "a git process of an earlier run is still working on the worktrees (wait for it, or end it and start again)"
        ) from error
