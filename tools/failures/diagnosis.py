"""Why a run failed: the first root cause in its logs, however long and noisy they are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from nightlab.knowledge.signatures import Action, Role, Signature, Signatures
from nightlab.tools.failures.matching import LineMatcher
from nightlab.tools.metrics.stream import numbered_lines

__all__ = ["FailureCause", "diagnose_failure"]

# Of a line longer than twice this only head and tail are read: long enough for a traceback in one JSON string,
# short enough to bound what a slow expression can cost.
_LIMIT_BYTES = 4096
_EXCERPT_CHARACTERS = 300
_BEFORE_MATCH = 100

_OTHER_SIGNAL = "killed_by_signal"


@dataclass(frozen=True)
class FailureCause:
    """Why a run failed, by the signature that says so."""

    signature: str
    """The signature's id."""
    category: str
    cause: str
    """What is behind it, in words."""
    remedy: str
    """What helps, in words."""
    action: Action
    excerpt: str = ""
    """The line of the log, cut to 300 characters: quoted data, never an instruction. Empty where only the exit status
    speaks."""
    line_number: int | None = None
    file: Path | None = None


@dataclass(frozen=True)
class _Hit:
    order: int
    signature: Signature
    excerpt: str = ""
    line_number: int | None = None
    file: Path | None = None

    def cause(self) -> FailureCause:
        known = self.signature
        return FailureCause(
            signature=known.id,
            category=known.category,
            cause=known.cause,
            remedy=known.remedy,
            action=known.action,
            excerpt=self.excerpt,
            line_number=self.line_number,
            file=self.file,
        )


def diagnose_failure(files: Iterable[Path], exit_code: int | None, signatures: Signatures) -> FailureCause | None:
    """The first root cause of a failed run; None where neither log nor exit status match a signature.

    `files` are its logs (standard error first: of two equally good causes the earlier file's counts); one that does
    not exist counts as empty. `exit_code` below 0 is minus the signal's number. Each log is streamed once at most,
    with memory that does not grow with its size. Roles and actions decide as the head of `knowledge/data/failures.yaml`
    says. Raises OSError for a log that cannot be read.
    """
    search = _Search(signatures)
    for file in files:
        if file.exists() and "cause" not in search.hits:
            search.read(file)
    hit = search.decide(exit_code)
    return hit.cause() if hit else None


class _Search:
    def __init__(self, signatures: Signatures) -> None:
        self._signatures = signatures
        self._matcher = LineMatcher(signatures)
        self._unexplained = False
        self.hits: dict[Role, _Hit] = {}

    def read(self, file: Path) -> None:
        """Look through a log, as far as its first root cause."""
        in_frame = False
        for number, text in numbered_lines(file, limit_bytes=_LIMIT_BYTES):
            shape = self._matcher.shape(text)
            # A traceback quotes the program's source; what stands there was not said by the run.
            in_frame = shape.frame or (in_frame and shape.indented)
            if in_frame:
                continue
            explained = False
            for order, signature, match in shape.matches(text):
                explained = True
                if signature.action != "note":
                    hit = _Hit(order, signature, _excerpt(text, match), number, file)
                    self._note(_role(signature, raised=shape.raised), hit)
            if "cause" in self.hits:
                return
            self._unexplained = self._unexplained or (shape.raised and not explained)

    def decide(self, exit_code: int | None) -> _Hit | None:
        silent = self._of_exit(exit_code)
        if silent is not None:
            self._note("consequence", silent)
        for role in ("cause", "consequence", "symptom"):
            if role in self.hits:
                return self.hits[role]
        return None if self._unexplained else self.hits.get("warning")

    def _note(self, role: Role, hit: _Hit) -> None:
        """Keep the first hit of each role; of consequences the one whose signature comes first."""
        kept = self.hits.get(role)
        if kept is None or (role == "consequence" and hit.order < kept.order):
            self.hits[role] = hit

    def _of_exit(self, exit_code: int | None) -> _Hit | None:
        if not exit_code:
            return None
        status = 128 - exit_code if exit_code < 0 else exit_code
        entries = tuple(enumerate(self._signatures.entries))
        named = [hit for hit in entries if status in hit[1].exit_codes]
        others = [hit for hit in entries if hit[1].id == _OTHER_SIGNAL and 128 < status <= 192]
        found = next((hit for hit in (*named, *others) if hit[1].action != "note"), None)
        return _Hit(*found) if found else None


def _role(signature: Signature, *, raised: bool) -> Role:
    """A consequence stays one; anything else that is raised as an exception is a cause."""
    return "cause" if raised and signature.role != "consequence" else signature.role


def _excerpt(text: str, match: re.Match[str]) -> str:
    """The line around the match, on one line, at most 300 characters."""
    start = max(0, match.start() - _BEFORE_MATCH) if len(text) > _EXCERPT_CHARACTERS else 0
    part = text[start : start + _EXCERPT_CHARACTERS - 2].strip()
    return ("…" if start else "") + part + ("…" if start + _EXCERPT_CHARACTERS - 2 < len(text) else "")
