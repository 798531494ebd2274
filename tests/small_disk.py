"""A really small disk, to be filled to the last byte."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A file system of its own; `folder` is its top."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ballast = folder / "ballast"

    def fill(self, leave_bytes: int = 0) -> None:
        """Take all room but `leave_bytes`."""
        with self.ballast.open("ab", buffering=0) as file:
            left = shutil.disk_usage(self.folder).free - leave_bytes
            while left > 0:
                try:
                    left -= file.write(b"\1" * min(left, 1 << 20))
                except OSError:
                    return

    def free(self) -> None:
        self.ballast.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """A file system of this size at `folder`; skips the test where mounting is not allowed."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command here")
    if mounted.returncode:
        pytest.skip(f"mounting is not allowed here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        # Lazily: a job that just ends may still stand in it.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
