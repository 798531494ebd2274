"""The worktrees of one study: made, found, healed and removed, whatever a killed lab left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from nightlab.configs.paths import RUNTIME, StudyPaths
from nightlab.errors import GitError
from nightlab.worktrees.commits import commit_files
from nightlab.worktrees.git import Git, transient
from nightlab.worktrees.lock import git_lock
from nightlab.worktrees.names import check_name
from nightlab.worktrees.registry import Entry, entries, remove_folder

__all__ = ["SCRATCH", "Worktrees"]

TRAILER = "Nightlab-Study"
SCRATCH = "dry-run-"
"""How the replicas are called that belong to no experiment; whoever makes one takes it away."""


class Worktrees:
    """Worktrees and branches of one study; every method may be repeated, also beside other labs in the repository.

    Commit messages pass through `redact`. Files do not: among them are those that runs read.
    """

    def __init__(self, paths: StudyPaths, redact: Callable[[str], str] = str) -> None:
        self.paths = paths
        self.redact = redact
        self.git = Git(paths.root)

    def ensure_branch_tree(self, number: int, branch: str, base_commit: str, commit: str | None = None) -> Path:
        """The experiment's tree at the tip of its branch; both are made where they do not exist.

        `commit` is the experiment's own commit, None until it has one: then the branch starts from `base_commit`.
        Raises GitError when the branch holds other work, or is checked out elsewhere.
        """
        path = self.paths.worktree(number)
        check_name(branch)
        with self._exclusive() as held:
            start = self._start(branch, base_commit, commit)
            entry = self._complete(path)
            if entry is None or entry.branch != branch:
                self._refuse_second_checkout(branch, path)
                self._add(path, ("-B", branch, str(path), start) if start else (str(path), branch), held)
        return path

    def is_free(self, branch: str, base_commit: str) -> bool:
        """Whether an experiment of this study that starts from `base_commit` may have the branch."""
        tip = self.git.branches(branch).get(branch)
        free = tip is None or tip == base_commit
        return free or (self.git.is_ancestor(base_commit, str(tip)) and self._made_here(base_commit, str(tip)))

    def ensure_replica_tree(self, number: int, commit: str, replica: str) -> Path:
        """A further tree of an experiment's commit, on no branch, so that several seeds can run side by side."""
        path = self.paths.worktree(number, replica=check_name(replica))
        with self._exclusive() as held:
            entry = self._complete(path)
            if entry is None or entry.branch is not None or Git(path).head() != self.git.resolve(commit):
                self._add(path, ("--detach", str(path), self.git.resolve(commit)), held)
        return path

    def commit_files(self, tree: Path, files: Mapping[str, str], message: str) -> str:
        """Write `files` (path relative to `tree` → text) and commit them and nothing else; returns the commit.

        Makes no new commit when nothing changes. Raises GitError for a path that leaves the tree.
        """
        with self._exclusive() as held:
            if self._complete(tree) is None:
                raise GitError(f"{tree}: not a complete worktree of study {self.paths.study} (make it anew first)")
            message = f"{self.redact(message).rstrip()}\n\n{TRAILER}: {self.paths.study}"
            return commit_files(tree, files, message, held)

    def record_of(self, path: Path) -> Path | None:
        """Git's own folder for a tree; None where git has none, or no whole one, any more."""
        place = path.parent.resolve() / path.name
        with self._exclusive():
            return next((entry.admin for entry in self._entries() if entry.tree == place), None)

    def remove(self, path: Path) -> None:
        """Remove one tree of this study with all that is in it; its branch stays."""
        if path.resolve().parent != self.paths.worktrees.resolve():
            raise GitError(f"{path}: not a worktree of study {self.paths.study}; it is left alone")
        with self._exclusive():
            self._discard(path)

    def remove_experiment(self, number: int) -> list[Path]:
        """Remove all trees of one experiment, replicas included; its branch stays. Returns what was removed."""
        own = self.paths.worktree(number).name
        with self._exclusive():
            present = [path for path in self._present() if not path.name.startswith(f"{own}.{SCRATCH}")]
            return self._clear([path for path in present if path.name == own or path.name.startswith(f"{own}.")])

    def remove_all(self, keep: Iterable[Path] = ()) -> list[Path]:
        """Remove every tree of this study but `keep`; branches stay. Returns what was removed."""
        kept = {path.resolve() for path in keep}
        with git_lock(self.paths):
            return self._clear([path for path in self._present() if path.resolve() not in kept])

    def delete_branch(self, branch: str, tip: str) -> bool:
        """Delete a branch of this study that is at `tip`; False when it is not, or is checked out somewhere."""
        with git_lock(self.paths) as held:
            if self.git.branches(branch).get(branch) != tip or branch in self.git.checked_out():
                return False
            self._unlock_branch(branch)
            self.git.output("branch", "--quiet", "-D", "--", branch, held=held)
        return True

    def leftovers(self) -> list[Path]:
        """Trees that are half made, half removed or unknown to git."""
        complete = {entry.tree for entry in self._entries() if entry.complete}
        return [path for path in self._present() if path.resolve() not in complete]

    def heal(self) -> list[Path]:
        """Clear away what killed git commands left behind: half-made trees and locks. Returns the trees cleared."""
        with git_lock(self.paths):
            for entry in self._entries():
                entry.unlock()
            return self._clear(self.leftovers())

    @contextmanager
    def _exclusive(self) -> Iterator[int]:
        """The git lock, with the half-made trees of every study cleared: nobody can be at work on one now."""
        with git_lock(self.paths) as held:
            for entry in entries(self.git.common_dir, self.paths.worktrees.parent):
                if entry.half_made:
                    self._discard(entry.tree or entry.admin, entry)
            yield held

    def _start(self, branch: str, base_commit: str, commit: str | None) -> str | None:
        """Where the branch is to be put; None: it is to be taken as it stands, for it holds the experiment's work."""
        self._unlock_branch(branch)
        tip = self.git.branches(branch).get(branch)
        own = commit or base_commit
        if tip is None or (tip == base_commit and commit is None):
            return own
        if not self.git.is_ancestor(own, tip) or (commit is None and not self._made_here(base_commit, tip)):
            raise GitError(
                f"branch {branch} holds other work (it is at {tip[:10]}, not on {own[:10]} of {self.paths.study}; "
                f"rename it: `git branch -m {branch} old-{branch}`)"
            )
        return None

    def _made_here(self, base_commit: str, tip: str) -> bool:
        """Whether all commits after the base carry this study's mark: another study may have started from it too."""
        form = f"--format=%(trailers:key={TRAILER},valueonly,separator=%x2C)"
        return set(self.git.line("log", form, f"{base_commit}..{tip}").splitlines()) == {self.paths.study}

    def _refuse_second_checkout(self, branch: str, path: Path) -> None:
        other = self.git.checked_out().get(branch)
        if other and other.resolve() != path.resolve():
            raise GitError(f"branch {branch} is checked out in {other} (switch that checkout to another branch)")

    def _unlock_branch(self, branch: str) -> None:
        (self.git.common_dir / "refs" / "heads" / f"{branch}.lock").unlink(missing_ok=True)

    @transient
    def _add(self, path: Path, how: Sequence[str], held: int) -> None:
        self.git.exclude(f"/{RUNTIME}/")
        self._discard(path)
        # Forced, because git may still list a tree of this branch that somebody deleted by hand.
        self.git.output("worktree", "add", "--force", "--quiet", *how, held=held)

    def _complete(self, path: Path) -> Entry | None:
        """The tree's entry when the tree is whole, with the locks of killed commands cleared."""
        for entry in self._entries():
            if entry.tree == path.resolve() and entry.complete and Git(path).call("rev-parse", "HEAD")[0] == 0:
                entry.unlock()
                return entry
        return None

    def _entries(self) -> list[Entry]:
        return entries(self.git.common_dir, self.paths.worktrees)

    def _present(self) -> list[Path]:
        """Every tree of this study, on disk or on git's record; a nameless record stands for itself."""
        home = self.paths.worktrees
        on_disk = {path.resolve(): path for path in home.iterdir()} if home.is_dir() else {}
        recorded = {entry.tree or entry.admin: entry.tree or entry.admin for entry in self._entries()}
        return sorted({**recorded, **on_disk}.values())

    def _clear(self, trees: Sequence[Path]) -> list[Path]:
        for tree in trees:
            self._discard(tree)
        return list(trees)

    def _discard(self, path: Path, entry: Entry | None = None) -> None:
        """Remove a tree; its link to git goes first, so that a kill on the way leaves nothing that looks whole."""
        place = path.parent.resolve() / path.name
        if not path.is_symlink():
            remove_folder(path / ".git")
        for found in [entry] if entry else self._entries():
            if place in (found.tree, found.admin):
                remove_folder(found.admin)
        remove_folder(path)
