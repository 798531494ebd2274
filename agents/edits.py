"""Edits of source files: search/replace blocks, or a unified diff turned into such, applied exactly or not at all."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from nightlab.errors import PatchError
from nightlab.knowledge.records import Edit, Idea

__all__ = [
    "Read",
    "apply_ideas",
    "changed_lines",
    "changed_rows",
    "diff_text",
    "edited",
    "edits_of_diff",
    "folders_of",
    "path_fault",
]

Read = Callable[[str], str | None]
"""The text of a file of the repository; None where there is none. Raises PatchError for one that is no plain text."""

MOST_SHOWN = 200
LONGEST_NAME_BYTES = 255
"""What file systems take."""


def path_fault(path: str) -> str | None:
    """Why `path` is no path of a file in the repository as git writes it; None where it is."""
    parts = PurePosixPath(path).parts
    if not parts or path != "/".join(parts) or path.startswith(("/", "~")) or "\\" in path or not path.isprintable():
        return f"{path!r} is no plain path inside the repository, such as src/train.py"
    if any(part in ("..", ".") or part.lower() in (".git", ".nightlab") for part in parts):
        return f"{path!r} leads out of what an idea may change"
    if any(len(part.encode()) > LONGEST_NAME_BYTES for part in parts):
        return f"{path[:MOST_SHOWN]!r}… is too long a name"
    return None


def apply_ideas(read: Read, ideas: Iterable[Idea]) -> dict[str, str]:
    """The new texts of the files that ideas change, their edits applied in the order of the ideas.

    Raises PatchError that names the idea whose edits do not apply.
    """
    texts: dict[str, str] = {}

    def on_top(path: str) -> str | None:
        return texts[path] if path in texts else read(path)

    for idea in sorted(ideas, key=lambda one: one.number):
        try:
            texts.update(edited(on_top, idea.edits))
        except PatchError as error:
            raise PatchError(f"idea {idea.name}: {error}", cause=error.cause) from error
    return texts


def edited(read: Read, edits: Iterable[Edit]) -> dict[str, str]:
    """The new texts of the files that `edits` change, by path. Raises PatchError where one cannot be applied."""
    texts: dict[str, str] = {}
    for edit in edits:
        if fault := path_fault(edit.path):
            raise PatchError(fault, cause="path")
        present = texts[edit.path] if edit.path in texts else read(edit.path)
        texts[edit.path] = _edited(edit, present)
    for path in texts:
        if file := next((folder for folder in folders_of(path) if folder in texts), None):
            raise PatchError(f"{path}: {file} is a file, no folder", cause="path")
    return texts


def folders_of(path: str) -> list[str]:
    """The folders that `path` lies in, the innermost first."""
    return [str(folder) for folder in PurePosixPath(path).parents][:-1]


def _edited(edit: Edit, present: str | None) -> str:
    if not edit.search:
        if present:
            raise PatchError(f"{edit.path}: exists, so the edit needs the text it replaces", cause="not-found")
        return edit.replace
    if present is None:
        raise PatchError(f"{edit.path}: there is no such file", cause="not-found")
    search, replace = edit.search, edit.replace
    if "\r\n" in present and "\r" not in search + replace:
        search, replace = search.replace("\n", "\r\n"), replace.replace("\n", "\r\n")
    found = present.count(search)
    if found != 1:
        times = "is not in the file" if not found else f"stands in the file {found} times; give more lines around it"
        shown = edit.search if len(edit.search) <= MOST_SHOWN else edit.search[:MOST_SHOWN] + "…"
        cause = "ambiguous" if found else "not-found"
        raise PatchError(f"{edit.path}: the text to be replaced {times}: {shown!r}", cause=cause)
    return present.replace(search, replace)


def edits_of_diff(text: str) -> list[Edit]:
    """The hunks of a unified diff as edits: what a hunk shows of the old file becomes what it shows of the new one.

    Line numbers are not looked at: models count badly, and the text to be replaced must be unique in any case. Raises
    PatchError for a diff that deletes, renames or changes the mode of a file, or holds no hunk.
    """
    found: list[Edit] = []
    hunk: _Hunk | None = None
    before = path = ""
    for line in text.splitlines():
        if line.startswith(("deleted file", "rename ", "copy ", "new mode", "old mode", "GIT binary", "Binary files")):
            raise PatchError(f"{line!r}: an idea changes the text of files only", cause="path")
        if line.startswith(("--- ", "diff --git ", "+++ ", "@@")):
            found += hunk.edits() if hunk else []
            hunk = _Hunk(path, is_new=before == "/dev/null") if line.startswith("@@") else None
            if line.startswith("--- "):
                before = _named(line)
            elif line.startswith("+++ "):
                path = _named(line)
        elif hunk is not None:
            hunk.take(line)
    found += hunk.edits() if hunk else []
    if not found:
        raise PatchError("the diff holds no hunk", cause="not-found")
    return found


def _named(line: str) -> str:
    """The path in a `--- a/…` or `+++ b/…` line."""
    path = line[4:].split("\t")[0].strip()
    return path if path == "/dev/null" else path.removeprefix("a/").removeprefix("b/")


@dataclass
class _Hunk:
    path: str
    is_new: bool
    old: str = ""
    new: str = ""
    blank: int = 0
    """Empty lines that count where another line of the hunk follows: editors take the space of an empty line away."""

    def take(self, line: str) -> None:
        if not line:
            self.blank += 1
            return
        between, self.blank = "\n" * self.blank, 0
        sign, rest = line[:1], line[1:] + "\n"
        self.old += between + (rest if sign in (" ", "-") else "")
        self.new += between + (rest if sign in (" ", "+") else "")

    def edits(self) -> list[Edit]:
        if self.old == self.new:
            return []
        return [Edit(path=self.path, search="" if self.is_new else self.old, replace=self.new)]


def changed_lines(before: Mapping[str, str | None], after: Mapping[str, str]) -> tuple[int, int]:
    """Lines added and removed, over all files of `after`."""
    lines = [line for path in after for line in changed_rows(before.get(path) or "", after[path])]
    return sum(line.startswith("+") for line in lines), sum(line.startswith("-") for line in lines)


def changed_rows(before: str, after: str) -> list[str]:
    """The lines that go, each behind a `-`, and those that come, each behind a `+`."""
    found = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in list(found)[2:] if not line.startswith("@@")]


def diff_text(before: Mapping[str, str | None], after: Mapping[str, str], *, context: int = 3) -> str:
    """A unified diff of the files of `after`, for people and models."""
    parts: list[str] = []
    for path in sorted(after):
        old, new = _lines(before.get(path) or ""), _lines(after[path])
        parts += difflib.unified_diff(old, new, f"a/{path}", f"b/{path}", n=context)
    return "".join(parts)


def _lines(text: str) -> Sequence[str]:
    lines = text.splitlines(keepends=True)
    return [*lines[:-1], lines[-1] if lines[-1].endswith("\n") else lines[-1] + "\n"] if lines else []
