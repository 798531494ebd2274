"""Lessons of all studies: `lessons.jsonl`, one JSON object a line, append-only, mergeable by union.

A line is written in one piece under a lock and synced to disk. Whoever was killed in the middle leaves a torn last
line: readers skip it, the next append takes it away. The id is a hash of the content, so the same lesson is never there
twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nightlab.configs.study import Scalar, Study
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge.model_size import size_text
from nightlab.knowledge.records import Experiment, Lesson, Verdict, utc_now

__all__ = ["LessonFile", "append", "current", "make_lesson", "merge", "read"]


@dataclass(frozen=True)
class LessonFile:
    """What a lessons file holds, each lesson once, in the order of the file."""

    lessons: tuple[Lesson, ...]
    skipped: int = 0
    """Complete lines that are no lesson."""
    torn: bool = False
    """Whether the last line was cut off while it was written."""


def make_lesson(
    study: Study,
    experiment: Experiment,
    verdict: Verdict,
    *,
    changed: Mapping[str, Scalar] | None = None,
    replaced: Mapping[str, Scalar] | None = None,
    cause: str | None = None,
    remedy: str | None = None,
    supersedes: Iterable[str] = (),
    now: datetime | None = None,
) -> Lesson:
    """The lesson of one judged experiment, with its id; `now` is the time it is learnt.

    `changed` and `replaced`: the parameters that the verdict is about, with the values tried and those before; without
    them everything that differs from the baseline.
    """
    tried = experiment.changed if changed is None else dict(changed)
    before = study.parameters if replaced is None else replaced
    lesson = Lesson(
        id="",
        time=now or utc_now(),
        study=study.study,
        scenario=experiment.scenario,
        base_model=experiment.base_model,
        base_model_size=size_text(study.sizes.model_parameters, experiment.base_model),
        method=experiment.method,
        technique=experiment.technique,
        parameters=tried,
        baseline={name: before[name] for name in tried if name in before},
        metric=study.objective.metric,
        effect=verdict.effect,
        verdict=verdict.kind,
        label=verdict.label,
        cause=cause,
        remedy=remedy,
        scope=f"{experiment.scenario}/{experiment.method}",
        evidence={
            "experiment": f"{experiment.number:02d}",
            "branch": experiment.branch,
            "commit": experiment.commit or "",
        },
        author=study.author,
        supersedes=list(supersedes),
    )
    return lesson.model_copy(update={"id": lesson_id(lesson)})


def lesson_id(lesson: Lesson) -> str:
    """16 hexadecimal digits of the SHA-256 of everything but `id` and `time`."""
    content = json.dumps(lesson.model_dump(mode="json", exclude={"id", "time"}), sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def read(path: Path) -> LessonFile:
    """The lessons in `path`; an absent file holds none. Raises LedgerError when it cannot be read."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return LessonFile(())
    except OSError as error:
        raise LedgerError(f"{path}: lessons cannot be read: {error.strerror}") from error
    return _parse(content)


def append(path: Path, lesson: Lesson, *, redact: Callable[[Any], Any] | None = None) -> bool:
    """Add a lesson, through `redact` first; False when the file holds it already.

    Raises LedgerError when it cannot be written, DiskError when the disk takes no more; the file is then as it was.
    """
    return _append_all(path, [lesson if redact is None else _redacted(lesson, redact)]) == 1


def _redacted(lesson: Lesson, redact: Callable[[Any], Any]) -> Lesson:
    """The lesson without secrets; its id is that of what is written."""
    data = lesson.model_dump(mode="json", exclude={"id"})
    safe = redact(data)
    if safe == data:
        return lesson
    fresh = Lesson.model_validate(safe | {"id": ""})
    return fresh.model_copy(update={"id": lesson_id(fresh)})


def merge(paths: Iterable[Path], into: Path) -> int:
    """Add to `into` what the files `paths` hold and it does not, oldest first; returns how many were added."""
    lessons = {lesson.id: lesson for path in paths for lesson in read(path).lessons}
    return _append_all(into, sorted(lessons.values(), key=lambda lesson: (lesson.time, lesson.id)))


def current(lessons: Iterable[Lesson]) -> list[Lesson]:
    """The lessons that no other one supersedes."""
    held = list(lessons)
    superseded = {old for lesson in held for old in lesson.supersedes}
    return [lesson for lesson in held if lesson.id not in superseded]


def _parse(content: bytes) -> LessonFile:
    *lines, tail = content.split(b"\n")
    parsed = [_lesson(line) for line in lines if line.strip()]
    # A last line that lacks nothing but its end is a whole lesson.
    last = _lesson(tail)
    lessons: dict[str, Lesson] = {}
    for lesson in (*parsed, last):
        if lesson:
            lessons.setdefault(lesson.id, lesson)
    return LessonFile(tuple(lessons.values()), parsed.count(None), torn=bool(tail) and last is None)


def _lesson(line: bytes) -> Lesson | None:
    try:
        return Lesson.model_validate_json(line)
    except ValidationError:
        return None


def _append_all(path: Path, lessons: Iterable[Lesson]) -> int:
    lines = {lesson.id: _line(lesson) for lesson in lessons}
    try:
        with DiskError.at(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            new = _append_new(path, lines)
    except OSError as error:
        raise LedgerError(f"{path}: lessons cannot be written: {error.strerror}") from error
    return len(new)


def _append_new(path: Path, lines: dict[str, bytes]) -> list[bytes]:
    with path.open("a+b", buffering=0) as file:
        # The file is its own lock: a lock file beside it would litter the user's checkout.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        content = file.read()
        held = {lesson.id for lesson in _parse(content).lessons}
        new = [line for key, line in lines.items() if key not in held]
        if new:
            _write_after(file, content, b"".join(new))
    return new


def _line(lesson: Lesson) -> bytes:
    try:
        text = json.dumps(lesson.model_dump(mode="json"), sort_keys=True, ensure_ascii=False, allow_nan=False)
    except ValueError as error:
        raise LedgerError(f"lesson {lesson.id}: holds a number that is not finite; it is not written") from error
    return text.encode() + b"\n"


def _write_after(file: FileIO, content: bytes, lines: bytes) -> None:
    """Write `lines` behind the last complete line of `content`, in one piece; a failed write leaves no half line."""
    tail = content[content.rfind(b"\n") + 1 :]
    end = len(content)
    if tail and _lesson(tail):
        lines = b"\n" + lines
    elif tail:
        end -= len(tail)
        file.truncate(end)
    try:
        written = 0
        while written < len(lines):
            written += file.write(lines[written:])
        os.fsync(file)
    except OSError:
        file.truncate(end)
        raise
