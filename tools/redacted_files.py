"""Takes secrets out of files that others have written: the logs of ended jobs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from nightlab.configs.files import sync_folder
from nightlab.errors import DiskError
from nightlab.tools.redaction import Redactor

__all__ = ["redact_file"]

CHUNK_BYTES = 1 << 18


def redact_file(path: Path, redactor: Redactor) -> bool:
    """Replace the file by one without secrets, where it holds any; whether it did. An absent file holds none.

    It is read in pieces, whatever its size, and replaced as a whole: nobody may be writing it any more. Raises
    DiskError when the disk takes no more; the file is then as it was.
    """
    if not path.exists() or _same(_pieces(path), redactor.redact_bytes(_pieces(path))):
        return False
    with DiskError.at(path):
        temporary = path.with_name(f".{path.name}.tmp")
        try:
            with temporary.open("wb") as file:
                file.writelines(redactor.redact_bytes(_pieces(path)))
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(path.stat().st_mode)
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    return True


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(CHUNK_BYTES):
            yield piece


def _same(one: Iterator[bytes], other: Iterator[bytes]) -> bool:
    """Whether two files in pieces are equal, however they are cut."""
    left = right = b""
    while True:
        left, right = left or _next(one), right or _next(other)
        length = min(len(left), len(right))
        if not length:
            return left == right
        if left[:length] != right[:length]:
            return False
        left, right = left[length:], right[length:]


def _next(pieces: Iterator[bytes]) -> bytes:
    return next(filter(None, pieces), b"")
