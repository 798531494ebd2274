from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.errors import ConfigError, GitError
from nightlab.worktrees.inputs import check_inputs, link_inputs
from nightlab.worktrees.trees import Worktrees
from tests.worktrees.repositories import git, write


@pytest.fixture
def tree(trees: Worktrees, base: str) -> Path:
    return trees.ensure_branch_tree(0, "experiment-00-x", base)


def test_relative_paths_work_as_in_the_users_checkout(root: Path, tree: Path, trees: Worktrees, base: str) -> None:
    write(root, {"data/train.txt": "text", "models/base/w.bin": "w"})
    for _ in range(2):
        link_inputs(root, tree, ["data/", "./models/base/w.bin"])
    assert (tree / "data/train.txt").read_text() == "text"
    assert (tree / "models/base/w.bin").readlink() == root / "models/base/w.bin"
    assert not (tree / "models").is_symlink()
    commit = trees.commit_files(tree, {"params.json": "{}"}, "m")
    assert git(root, "diff", "--name-only", base, commit) == "params.json"


def test_a_link_of_the_users_own_may_lead_anywhere(root: Path, tree: Path, tmp_path: Path) -> None:
    write(tmp_path / "disk", {"a.txt": "far"})
    (root / "corpus").symlink_to(tmp_path / "disk")
    link_inputs(root, tree, ["corpus"])
    assert (tree / "corpus/a.txt").read_text() == "far"


def test_an_input_below_another_makes_no_link_in_the_users_folder(root: Path, tree: Path) -> None:
    write(root, {"data/sub/a.txt": ""})
    link_inputs(root, tree, ["data/sub", "data"])
    assert (tree / "data").is_symlink() and not (root / "data/sub").is_symlink()


def test_a_stale_link_is_replaced_and_a_real_file_is_not(root: Path, tree: Path) -> None:
    write(root, {"data/a.txt": ""})
    (tree / "data").symlink_to("/nowhere")
    link_inputs(root, tree, ["data"])
    assert (tree / "data/a.txt").exists()
    (tree / "data").unlink()
    write(tree, {"data/own.txt": ""})
    with pytest.raises(GitError, match="stands where an input is to be linked"):
        link_inputs(root, tree, ["data"])
    assert (tree / "data/own.txt").exists()


def test_every_bad_input_is_named_at_once(root: Path, tree: Path, tmp_path: Path) -> None:
    (root / "away").symlink_to(tmp_path)
    bad = ["absent", "../up", "/etc", ".", ".git/config", ".nightlab", "train.py", "eval", "away/project"]
    with pytest.raises(ConfigError) as caught:
        link_inputs(root, tree, bad)
    assert [fault.value for fault in caught.value.faults] == bad
    text = str(caught.value)
    assert "'absent' does not exist" in text and "'eval' is tracked by git (eval/metric.py)" in text
    assert all(fault.key == "inputs" and fault.mend for fault in caught.value.faults)
    assert not any(path.is_symlink() for path in tree.iterdir())


def test_good_inputs_have_no_fault(root: Path) -> None:
    write(root, {"data/a": ""})
    assert check_inputs(root, ["data"]) == []
