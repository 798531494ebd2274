from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.errors import GitError
from nightlab.worktrees.git import Git
from nightlab.worktrees.snapshot import base_ref, snapshot
from tests.worktrees.repositories import git, make_busy, make_repository, users_state, write


@pytest.mark.parametrize("ignored", [False, True])
def test_a_snapshot_holds_the_tree_as_it_is_and_leaves_it_so(
    root: Path, base: str, paths: StudyPaths, ignored: bool
) -> None:
    make_busy(root)
    (root / "params.json").unlink()
    write(root, {"x.log": "ignored", ".nightlab/demo/ledger.sqlite": "", "data/big.bin": "", "weights/w.bin": "big"})
    if ignored:
        Git(root).exclude("/.nightlab/")
    before = users_state(root)
    commit = snapshot(paths, "the tree as it was", leave_out=["weights/", "data"])
    assert users_state(root) == before
    assert git(root, "rev-parse", f"{commit}^", base_ref("demo")).split() == [base, commit]
    held = git(root, "ls-tree", "-r", "--name-only", commit).split()
    assert held == [".gitignore", "eval/metric.py", "notes.txt", "staged.txt", "train.py"]
    assert git(root, "show", f"{commit}:train.py") == "print('changed')"
    assert git(root, "log", "-1", "--format=%an %s", commit) == "Ada the tree as it was"


def test_garbage_collection_leaves_the_snapshot(root: Path, paths: StudyPaths) -> None:
    write(root, {"new.txt": "1"})
    commit = snapshot(paths, "m")
    git(root, "gc", "--quiet", "--prune=now")
    assert git(root, "cat-file", "-t", commit) == "commit"


def test_the_same_state_gives_the_same_commit(root: Path, base: str, paths: StudyPaths) -> None:
    assert snapshot(paths, "m") == base
    write(root, {"new.txt": "1"})
    first = snapshot(paths, "m")
    assert snapshot(paths, "m") == first != base
    write(root, {"new.txt": "2"})
    assert snapshot(paths, "m") != first


def test_repositories_inside_the_repository_stay_out(root: Path, paths: StudyPaths) -> None:
    make_repository(root / "vendor/lib", {"a.py": ""})
    write(root, {"vendor/own.py": ""})
    held = git(root, "ls-tree", "-r", "--name-only", snapshot(paths, "m")).split()
    assert "vendor/own.py" in held and "vendor/lib" not in held


def test_a_sparse_checkout_loses_no_file(root: Path, base: str, paths: StudyPaths) -> None:
    git(root, "sparse-checkout", "set", "--no-cone", "/train.py")
    write(root, {"train.py": "changed"})
    assert not (root / "eval").exists()
    assert git(root, "diff", "--name-only", base, snapshot(paths, "m")) == "train.py"


def test_without_an_identity_the_lab_signs(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "p", {"a": ""}, identity=False)
    write(root, {"a": "1"})
    commit = snapshot(StudyPaths(root, "demo"), "m")
    assert git(root, "log", "-1", "--format=%an <%ae>", commit) == "nightlab <nightlab@localhost>"


def test_an_unfinished_merge_is_refused(root: Path, paths: StudyPaths) -> None:
    git(root, "checkout", "--quiet", "-b", "side")
    write(root, {"train.py": "side"})
    git(root, "commit", "--quiet", "-a", "-m", "side")
    git(root, "checkout", "--quiet", "main")
    write(root, {"train.py": "main"})
    git(root, "commit", "--quiet", "-a", "-m", "main")
    git(root, "merge", "side", check=False)
    with pytest.raises(GitError, match=r"train.py has merge conflicts"):
        snapshot(paths, "m")


def test_a_submodule_with_work_of_its_own_is_refused(root: Path, tmp_path: Path, paths: StudyPaths) -> None:
    library = make_repository(tmp_path / "library", {"lib.py": "1"})
    git(root, "submodule", "--quiet", "add", str(library), "deps/lib")
    git(root, "commit", "--quiet", "-m", "submodule")
    write(root, {"deps/lib/lib.py": "2"})
    with pytest.raises(GitError, match="submodule deps/lib has uncommitted changes"):
        snapshot(paths, "m")
