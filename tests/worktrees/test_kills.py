"""kill -9 at every kind of moment: what git left behind is cleared, and the experiment's tree stands again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.worktrees.snapshot import base_ref, snapshot
from nightlab.worktrees.trees import Worktrees
from tests.worktrees.repositories import git, make_busy, make_repository, users_state, write

BRANCH = "experiment-03-x"


def admin(tree: Path) -> Path:
    return Path(git(tree, "rev-parse", "--absolute-git-dir"))


def initializing(tree: Path) -> None:
    (admin(tree) / "locked").write_text("initializing")


def nameless(tree: Path) -> None:
    folder = admin(tree)
    initializing(tree)
    (folder / "gitdir").unlink()
    shutil.rmtree(tree)


def empty_head(tree: Path) -> None:
    (admin(tree) / "HEAD").write_text("")


def half_registered(tree: Path) -> None:
    """Killed while `commondir` was written: git then refuses to list any worktree, or to add another."""
    initializing(tree)
    (admin(tree) / "commondir").write_text("")
    assert git(tree.parents[3], "worktree", "list", check=False) == ""


def tree_by_hand(tree: Path) -> None:
    shutil.rmtree(tree)


def initializing_without_tree(tree: Path) -> None:
    initializing(tree)
    shutil.rmtree(tree)


def unlinked(tree: Path) -> None:
    (tree / ".git").unlink()


def half_removed(tree: Path) -> None:
    shutil.rmtree(admin(tree))
    (tree / "train.py").unlink()


def without_index(tree: Path) -> None:
    (admin(tree) / "index").unlink()


def index_lock(tree: Path) -> None:
    (admin(tree) / "index.lock").write_text("")
    (admin(tree) / "HEAD.lock").write_text("")


def branch_lock(tree: Path) -> None:
    (admin(tree).parents[1] / "refs/heads" / f"{BRANCH}.lock").write_text("")


def a_file_in_its_place(tree: Path) -> None:
    shutil.rmtree(tree)
    tree.write_text("")


def a_repository_in_its_place(tree: Path) -> None:
    shutil.rmtree(tree)
    make_repository(tree, {"stranger": ""})


DAMAGES = [
    initializing,
    initializing_without_tree,
    nameless,
    half_registered,
    empty_head,
    tree_by_hand,
    unlinked,
    half_removed,
    without_index,
    index_lock,
    branch_lock,
    a_file_in_its_place,
    a_repository_in_its_place,
]


@pytest.mark.parametrize("healed_first", [False, True])
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_the_experiments_tree_stands_again(
    trees: Worktrees, root: Path, base: str, damage: Callable[[Path], None], healed_first: bool
) -> None:
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    commit = trees.commit_files(tree, {"params.json": "1"}, "m")
    damage(tree)
    if healed_first:
        trees.heal()
        assert trees.leftovers() == []
    assert trees.ensure_branch_tree(3, BRANCH, base) == tree
    assert git(tree, "rev-parse", "HEAD") == commit
    assert git(tree, "status", "--porcelain") == ""
    assert trees.commit_files(tree, {"params.json": "2"}, "m") == git(root, "rev-parse", BRANCH) != commit
    trees.heal()
    assert len(git(root, "worktree", "list").splitlines()) == 2


def test_a_half_made_tree_of_any_study_is_in_nobodys_way(trees: Worktrees, root: Path, base: str) -> None:
    other = Worktrees(StudyPaths(root, "other"))
    half_registered(trees.ensure_replica_tree(1, base, "seed-1"))
    trees.ensure_branch_tree(3, BRANCH, base)
    half_registered(other.ensure_replica_tree(1, base, "seed-1"))
    trees.ensure_replica_tree(3, base, "seed-1")
    assert len(git(root, "worktree", "list").splitlines()) == 3


def test_leftovers_are_named_and_whole_trees_kept(trees: Worktrees, base: str) -> None:
    whole = trees.ensure_branch_tree(1, "experiment-01-x", base)
    half = trees.ensure_replica_tree(2, base, "seed-1")
    initializing(half)
    (trees.paths.worktrees / "experiment-07").mkdir()
    assert trees.leftovers() == [half, trees.paths.worktrees / "experiment-07"]
    assert trees.heal() == [half, trees.paths.worktrees / "experiment-07"]
    assert list(trees.paths.worktrees.iterdir()) == [whole]


def test_a_git_command_of_the_users_is_not_in_the_way(trees: Worktrees, root: Path, base: str) -> None:
    (root / ".git/index.lock").write_text("")
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    trees.commit_files(tree, {"params.json": "1"}, "m")
    trees.heal()
    assert (root / ".git/index.lock").exists()


def test_a_lock_that_goes_away_is_waited_for(root: Path, paths: StudyPaths) -> None:
    write(root, {"new.txt": ""})
    lock = root / ".git" / f"{base_ref('demo')}.lock"
    write(lock.parent, {lock.name: ""})
    timer = threading.Timer(0.3, lock.unlink)
    timer.start()
    assert git(root, "rev-parse", base_ref("demo"), check=False) == base_ref("demo")
    assert snapshot(paths, "m") == git(root, "rev-parse", base_ref("demo"))
    timer.join()


NURSERY = """
import os, sys
from pathlib import Path
from nightlab.configs.paths import StudyPaths
from nightlab.worktrees.trees import Worktrees

