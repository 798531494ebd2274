from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.errors import GitError
from nightlab.worktrees.submodules import init_submodules
from nightlab.worktrees.trees import Worktrees
from tests.worktrees.repositories import git, make_repository, users_state, write


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a submodule that has one itself, as a person gets it by `git clone`."""
    make_repository(tmp_path / "inner", {"inner.py": "1"})
    middle = make_repository(tmp_path / "middle", {"middle.py": "1"})
    git(middle, "submodule", "--quiet", "add", "../inner", "inner")
    git(middle, "commit", "--quiet", "-m", "inner")
    source = make_repository(tmp_path / "source", {"train.py": ""})
    git(source, "submodule", "--quiet", "add", "../middle", "deps/middle")
    git(source, "commit", "--quiet", "-m", "middle")
    git(tmp_path, "clone", "--quiet", "source", "project")
    return tmp_path / "project"


def tree_of(root: Path) -> Path:
    return Worktrees(StudyPaths(root, "demo")).ensure_replica_tree(0, git(root, "rev-parse", "HEAD"), "seed-1")


def test_the_users_copies_serve_without_their_origin(project: Path, tmp_path: Path) -> None:
    git(project, "submodule", "--quiet", "update", "--init", "--recursive")
    git(
        project / "deps/middle", "-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "2"
    )
    git(project, "-c", "user.name=A", "-c", "user.email=a@b", "commit", "--quiet", "-a", "-m", "unpublished submodule")
    for origin in ("inner", "middle", "source"):
        shutil.rmtree(tmp_path / origin)
    tree = tree_of(project)
    before = users_state(project)
    for _ in range(2):
        init_submodules(tree)
    assert (tree / "deps/middle/middle.py").exists() and (tree / "deps/middle/inner/inner.py").exists()
    assert git(tree, "status", "--porcelain") == ""
    assert users_state(project) == before


def test_what_the_user_has_not_fetched_comes_from_its_address(project: Path) -> None:
    tree = tree_of(project)
    before = users_state(project)
    init_submodules(tree)
    assert (tree / "deps/middle/inner/inner.py").exists()
    assert users_state(project) == before


def test_a_clone_killed_half_way_is_made_anew(project: Path) -> None:
    git(project, "submodule", "--quiet", "update", "--init", "--recursive")
    tree = tree_of(project)
    torn = Path(git(tree, "rev-parse", "--absolute-git-dir")) / "modules/deps/middle"
    write(torn, {"HEAD": "ref: refs/heads/main\n", "objects/pack/tmp_pack_1": "torn"})
    init_submodules(tree)
    assert (tree / "deps/middle/inner/inner.py").exists()


def test_an_unreachable_submodule_is_named_unless_switched_off(project: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "middle")
    tree = tree_of(project)
    with pytest.raises(GitError, match=r"submodule deps/middle \(run `git submodule update --init deps/middle`"):
        init_submodules(tree)
    git(project, "config", "submodule.deps/middle.active", "false")
    init_submodules(tree)
    assert list((tree / "deps/middle").iterdir()) == []


def test_trees_with_submodules_are_removed_whole(project: Path) -> None:
    tree = tree_of(project)
    init_submodules(tree)
    Worktrees(StudyPaths(project, "demo")).remove_all()
    assert not tree.exists() and not any((project / ".git/worktrees").glob("*"))


def test_without_submodules_there_is_nothing_to_do(root: Path) -> None:
    before = users_state(root)
    init_submodules(root)
    assert users_state(root) == before
