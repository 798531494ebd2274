"""Takes secrets out of files that others have written: the logs of ended jobs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from nightlab.configs.files import sync_folder
from nightlab.errors import DiskError
from nightlab.tools.redaction import Redactor

__all__ = ["redact_file"]

CHUNK_BYTES = 1 << 16


def redact_file(path: Path, redactor: Redactor) -> bool:
    """Replace the file by one without secrets, where it holds any; whether it did. An absent file holds none.

    It is read in pieces, whatever its size, and replaced as a whole: nobody may be writing it any more. Raises
    DiskError when the disk takes no more; the file is then as it was.
    """
    if not path.exists() or _digest(_pieces(path)) == _digest(redactor.redact_bytes(_pieces(path))):
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


def _digest(pieces: Iterator[bytes]) -> bytes:
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.digest()