root, base = sys.argv[1:]

def work():
    trees = Worktrees(StudyPaths(Path(root), "demo"))
    for turn in range(1000):
        for number in range(2):
            tree = trees.ensure_branch_tree(number, f"experiment-{number:02d}-x", base)
            trees.commit_files(tree, {"params.json": str(turn)}, "m")
            trees.ensure_replica_tree(number, base, "seed-1")
        trees.remove_all()

for _ in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        print(os.getpid(), flush=True)
        work()
    os.waitpid(child, 0)
    print("gone", flush=True)
"""


@pytest.fixture
def big(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "big", {f"folder-{i % 20}/{i}.txt": f"{i}\n" * 50 for i in range(200)})


@pytest.fixture
def nursery(big: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", NURSERY, str(big), git(big, "rev-parse", "HEAD")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


def kill_a_lab(nursery: subprocess.Popen[str], after_seconds: float, *, with_git: bool) -> None:
    assert nursery.stdin and nursery.stdout
    nursery.stdin.write("\n")
    nursery.stdin.flush()
    pid = int(nursery.stdout.readline())
    time.sleep(after_seconds)
    (os.killpg if with_git else os.kill)(pid, signal.SIGKILL)
    assert nursery.stdout.readline() == "gone\n"


def test_a_lab_killed_at_any_moment_leaves_nothing_that_cannot_be_healed(
    big: Path, nursery: subprocess.Popen[str]
) -> None:
    base = git(big, "rev-parse", "HEAD")
    make_busy(big)
    trees = Worktrees(StudyPaths(big, "demo"))
    trees.git.exclude("/.nightlab/")
    before = users_state(big)
    moment = random.Random(0)  # noqa: S311
    for point in range(10):
        kill_a_lab(nursery, moment.uniform(0.0, 0.5), with_git=point % 2 == 0)
        if point % 3:
            trees.heal()
            assert trees.leftovers() == []
        for number in range(2):
            tree = trees.ensure_branch_tree(number, f"experiment-{number:02d}-x", base)
            # A commit may have been cut off after the file was written; the next one takes it along.
            assert git(tree, "status", "--porcelain").split()[1:] in ([], ["params.json"])
            commit = trees.commit_files(tree, {"params.json": f"after {point}"}, "m")
            assert git(tree, "diff", "--name-only", base, commit) == "params.json"
            assert git(tree, "status", "--porcelain") == ""
            assert git(trees.ensure_replica_tree(number, base, "seed-1"), "status", "--porcelain") == ""
    trees.remove_all()
    assert users_state(big) == before
    assert not any((big / ".git/worktrees").glob("*")) and not any(trees.paths.worktrees.iterdir())


ADD_ONE = """
import sys
from pathlib import Path
from nightlab.configs.paths import StudyPaths
from nightlab.worktrees.trees import Worktrees

Worktrees(StudyPaths(Path(sys.argv[1]), "demo")).ensure_branch_tree(3, "experiment-03-x", sys.argv[2])
"""


def test_git_that_outlives_its_lab_is_waited_for(root: Path, trees: Worktrees, tmp_path: Path) -> None:
    log = tmp_path / "filter.log"
    git(root, "config", "filter.slow.smudge", f"echo start >> {log}; sleep 1; echo end >> {log}; cat")
    write(root, {".gitattributes": "slow.txt filter=slow\n", "slow.txt": "slow\n"})
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", "slow")
    base = git(root, "rev-parse", "HEAD")
    with subprocess.Popen([sys.executable, "-c", ADD_ONE, str(root), base]) as lab:
        while not log.exists():
            time.sleep(0.02)
        lab.kill()
    tree = trees.ensure_branch_tree(3, BRANCH, base)
    assert (tree / "slow.txt").read_text() == "slow\n"
    assert log.read_text().split() in (["start", "end"], ["start", "end"] * 2)
