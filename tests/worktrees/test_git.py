from __future__ import annotations

import os
from pathlib import Path

import pytest

from nightlab.errors import GitError
from nightlab.worktrees.git import Git, find_root
from tests.worktrees.repositories import git, make_busy, make_repository, users_state, write


def test_the_top_folder_is_found_from_below(root: Path) -> None:
    assert find_root(root / "eval") == root


def test_where_there_is_no_repository_the_mend_is_named(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(GitError, match=r"not inside a git repository \(run `git init`"):
            find_root(place)


def test_a_repository_without_a_commit_or_a_checkout_is_refused(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "empty")
    with pytest.raises(GitError, match="no commit yet"):
        find_root(tmp_path / "empty")
    git(tmp_path, "init", "--quiet", "--bare", "bare")
    with pytest.raises(GitError, match="a bare repository"):
        find_root(tmp_path / "bare")


def test_an_experiments_tree_is_no_place_to_start_a_lab(root: Path) -> None:
    git(root, "worktree", "add", "--quiet", "--detach", ".nightlab/worktrees/demo/experiment-00")
    with pytest.raises(GitError, match="an experiment's worktree"):
        find_root(root / ".nightlab/worktrees/demo/experiment-00")


def test_changes_are_what_a_person_would_have_to_commit(root: Path) -> None:
    own = Git(root)
    write(root, {"ignored.log": "", ".nightlab/demo/ledger.sqlite": ""})
    assert own.changes() == [] and not own.is_dirty()
    write(root, {"train.py": "changed", "new dir/ü.txt": "", "weights/a.bin": "", "weights/b.bin": ""})
    (root / "params.json").unlink()
    assert own.changes() == ["params.json", "train.py", "new dir/", "weights/"]
    assert own.changes(leave_out=["weights/a.bin", "./new dir/"]) == ["params.json", "train.py", "weights/b.bin"]
    assert own.is_dirty()


def test_looking_changes_nothing(root: Path, base: str) -> None:
    make_busy(root)
    os.utime(root / "eval/metric.py", (1, 1))  # a stale time in the index, which a plain `git status` would refresh
    before = users_state(root)
    own = Git(root)
    own.changes()
    own.diff_text(base, "HEAD")
    own.hash_paths(base, ["eval"])
    own.tracked("train.py")
    assert own.differing(base, ["eval", "train.py"]) == ["train.py"]
    assert users_state(root) == before


def test_references_resolve_to_commits(root: Path, base: str) -> None:
    own = Git(root)
    git(root, "tag", "-a", "v1", "-m", "annotated")
    assert own.resolve("main") == own.resolve("v1") == own.resolve(base[:8]) == own.head() == base
    assert own.commit_exists(base) and not own.commit_exists("0" * 40)
    for ref in ("nowhere", "--all", f"{base}:train.py"):
        with pytest.raises(GitError, match="names no commit"):
            own.resolve(ref)


def test_differences_ignore_the_users_tools(root: Path, base: str) -> None:
    git(root, "mv", "train.py", "main.py")
    git(root, "commit", "--quiet", "-m", "rename")
    git(root, "config", "diff.external", "false")
    git(root, "config", "diff.noprefix", "true")
    git(root, "config", "color.ui", "always")
    own = Git(root)
    assert own.diff_names(base, "HEAD") == ["main.py", "train.py"]
    assert "rename from train.py\nrename to main.py" in own.diff_text(base, "HEAD")
    assert own.show_file(base, "train.py") == "print('loss: 1.0')\n"
    with pytest.raises(GitError, match=r"git cat-file failed: fatal: path 'train\.py' does not exist"):
        own.show_file("HEAD", "train.py")


def test_hashes_tell_whether_a_frozen_path_changed(root: Path, base: str) -> None:
    own = Git(root)
    paths = ["eval/", "./eval/metric.py", "train.py", "absent"]
    before = own.hash_paths(base, paths)
    assert list(before) == paths[:3]
    write(root, {"eval/metric.py": "def metric(): return 0\n"})
    git(root, "commit", "--quiet", "-a", "-m", "cheat")
    after = own.hash_paths("HEAD", paths)
    assert {path for path in paths[:3] if before[path] != after[path]} == {"eval/", "./eval/metric.py"}


def test_a_run_cannot_hide_what_it_did_to_frozen_files(root: Path, base: str) -> None:
    own = Git(root)
    assert own.differing(base, ["eval", "train.py"]) == []
    write(root, {"eval/__pycache__/metric.pyc": "", "eval/run.log": "ignored", "elsewhere.py": "", "eval/data/in": ""})
    assert own.differing(base, ["eval", "train.py"], leave_out=["eval/data"]) == []
    git(root, "update-index", "--assume-unchanged", "eval/metric.py")
    write(root, {"eval/metric.py": "def metric(): return 0\n", "eval/json.py": "shadows a module"})
    (root / "train.py").unlink()
    frozen = ["eval", "train.py"]
    assert own.differing(base, frozen, leave_out=["eval/data"]) == ["eval/metric.py", "train.py", "eval/json.py"]
    assert own.differing(base, []) == []


def test_size_counts_what_is_committed(root: Path, base: str) -> None:
    write(root, {"untracked": "x" * 1000})
    listed = git(root, "ls-files").split()
    assert Git(root).tracked_size(base) == (len(listed), sum((root / path).stat().st_size for path in listed))


def test_branches_are_listed_by_prefix(root: Path, base: str) -> None:
    for name in ("experiment-00-a", "experiment-01-b", "other", "main2"):
        git(root, "branch", name)
    git(root, "tag", "experiment-00-a")
    assert Git(root).branches("experiment-") == {"experiment-00-a": base, "experiment-01-b": base}


def test_exclude_adds_its_line_once(root: Path) -> None:
    file = root / ".git/info/exclude"
    file.parent.mkdir(exist_ok=True)
    file.write_text("*.tmp")  # without an end of line
    for _ in range(2):
        Git(root).exclude("/.nightlab/")
    assert file.read_text() == "*.tmp\n/.nightlab/\n"
    write(root, {".nightlab/x": ""})
    assert git(root, "status", "--porcelain") == ""


def test_exclude_in_a_linked_checkout_goes_to_the_shared_folder(root: Path, tmp_path: Path) -> None:
    git(root, "worktree", "add", "--quiet", str(tmp_path / "second"), "-b", "second")
    Git(tmp_path / "second").exclude("/.nightlab/")
    assert "/.nightlab/" in (root / ".git/info/exclude").read_text()


def test_a_git_hooks_environment_does_not_lead_astray(
    root: Path, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other", {"other.txt": ""})
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    own = Git(find_root(root))
    assert own.head() == base
    assert own.tracked("train.py") == ["train.py"]
    assert not own.is_dirty()


def test_a_folder_that_is_no_checkout_is_named(tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not a git checkout"):
        Git(tmp_path).head()
