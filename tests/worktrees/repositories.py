"""Git as a person would use it, and what of theirs must never change."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path


def git(root: Path, *arguments: str, check: bool = True) -> str:
    """Plain git, not the code under test; stdout."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_") or "CONFIG" in name}
    command = ["git", "--no-optional-locks", "-c", "protocol.file.allow=always", *arguments]
    done = subprocess.run(command, cwd=root, env=env, check=check, capture_output=True, text=True)
    return done.stdout.strip("\n")


def write(root: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


def make_repository(root: Path, files: Mapping[str, str], *, identity: bool = True) -> Path:
    root.mkdir(parents=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    if identity:
        git(root, "config", "user.name", "Ada")
        git(root, "config", "user.email", "ada@example.org")
    write(root, files)
    git(root, "add", "--all")
    git(root, "-c", "user.name=Ada", "-c", "user.email=ada@example.org", "commit", "--quiet", "-m", "start")
    return root


def users_state(root: Path) -> dict[str, str]:
    """Everything of the user's that the lab must leave alone, files and their bytes included."""
    own = Path(git(root, "rev-parse", "--absolute-git-dir"))
    files = sorted(path for path in root.rglob("*") if path.is_file() and not {".git", ".nightlab"} & set(path.parts))
    return {
        "index": _digest(own / "index"),
        "config": _digest(own / "config"),
        "HEAD": (own / "HEAD").read_text(),
        "branch": git(root, "rev-parse", "HEAD"),
        "stash": git(root, "stash", "list"),
        "status": git(root, "status", "--porcelain=v2", "--branch", "--untracked-files=all"),
        "files": "".join(f"{path}\0{_digest(path)}\n" for path in files),
        "hooks": "".join(sorted(path.name for path in (own / "hooks").glob("*.ran"))),
    }


def make_busy(root: Path) -> None:
    """Leave the checkout as people do: staged, unstaged and untracked work, a stash, hooks that would tell on us."""
    write(root, {"train.py": "print('stashed')\n"})
    git(root, "stash", "push", "--quiet")
    write(root, {"staged.txt": "staged\n", "notes.txt": "untracked\n", "train.py": "print('changed')\n"})
    git(root, "add", "staged.txt")
    for name in (
        "post-checkout",
        "pre-commit",
        "commit-msg",
        "post-commit",
        "reference-transaction",
        "post-index-change",
    ):
        hook = root / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\ntouch {hook}.ran\n")
        hook.chmod(0o755)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else "absent"
