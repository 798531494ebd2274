"""What git has on record about worktrees: `.git/worktrees/<id>/`, the layout of gitrepository-layout(5).

Read and cleared here without git, because `git worktree prune` would also forget trees of the user's own that are on a
disk not mounted just now, and because git itself will not touch an entry it was killed while making.
"""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

import tenacity

from nightlab.errors import GitError

__all__ = ["Entry", "entries", "remove_folder"]

_HEAD = re.compile(r"ref: refs/heads/.+|[0-9a-f]{40,64}")
_OURS = re.compile(r"experiment-\d\d")


@dataclass(frozen=True)
class Entry:
    """One registered worktree: git's own folder for it, and where the tree is; None: git was killed before it said."""

    admin: Path
    tree: Path | None

    @property
    def half_made(self) -> bool:
        """Git was killed while making the entry (it says so until the checkout is complete), or we while removing it.

        While there is one, git refuses to list worktrees or add another.
        """
        if self.tree is None or not self.head or not _text(self.admin / "commondir"):
            return True
        return _text(self.admin / "locked") == "initializing"

    @property
    def complete(self) -> bool:
        """The tree is there, points back to this entry, and has a commit or branch checked out."""
        return not self.half_made and self.points_back and (self.admin / "index").exists()

    @property
    def points_back(self) -> bool:
        if self.tree is None:
            return False
        target = _text(self.tree / ".git").removeprefix("gitdir:").strip()
        return bool(target) and (self.tree / target).resolve() == self.admin

    @property
    def head(self) -> str:
        """`ref: refs/heads/<branch>`, or a commit; empty when a crash tore it."""
        text = _text(self.admin / "HEAD")
        return text if _HEAD.fullmatch(text) else ""

    @property
    def branch(self) -> str | None:
        """The branch checked out there; None for a detached HEAD."""
        return self.head.removeprefix("ref: refs/heads/") if self.head.startswith("ref: ") else None

    def unlock(self) -> None:
        """Drop the locks of git commands that were killed; the caller holds the git lock, so none is at work."""
        for name in ("index.lock", "HEAD.lock"):
            (self.admin / name).unlink(missing_ok=True)


def entries(common_dir: Path, within: Path) -> list[Entry]:
    """The entries whose trees lie in the folder `within`, and nameless remains of killed adds of experiments."""
    folder = common_dir / "worktrees"
    found = [_entry(admin) for admin in sorted(folder.iterdir())] if folder.is_dir() else []
    home = within.resolve()
    return [e for e in found if (e.tree.is_relative_to(home) if e.tree else _OURS.match(e.admin.name))]


def _entry(admin: Path) -> Entry:
    text = _text(admin / "gitdir")
    return Entry(admin.resolve(), (admin / text).parent.resolve() if text else None)


def _text(file: Path) -> str:
    return file.read_text(errors="replace").strip() if file.is_file() else ""


def remove_folder(path: Path) -> None:
    """Remove a folder and all in it, read-only folders included; symbolic links are removed, never followed.

    Raises GitError when something keeps coming back, as under a job that still writes.
    """
    if path.is_symlink() or path.is_file():
        path.unlink()
    try:
        _remove_tree(path)
    except OSError as error:
        raise GitError(f"{path}: cannot be removed: {error} (is a job still running there?)") from error


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(OSError),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_attempt(5),
    reraise=True,
)
def _remove_tree(path: Path) -> None:
    if not path.is_dir():
        return
    try:
        shutil.rmtree(path)
    except PermissionError:
        path.chmod(0o700)
        for folder, inner, _ in os.walk(path):
            for sub in (Path(folder, name) for name in inner):
                if not sub.is_symlink():
                    sub.chmod(0o700)
        shutil.rmtree(path)
