"""Make a commit of the user's checkout as it is now, without touching its index, stash, branch or files."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from nightlab.configs.paths import RUNTIME, StudyPaths
from nightlab.errors import DiskError, GitError
from nightlab.worktrees.git import Git, is_below, names, transient

__all__ = ["base_ref", "snapshot"]


def base_ref(study: str) -> str:
    """The ref that keeps a study's snapshot from git's garbage collection."""
    return f"refs/nightlab/{study}/base"


def snapshot(paths: StudyPaths, message: str, leave_out: Iterable[str] = ()) -> str:
    """Commit tracked changes and untracked, not ignored files on top of HEAD; returns the commit.

    `leave_out` names files and folders that stay out (the study's inputs), as do repositories inside the repository.
    A clean checkout gives HEAD, an unchanged one the snapshot there is. Raises GitError where a merge is unfinished or
    a submodule has changes of its own.
    """
    git = Git(paths.root)
    _refuse_unfinished(git)
    with DiskError.at(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="nightlab-") as folder:
        return _commit(git, base_ref(paths.study), _tree(git, Path(folder), leave_out), message)


def _refuse_unfinished(git: Git) -> None:
    if unmerged := names(git.output("diff", "--name-only", "-z", "--diff-filter=U")):
        raise GitError(f"{git.root}: {unmerged[0]} has merge conflicts (resolve them, or `git merge --abort`)")
    for row in git.line("status", "--porcelain=v2", "--untracked-files=no", "--ignore-submodules=untracked").split(
        "\n"
    ):
        fields = row.split(" ", 8)
        if row.startswith("1 ") and fields[2].startswith("S") and "M" in fields[2]:
            raise GitError(f"{git.root}: submodule {fields[8]} has uncommitted changes (commit them there first)")


def _tree(git: Git, folder: Path, leave_out: Iterable[str]) -> str:
    """Tree of the working files, through a copy of the index: git then reads only the files that changed."""
    index = folder / "index"
    own = git.git_dir() / "index"
    if own.exists():
        shutil.copyfile(own, index)
    env = {"GIT_INDEX_FILE": str(index)}
    out = [RUNTIME, *leave_out]
    listed = names(git.output("ls-files", "--others", "--exclude-standard", "-z", env=env))
    new = folder / "new"
    # A name that ends in a slash is a repository of its own.
    new.write_bytes(b"\0".join(os.fsencode(path) for path in listed if path[-1] != "/" and not is_below(path, out)))
    git.output("-c", "core.splitIndex=false", "add", "--update", env=env)
    if new.stat().st_size:
        source = (f"--pathspec-from-file={new}", "--pathspec-file-nul")
        git.output("--literal-pathspecs", "-c", "core.splitIndex=false", "add", *source, env=env)
    return git.line("write-tree", env=env)


@transient
def _commit(git: Git, ref: str, tree: str, message: str) -> str:
    head = git.head()
    status, present, _ = git.call("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
    if tree == git.line("rev-parse", f"{head}^{{tree}}"):
        commit = head
    elif status == 0 and git.line("log", "-1", "--format=%T %P", present.decode().strip()) == f"{tree} {head}":
        return present.decode().strip()
    else:
        commit = git.line(*git.identity(), "commit-tree", "-p", head, "-m", message, tree)
    git.output("update-ref", "-m", "nightlab: snapshot", ref, commit)
    return commit
