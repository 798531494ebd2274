"""Every git command the lab runs, through GitPython; nothing here writes to the user's checkout, index or config."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import tenacity

from nightlab.configs.paths import RUNTIME
from nightlab.errors import DiskError, GitError

try:
    from git import GitCommandNotFound, InvalidGitRepositoryError, NoSuchPathError, Repo
except ImportError as error:  # GitPython looks for the executable when it is imported
    raise GitError("git is not installed or not on PATH (install git 2.25 or later)") from error

__all__ = ["Git", "find_root", "is_below", "names", "transient"]

_log = logging.getLogger("nightlab.worktrees")

# No hook, daemon or housekeeping of the user's setup may run on the lab's account, and reading must not refresh the
# user's index.
_OPTIONS = (
    "--no-optional-locks",
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false"),
    *("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "commit.gpgsign=false"),
)
# A lab started from a git hook or alias inherits these; they would send its commands to another repository or index.
_INHERITED = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
)
_TRANSIENT = re.compile(
    r"\.lock': File exists|failed to read \S*commondir|could not lock|cannot lock ref .* but expected"
)
# Git names the system's reason where it can; where a write fails half-way it does not always.
_NO_MORE = re.compile(
    "No space left on device|Disk quota exceeded|Read-only file system|Input/output error|File too large"
    "|write error. Out of diskspace|unable to write (?:new[_ ]index )?file|couldn't write '[^']*'"
)
_CREDENTIALS = re.compile(r"://[^@/\s]+@")


class _TransientGitError(GitError):
    """Another git process was in the way; worth trying again."""


def _report(state: tenacity.RetryCallState) -> None:
    _log.warning("trying again: %s", state.outcome.exception() if state.outcome else "")


transient = tenacity.retry(
    retry=tenacity.retry_if_exception_type(_TransientGitError),
    wait=tenacity.wait_exponential(multiplier=0.05, max=1.0) + tenacity.wait_random(0.0, 0.1),
    stop=tenacity.stop_after_attempt(8),
    before_sleep=_report,
    reraise=True,
)
"""Retries a function, a few seconds in all, while another git process holds a lock; it must be safe to repeat."""


def find_root(path: Path) -> Path:
    """Top folder of the repository around `path`. Raises GitError where there is none, or none with a commit."""
    try:
        with Repo(path, search_parent_directories=True) as repo:
            top = repo.working_tree_dir
    except (InvalidGitRepositoryError, NoSuchPathError) as error:
        raise GitError(f"{path}: not inside a git repository (run `git init` there and commit the project)") from error
    if top is None:
        raise GitError(f"{path}: a bare repository has no checkout (start the lab in a clone of it)")
    root = Path(top).resolve()
    if RUNTIME in root.parts:
        raise GitError(f"{root}: an experiment's worktree (start the lab in the repository it belongs to)")
    status, _, stderr = Git(root).call("rev-parse", "--verify", "HEAD")
    if "dubious ownership" in stderr:
        raise GitError(f"{root}: belongs to another user (run `git config --global --add safe.directory {root}`)")
    if status:
        raise GitError(f"{root}: the repository has no commit yet (run `git add -A && git commit -m start` there)")
    return root


class Git:
    """Git in one checkout or worktree; each call opens the repository anew, since GitPython is not thread-safe."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def call(
        self, *arguments: str, env: Mapping[str, str] | None = None, held: int | None = None
    ) -> tuple[int, bytes, str]:
        """Exit status, stdout and stderr; `held` is a lock's descriptor that lives as long as the process."""
        variables = {"GIT_TERMINAL_PROMPT": "0", **(env or {})}
        unset = [part for name in _INHERITED if name in os.environ and name not in variables for part in ("-u", name)]
        try:
            with Repo(self.root) as repo:
                return repo.git.execute(
                    [*(["env", *unset] if unset else []), "git", *_OPTIONS, *arguments],
                    with_extended_output=True,
                    with_exceptions=False,
                    stdout_as_string=False,
                    strip_newline_in_stdout=False,
                    env=variables,
                    pass_fds=() if held is None else (held,),
                )
        except (InvalidGitRepositoryError, NoSuchPathError) as error:
            raise GitError(f"{self.root}: not a git checkout (is the folder damaged or removed?)") from error
        except GitCommandNotFound as error:
            raise GitError("git is not installed or not on PATH (install git 2.25 or later)") from error

    def output(self, *arguments: str, env: Mapping[str, str] | None = None, held: int | None = None) -> bytes:
        """Stdout of a command that must succeed. Raises GitError with git's own reason."""
        status, stdout, stderr = self.call(*arguments, env=env, held=held)
        if status:
            command = next((word for word in arguments if not word.startswith("-") and "=" not in word), "")
            if refused := _NO_MORE.search(stderr):
                raise DiskError.because(self.root, f"git {command}: {refused[0]}")
            kind = _TransientGitError if _TRANSIENT.search(stderr) else GitError
            raise kind(f"{self.root}: git {command} failed: {_reason(stderr, status)}")
        return stdout

    def line(self, *arguments: str, env: Mapping[str, str] | None = None, held: int | None = None) -> str:
        return os.fsdecode(self.output(*arguments, env=env, held=held)).rstrip("\n")

    def head(self) -> str:
        """The commit that is checked out."""
        return self.resolve("HEAD")

    def resolve(self, ref: str) -> str:
        """Full id of the commit that `ref` names. Raises GitError where it names none."""
        status, stdout, _ = self.call("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}")
        if status or ref.startswith("-"):
            raise GitError(f"{self.root}: {ref!r} names no commit (see `git log --all --oneline`)")
        return stdout.decode().strip()

    def commit_exists(self, commit: str) -> bool:
        return self.call("cat-file", "-e", f"{commit}^{{commit}}")[0] == 0

    def is_ancestor(self, ancestor: str, commit: str) -> bool:
        """Whether `commit` is `ancestor` or descends from it."""
        return self.call("merge-base", "--is-ancestor", ancestor, commit)[0] == 0

    @cached_property
    def common_dir(self) -> Path:
        """The `.git` folder shared by the checkout and all worktrees."""
        return (self.root / self.line("rev-parse", "--git-common-dir")).resolve()

    def git_dir(self) -> Path:
        """This worktree's own git folder; the checkout's own is the common one."""
        return (self.root / self.line("rev-parse", "--git-dir")).resolve()

    def changes(self, leave_out: Iterable[str] = ()) -> list[str]:
        """Paths that differ from HEAD or are untracked, ignored ones, the lab's own and `leave_out` not counted."""
        # Git lists an untracked folder as a whole unless told otherwise; a part of it may be left out.
        leave_out = (RUNTIME, *leave_out)
        depth = "all" if leave_out[1:] else "normal"
        listed = self.output(
            *("status", "--porcelain", "-z", "--no-renames"),
            *("--ignore-submodules=untracked", f"--untracked-files={depth}"),
        )
        return [path for path in names(listed, skip=3) if not is_below(path, leave_out)]

    def is_dirty(self, leave_out: Iterable[str] = ()) -> bool:
        return bool(self.changes(leave_out))

    def tracked(self, path: str) -> list[str]:
        """Files at or below `path` that git holds in the index."""
        return names(self.output("--literal-pathspecs", "ls-files", "-z", "--", path))

    def diff_names(self, a: str, b: str) -> list[str]:
        """Paths that differ between two commits; a renamed file counts under both names."""
        return names(self.output("diff", "--name-only", "-z", "--no-renames", "--ignore-submodules=none", a, b))

    def diff_text(self, a: str, b: str, leave_out: Iterable[str] = ()) -> str:
        """Unified diff between two commits, whatever diff tools and prefixes the user has configured."""
        paths = [f":(top,exclude,literal){path}" for path in leave_out]
        plain = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
        return self.output("diff", *plain, "--submodule=short", a, b, "--", *paths).decode(errors="replace")

    def show_file(self, commit: str, path: str) -> str:
        """Text of a file as `commit` has it. Raises GitError where it has none."""
        return self.output("cat-file", "blob", f"{commit}:{path}").decode(errors="replace")

    def hash_paths(self, commit: str, paths: Iterable[str]) -> dict[str, str]:
        """Path → blob or tree id in `commit`; paths the commit does not hold are absent."""
        found = {path: self.call("rev-parse", "--verify", "--quiet", f"{commit}:{_tidy(path)}") for path in paths}
        return {path: stdout.decode().strip() for path, (status, stdout, _) in found.items() if status == 0}

    def differing(self, commit: str, paths: Iterable[str], leave_out: Iterable[str] = ()) -> list[str]:
        """Files at or below `paths` whose content on disk differs from `commit`'s, then new ones.

        Ignored files, Python's caches and `leave_out` (linked inputs) do not count as new.
        """
        asked = ("--", *paths)
        if len(asked) == 1:
            return []
        # In git's own folder for the tree: what a killed lab leaves goes with it.
        with DiskError.at(own := self.git_dir()), tempfile.TemporaryDirectory(prefix="nightlab-", dir=own) as folder:
            # A fresh index knows no file's time or flags: nothing a run did can make git skip a comparison.
            env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
            self.output("read-tree", commit, env=env)
            compare = ("--literal-pathspecs", "diff", "--name-only", "-z", "--no-renames", "--no-ext-diff", commit)
            changed = names(self.output(*compare, *asked, env=env))
            look = ("--literal-pathspecs", "ls-files", "--others", "-z", "--exclude-standard", "--exclude=__pycache__/")
            new = names(self.output(*look, *asked, env=env))
        return changed + [path for path in new if not is_below(path, leave_out)]

    def tracked_size(self, commit: str) -> tuple[int, int]:
        """How many files `commit` holds, and their bytes."""
        rows = names(self.output("ls-tree", "-r", "-l", "-z", "--full-tree", commit))
        sizes = [row.split("\t", 1)[0].split()[3] for row in rows]
        return len(sizes), sum(int(size) for size in sizes if size.isdigit())

    def files_at(self, commit: str) -> dict[str, int]:
        """Path → bytes of every regular file of `commit`, by path; links and submodules are none."""
        rows = names(self.output("ls-tree", "-r", "-l", "-z", "--full-tree", commit))
        pairs = (row.split("\t", 1) for row in rows)
        return {path: int(about.split()[3]) for about, path in pairs if about.startswith("100")}

    def branches(self, prefix: str = "") -> dict[str, str]:
        """Branch name → commit, for the branches whose names begin with `prefix`."""
        listed = self.line("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", "refs/heads")
        pairs = (row.split(" ", 1) for row in listed.splitlines())
        return {name: commit for commit, name in pairs if name.startswith(prefix)}

    def checked_out(self) -> dict[str, Path]:
        """Branch → the checkout or worktree that has it checked out now."""
        trees: dict[str, Path] = {}
        tree = self.root
        for row in self.line("worktree", "list", "--porcelain").splitlines():
            if row.startswith("worktree "):
                tree = Path(row.removeprefix("worktree "))
            elif row.startswith("branch refs/heads/") and tree.exists():
                trees[row.removeprefix("branch refs/heads/")] = tree
        return trees

    def exclude(self, pattern: str) -> None:
        """Have git ignore `pattern` through the repository's own `info/exclude`; the user's files stay as they are."""
        file = self.common_dir / "info" / "exclude"
        text = file.read_text(errors="replace") if file.exists() else ""
        if pattern in text.splitlines():
            return
        # A line that a full disk cut short gets its end here the next time.
        with DiskError.at(file):
            file.parent.mkdir(exist_ok=True)
            with file.open("a") as stream:
                stream.write(("" if not text or text.endswith("\n") else "\n") + pattern + "\n")

    def identity(self) -> list[str]:
        """Options that name the lab as author, empty when the user has configured an identity."""
        if all(self.call("config", "--get", key)[0] == 0 for key in ("user.name", "user.email")):
            return []
        return ["-c", "user.name=nightlab", "-c", "user.email=nightlab@localhost"]


def names(listed: bytes, skip: int = 0) -> list[str]:
    """Paths of a NUL-separated listing, the first `skip` bytes of each entry left off."""
    return [os.fsdecode(entry[skip:]) for entry in listed.split(b"\0") if entry]


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether `path` is one of `folders` or lies in one; all are relative to the repository."""
    tidy = _tidy(path)
    return any(tidy == folder or tidy.startswith(f"{folder}/") for folder in map(_tidy, folders))


def _tidy(path: str) -> str:
    return "" if path in (".", "./") else path.removeprefix("./").rstrip("/")


def _reason(stderr: str, status: int) -> str:
    lines = [row for row in stderr.splitlines() if row.strip() and not row.startswith("hint:")]
    fatal = [row for row in lines if row.startswith(("fatal:", "error:"))]
    reason = (fatal or lines or [f"exit status {status}"])[-1]
    return _CREDENTIALS.sub("://***@", reason)
