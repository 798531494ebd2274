"""Write given files into a worktree and commit exactly those."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nightlab.errors import DiskError, GitError
from nightlab.worktrees.git import Git, transient

__all__ = ["commit_files", "inside"]


def inside(tree: Path, path: str) -> Path:
    """The place of `path` in `tree`. Raises GitError for a path that leaves it, directly or through a link."""
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts or any(part.lower() == ".git" for part in parts):
        raise GitError(f"{path!r}: not a path inside a worktree (give it relative to the repository's top folder)")
    target = tree.joinpath(*parts)
    if not target.parent.resolve().is_relative_to(tree.resolve()):
        raise GitError(f"{path!r}: leads out of the worktree through a symbolic link (write it elsewhere)")
    return target


@transient
def commit_files(tree: Path, files: Mapping[str, str], message: str, held: int | None = None) -> str:
    """Write `files` (path → text, UTF-8) and commit them and nothing else; returns the commit that has them.

    Where they are already committed as given, that is the present commit. Raises GitError.
    """
    targets = {path: inside(tree, path) for path in files}
    for path, target in targets.items():
        _write(target, files[path])
    git = Git(tree)
    if not targets:
        return git.head()
    paths = [str(target.relative_to(tree)) for target in targets.values()]
    # Forced: a parameter file may match the user's ignore rules, and the branch must hold it all the same.
    git.output("--literal-pathspecs", "add", "--force", "--", *paths, held=held)
    if git.call("--literal-pathspecs", "diff", "--cached", "--quiet", "HEAD", "--", *paths)[0]:
        how = ("--quiet", "--no-verify", "--cleanup=whitespace", "--message", message)
        git.output("--literal-pathspecs", *git.identity(), "commit", *how, "--", *paths, held=held)
    return git.head()


def _write(target: Path, text: str) -> None:
    if target.is_symlink():
        raise GitError(f"{target}: a symbolic link; the lab writes no file through one (replace it by a file)")
    try:
        with DiskError.at(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists() or target.read_bytes() != text.encode():
                target.write_bytes(text.encode())
    except OSError as error:
        raise GitError(f"{target}: cannot be written: {error.strerror}") from error
