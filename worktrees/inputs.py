"""Link what a run needs but git does not hold (data, weights, environments) into a worktree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nightlab.configs.paths import RUNTIME
from nightlab.errors import ConfigError, DiskError, Fault, GitError
from nightlab.worktrees.git import Git, is_below
from nightlab.worktrees.submodules import init_submodules

__all__ = ["check_inputs", "init_submodules", "link_inputs"]


def check_inputs(root: Path, inputs: Sequence[str]) -> list[Fault]:
    """What is wrong with the study's `inputs`, which are relative to the repository `root`; empty when nothing is."""
    return [fault for path in inputs if (fault := _fault(root, path))]


def link_inputs(root: Path, tree: Path, inputs: Sequence[str]) -> None:
    """Make each input a symbolic link in `tree` to its absolute place under `root`; may be repeated.

    Raises ConfigError for a path that is missing, leaves the repository or is tracked by git, and GitError when
    something else stands in its place in the tree.
    """
    if faults := check_inputs(root, inputs):
        raise ConfigError(faults)
    for path in inputs:
        # What lies below a linked folder is there already; a link for it would be made in the user's own folder.
        if not is_below(path, [other for other in inputs if other != path and is_below(path, [other])]):
            _link(root.resolve() / path, tree / path)


def _fault(root: Path, path: str) -> Fault | None:
    parts = Path(path).parts
    if not parts or Path(path).is_absolute() or ".." in parts or parts[0] in (".git", RUNTIME):
        return _at(path, "is not a path inside the repository", "give it relative to the repository's top folder")
    if not (root / path).parent.resolve().is_relative_to(root.resolve()):
        return _at(path, "leads out of the repository", "link the folder itself, not something below a link")
    if not (root / path).exists():
        return _at(path, f"does not exist in {root}", "create it, or take it out of inputs")
    held = Git(root).tracked(path)
    if held:
        return _at(path, f"is tracked by git ({held[0]}), so each worktree has it", "list only what git does not hold")
    return None


def _at(path: str, message: str, mend: str) -> Fault:
    return Fault(f"{path!r} {message}", key="inputs", value=path, mend=mend)


def _link(source: Path, place: Path) -> None:
    if place.is_symlink():
        if place.readlink() == source:
            return
        place.unlink()
    elif place.exists():
        raise GitError(f"{place}: stands where an input is to be linked (the branch holds it; take it out of inputs)")
    with DiskError.at(place):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(source)
