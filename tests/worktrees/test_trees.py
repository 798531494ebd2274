from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.errors import ConfigError, GitError
from nightlab.worktrees.trees import Worktrees
from tests.worktrees.repositories import git, make_busy, make_repository, users_state, write

BRANCH = "experiment-03-demo-sft-lr-0-003"


def test_an_experiment_gets_its_branch_tree_and_commit(trees: Worktrees, root: Path, base: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    assert tree == root / ".nightlab/worktrees/demo/experiment-03"
    assert (tree / "train.py").read_text() == (root / "train.py").read_text()
    commit = trees.commit_files(
        tree, {"params.json": '{"lr": 0.003}\n', "a/EXPERIMENT.md": "# 3\n"}, "experiment 03: lr"
    )
    assert git(root, "rev-parse", BRANCH, f"{BRANCH}^").split() == [commit, base]
    assert git(root, "diff", "--name-only", base, commit).split() == ["a/EXPERIMENT.md", "params.json"]
    assert git(root, "log", "-1", "--format=%an <%ae>|%s|%(trailers)", commit).strip() == (
        "Ada <ada@example.org>|experiment 03: lr|Nightlab-Study: demo"
    )
    assert trees.leftovers() == []


def test_the_users_checkout_never_changes(trees: Worktrees, root: Path, base: str) -> None:
    make_busy(root)
    git(root, "config", "commit.gpgsign", "true")
    git(root, "config", "branch.autoSetupMerge", "always")
    trees.git.exclude("/.nightlab/")
    before = users_state(root)
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    commit = trees.commit_files(tree, {"params.json": "{}"}, "m")
    trees.ensure_replica_tree(3, commit, "seed-2")
    trees.heal()
    trees.remove(tree)
    trees.ensure_branch_tree(3, BRANCH, base, commit)
    trees.remove_all()
    assert users_state(root) == before


def test_asking_again_gives_the_same_tree_untouched(trees: Worktrees, base: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    write(tree, {"output.bin": "made by a run"})
    assert trees.ensure_branch_tree(3, BRANCH, base) == tree
    commit = trees.commit_files(tree, {"params.json": "{}"}, "m")
    assert trees.commit_files(tree, {"params.json": "{}"}, "again") == commit
    assert trees.ensure_branch_tree(3, BRANCH, base, commit) == tree
    assert (tree / "output.bin").exists()


def test_a_removed_tree_comes_back_at_the_branchs_tip(trees: Worktrees, root: Path, base: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    commit = trees.commit_files(tree, {"params.json": "{}"}, "m")
    card = trees.commit_files(tree, {"RESULT.json": "{}"}, "card")
    trees.remove(tree)
    assert not tree.exists() and git(root, "worktree", "list").count("\n") == 0
    assert git(trees.ensure_branch_tree(3, BRANCH, base, commit), "rev-parse", "HEAD") == card


def test_a_commit_the_ledger_never_heard_of_is_kept(trees: Worktrees, root: Path, base: str) -> None:
    commit = trees.commit_files(trees.ensure_branch_tree(3, BRANCH, base), {"params.json": "{}"}, "m")
    trees.remove_all()
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    assert trees.commit_files(tree, {"params.json": "{}"}, "m") == commit == git(root, "rev-parse", BRANCH)


def test_a_deleted_branch_is_made_anew_from_the_experiments_commit(trees: Worktrees, root: Path, base: str) -> None:
    commit = trees.commit_files(trees.ensure_branch_tree(3, BRANCH, base), {"params.json": "{}"}, "m")
    trees.remove_all()
    git(root, "branch", "-D", BRANCH)
    tree = trees.ensure_branch_tree(3, BRANCH, base, commit)
    assert git(tree, "rev-parse", "HEAD") == commit


@pytest.mark.parametrize("recorded", [False, True])
def test_a_branch_with_other_work_is_left_alone(trees: Worktrees, root: Path, base: str, recorded: bool) -> None:
    git(root, "commit", "--quiet", "--allow-empty", "-m", "a person's")
    git(root, "branch", BRANCH)
    git(root, "commit", "--quiet", "--allow-empty", "-m", "beside it")
    own = git(root, "rev-parse", "HEAD")
    tip = git(root, "rev-parse", BRANCH)
    with pytest.raises(GitError, match=f"branch {BRANCH} holds other work .* `git branch -m"):
        trees.ensure_branch_tree(3, BRANCH, base, own if recorded else None)
    assert git(root, "rev-parse", BRANCH) == tip


def test_another_studys_branch_from_the_same_base_is_left_alone(trees: Worktrees, root: Path, base: str) -> None:
    other = Worktrees(StudyPaths(root, "other"))
    other.commit_files(other.ensure_branch_tree(3, BRANCH, base), {"params.json": "{}"}, "m")
    other.remove_all()
    with pytest.raises(GitError, match="holds other work"):
        trees.ensure_branch_tree(3, BRANCH, base)


def test_a_branch_that_a_person_has_checked_out_is_not_moved_under_them(
    trees: Worktrees, root: Path, base: str
) -> None:
    commit = trees.commit_files(trees.ensure_branch_tree(3, BRANCH, base), {"params.json": "{}"}, "m")
    trees.remove_all()
    git(root, "checkout", "--quiet", BRANCH)
    with pytest.raises(GitError, match=f"checked out in {root} .switch that checkout"):
        trees.ensure_branch_tree(3, BRANCH, base, commit)
    assert git(trees.ensure_replica_tree(3, commit, "seed-2"), "rev-parse", "HEAD") == commit


def test_replicas_stand_side_by_side_on_no_branch(trees: Worktrees, root: Path, base: str) -> None:
    commit = trees.commit_files(trees.ensure_branch_tree(3, BRANCH, base), {"params.json": "{}"}, "m")
    replicas = [trees.ensure_replica_tree(3, commit, f"seed-{seed}") for seed in (1, 2)]
    assert [tree.name for tree in replicas] == ["experiment-03.seed-1", "experiment-03.seed-2"]
    for tree in replicas:
        assert git(tree, "rev-parse", "HEAD") == commit
        assert git(tree, "symbolic-ref", "--quiet", "HEAD", check=False) == ""
    write(replicas[0], {"train.py": "changed by its run"})
    assert (replicas[1] / "train.py").read_text() == (root / "train.py").read_text()
    assert trees.ensure_replica_tree(3, base, "seed-1") == replicas[0]
    assert git(replicas[0], "rev-parse", "HEAD") == base


def test_removing_one_experiment_leaves_the_others(trees: Worktrees, root: Path, base: str) -> None:
    kept = [trees.ensure_replica_tree(30, base, "seed-1"), trees.ensure_branch_tree(4, "experiment-04-x", base)]
    trees.ensure_branch_tree(3, BRANCH, base)
    trees.ensure_replica_tree(3, base, "seed-1")
    assert [tree.name for tree in trees.remove_experiment(3)] == ["experiment-03", "experiment-03.seed-1"]
    assert sorted(trees.paths.worktrees.iterdir()) == sorted(kept)
    assert len(git(root, "worktree", "list").splitlines()) == 3


def test_only_this_studys_trees_are_removed(trees: Worktrees, root: Path, base: str, tmp_path: Path) -> None:
    git(root, "worktree", "add", "--quiet", "--detach", str(tmp_path / "mine"))
    git(root, "worktree", "add", "--quiet", "--detach", str(tmp_path / "unplugged"))
    (tmp_path / "unplugged").rename(tmp_path / "away")
    other = Worktrees(StudyPaths(root, "other")).ensure_replica_tree(3, base, "seed-1")
    trees.ensure_branch_tree(3, BRANCH, base)
    trees.heal()
    trees.remove_all()
    home = trees.paths.worktrees
    for path in (tmp_path / "mine", root, home, home / "..", home / "../other", home / "experiment-03/eval"):
        with pytest.raises(GitError, match="left alone"):
            trees.remove(path)
    (tmp_path / "away").rename(tmp_path / "unplugged")
    for tree in (tmp_path / "mine", tmp_path / "unplugged", other):
        assert git(tree, "rev-parse", "HEAD") == base


def test_removal_does_not_follow_links(trees: Worktrees, root: Path, base: str) -> None:
    write(root, {"data/big.bin": "precious"})
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    (tree / "data").symlink_to(root / "data")
    trees.paths.worktrees.joinpath("experiment-09").symlink_to(root / "data")
    trees.remove_all()
    assert (root / "data/big.bin").read_text() == "precious"
    assert list(trees.paths.worktrees.iterdir()) == []


def test_a_commit_holds_the_given_files_only(trees: Worktrees, root: Path, base: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    write(tree, {"train.py": "changed by a run", "other.txt": "staged by a run"})
    git(tree, "add", "other.txt")
    commit = trees.commit_files(tree, {"ignored.log": "kept all the same", ":(top)odd*.md": "literal"}, "m")
    assert git(root, "diff", "--name-only", base, commit).split() == [":(top)odd*.md", "ignored.log"]
    assert trees.commit_files(tree, {}, "nothing") == commit


@pytest.mark.parametrize("path", ["", "../out", "/etc/out", ".git/config", "eval/../../out", "eval/.GIT/x", "away/out"])
def test_a_path_that_leaves_the_tree_is_refused(trees: Worktrees, base: str, tmp_path: Path, path: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    (tree / "away").symlink_to(tmp_path)
    with pytest.raises(GitError, match=r"not a path inside|symbolic link"):
        trees.commit_files(tree, {"good.txt": "not written either", path: "bad"}, "m")
    assert not (tmp_path / "out").exists() and not (tree / "good.txt").exists()


def test_a_file_that_is_a_link_is_not_written_through(trees: Worktrees, root: Path, base: str) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    (tree / "params.json").unlink()
    (tree / "params.json").symlink_to(root / "params.json")
    with pytest.raises(GitError, match="symbolic link"):
        trees.commit_files(tree, {"params.json": "{}"}, "m")
    assert (root / "params.json").read_text() == '{"lr": 0.1}\n'


def test_without_an_identity_the_lab_signs(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "anonymous", {"a": ""}, identity=False)
    trees = Worktrees(StudyPaths(root, "demo"))
    tree = trees.ensure_branch_tree(0, "experiment-00-x", git(root, "rev-parse", "HEAD"))
    commit = trees.commit_files(tree, {"a": "1"}, "m")
    assert git(root, "log", "-1", "--format=%an <%ae> %cn", commit) == "nightlab <nightlab@localhost> nightlab"


@pytest.mark.parametrize("name", ["--orphan", "a/b", "Experiment", ""])
def test_names_that_git_could_misread_are_refused(trees: Worktrees, base: str, name: str) -> None:
    with pytest.raises(ConfigError):
        trees.ensure_branch_tree(0, name, base)
    with pytest.raises(ConfigError):
        trees.ensure_replica_tree(0, base, name)
    assert not trees.paths.worktrees.exists()


def test_a_checkout_that_is_itself_a_worktree_works(root: Path, base: str, tmp_path: Path) -> None:
    git(root, "worktree", "add", "--quiet", str(tmp_path / "second"), "-b", "second")
    trees = Worktrees(StudyPaths(tmp_path / "second", "demo"))
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    trees.commit_files(tree, {"params.json": "{}"}, "m")
    assert git(tmp_path / "second", "status", "--porcelain") == ""
    trees.remove_all()
    assert len(git(root, "worktree", "list").splitlines()) == 2


ADD_MANY = """
import sys
from pathlib import Path
from nightlab.configs.paths import StudyPaths
from nightlab.worktrees.trees import Worktrees

root, study, base, first = sys.argv[1:]
trees = Worktrees(StudyPaths(Path(root), study))
for number in range(int(first), int(first) + 4):
    tree = trees.ensure_branch_tree(number, f"experiment-{number:02d}-x", base)
    trees.commit_files(tree, {"params.json": str(number)}, "m")
    trees.remove(trees.ensure_replica_tree(number, base, "seed-1"))
"""


def test_labs_in_one_repository_do_not_trip_over_each_other(root: Path, base: str) -> None:
    command = [sys.executable, "-c", ADD_MANY, str(root)]
    labs = [
        subprocess.Popen([*command, study, base, first], stderr=subprocess.PIPE, text=True)
        for study, first in (("one", "0"), ("one", "10"), ("two", "20"))
    ]
    assert [lab.communicate()[1] for lab in labs] == ["", "", ""]
    assert len(git(root, "worktree", "list").splitlines()) == 1 + 3 * 4
    for number in (*range(4), *range(10, 14), *range(20, 24)):
        assert git(root, "show", f"experiment-{number:02d}-x:params.json") == str(number)
