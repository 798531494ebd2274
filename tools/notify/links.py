"""The links by which questions are answered: signed with a key of the study's own, one for each question."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from pathlib import Path
from urllib.parse import quote

from nightlab.configs.files import sync_folder
from nightlab.knowledge.records import Question

__all__ = ["Links", "study_key"]

_KEY = re.compile(rb"[0-9a-f]{64}")
_OTHERS = 0o077
_TOKEN_CHARACTERS = 40
"""160 bits: short enough for a chat, too long to be guessed."""


def study_key(path: Path) -> bytes:
    """The key in `path`, made when there is none; for its owner alone. Raises OSError.

    One that others could read, or that is damaged, is replaced: links given before lead nowhere then.
    """
    try:
        held = path.read_bytes() if not path.stat().st_mode & _OTHERS else b""
    except FileNotFoundError:
        held = b""
    return held if _KEY.fullmatch(held) else _new_key(path)


def _new_key(path: Path) -> bytes:
    key = secrets.token_hex(32).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    # Private from its first moment on, whatever the umask.
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)
    return key


class Links:
    """The links of one study below `address`, the page's own: `<address>/q/<question>/<token>`."""

    def __init__(self, key: bytes, study: str, address: str) -> None:
        self._key, self._study, self._address = key, study, address.rstrip("/")

    def url(self, question: Question) -> str:
        return f"{self._address}/q/{quote(question.id, safe='')}/{self._token(question)}"

    def is_signed(self, question: Question, token: str) -> bool:
        """Whether `token` is this question's own, compared in constant time."""
        return hmac.compare_digest(self._token(question).encode(), token.encode("utf-8", "replace"))

    def _token(self, question: Question) -> str:
        # With the moment it was asked: one asked anew under the same id has a link of its own.
        signed = "\0".join((self._study, question.id, question.asked_at.isoformat()))
        return hmac.new(self._key, signed.encode(), hashlib.sha256).hexdigest()[:_TOKEN_CHARACTERS]
