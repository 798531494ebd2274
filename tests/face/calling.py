"""The command line, called in this process, and what a repository looks like on disk."""

from __future__ import annotations

import contextlib
import hashlib
import io
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from nightlab.cli.app import main

__all__ = ["Called", "call", "state_of"]


@dataclass(frozen=True)
class Called:
    status: int
    out: str
    err: str


def call(where: Path, *words: str) -> Called:
    """`nightlab <words>` with `where` as the current folder."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(where), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["nightlab", *words])
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
                status = 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else 0
    return Called(status, out.getvalue(), err.getvalue())


def state_of(root: Path) -> dict[str, str]:
    """Every file below `root` by its content and every folder, and what git says of the checkout.

    Git's loose objects and the folders that its refs stood in are left out, and what SQLite leaves beside a database
    that was only read.
    """
    state = {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in root.rglob("*")
        if not str(path.relative_to(root)).startswith(
            (".git/objects", ".git/refs") if path.is_dir() else ".git/objects"
        )
        and not (path.name.endswith("-shm") or (path.name.endswith("-wal") and not path.stat().st_size))
    }
    if (root / ".git").exists():
        for words in ("worktree list --porcelain", "for-each-ref", "status --porcelain"):
            command = ["git", "--no-optional-locks", *words.split()]
            state[words] = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout
    return state
