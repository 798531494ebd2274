"""Git on a disk that is full to the last byte, or nearly: one kind of error, and afterwards it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.errors import DiskError
from nightlab.worktrees.git import Git
from nightlab.worktrees.snapshot import snapshot
from nightlab.worktrees.trees import Worktrees
from tests.small_disk import SmallDisk, small_disk
from tests.worktrees.repositories import git, make_repository, write

BRANCH = "experiment-03-demo-sft-lr-0-003"
FREE_BYTES = (0, 4096, 8192, 16_384, 28_672, 40_960, 65_536, 131_072)

Work = Callable[[Worktrees, str], object]

WORK: dict[str, Work] = {
    "branch tree": lambda trees, base: trees.ensure_branch_tree(3, BRANCH, base),
    "replica tree": lambda trees, base: trees.ensure_replica_tree(3, base, "seed-2"),
    "commit": lambda trees, _: trees.commit_files(
        trees.paths.worktrees / "ready", {"params.json": "{}" * 40_000, "a/b.md": "b"}, "m"
    ),
    "comparison": lambda trees, base: trees.git.differing(base, ["data"]),
    "snapshot": lambda trees, _: snapshot(trees.paths, "s"),
    "branch": lambda trees, base: trees.git.output("branch", "--force", "winner", base),
    "reference": lambda trees, base: trees.git.output("update-ref", "refs/heads/other", base),
    "removal": lambda trees, _: trees.remove_all(),
}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 12) as made:
        yield made


@pytest.mark.parametrize("work", WORK)
def test_whatever_git_cannot_write_is_the_disks_error_and_later_it_can(disk: SmallDisk, work: str) -> None:
    files = {"train.py": "print(1)\n", **{f"data/{n}.txt": f"{n}\n" * 1500 for n in range(100)}}
    root = make_repository(disk.folder / "repo", files)
    base, trees = git(root, "rev-parse", "HEAD"), Worktrees(StudyPaths(root, "demo"))
    trees.git.exclude("/.nightlab/")
    git(root, "worktree", "add", "--quiet", "-b", "ready", str(trees.paths.worktrees / "ready"), base)
    write(root, {"train.py": "print(2)\n" * 9000, "notes.txt": "new\n"})
    refused = 0
    for free_bytes in FREE_BYTES:
        disk.fill(free_bytes)
        try:
            WORK[work](trees, base)
        except DiskError as error:
            refused += 1
            assert "make room there" in str(error) and "\n" not in str(error)
        disk.free()
    assert refused or work == "removal", "the disk was not full enough to show anything"
    WORK[work](trees, base)
    assert git(root, "fsck", "--connectivity-only") == ""
    assert git(root, "rev-parse", "HEAD") == base


def test_git_reads_on_a_full_disk(disk: SmallDisk) -> None:
    root = make_repository(disk.folder / "repo", {"train.py": "print(1)\n"})
    write(root, {"train.py": "print(2)\n"})
    disk.fill()
    own = Git(root)
    assert own.changes() == ["train.py"] and own.show_file("HEAD", "train.py") == "print(1)\n"
    with suppress(DiskError):
        own.output("branch", "b", "HEAD")
    assert own.resolve("HEAD") == git(root, "rev-parse", "HEAD")
