"""A disk that takes no more: whatever is being written, the file before it stays whole, and later it goes on."""

from __future__ import annotations

import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.configs.study import BackendSettings
from nightlab.errors import DiskError
from nightlab.graph.checkpoints import open_checkpoints
from nightlab.knowledge import lessons
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import JobState, Lesson, VerdictKind
from nightlab.tools.backends.base import JobSpec
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.disk import free_bytes, keep_reserve, release_reserve, require_space
from nightlab.worktrees.trees import Worktrees
from tests.small_disk import SmallDisk, small_disk
from tests.task import git, make_repository

BIG = "x" * 300_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", 12) as made:
        yield made


def lesson(text: str) -> Lesson:
    return Lesson(
        id=text[:16], time=datetime(2026, 1, 1, tzinfo=UTC), study="s", scenario="t", base_model="b", method="m",
        parameters={}, metric="loss", verdict=VerdictKind.KEEP, label=text, evidence={},
    )  # fmt: skip


def write_a_document(folder: Path) -> None:
    write_atomically(folder / "final_report.md", BIG)


def append_a_lesson(folder: Path) -> None:
    lessons.append(folder / "lessons.jsonl", lesson(BIG))


def write_the_ledger(folder: Path) -> None:
    with Ledger.open(folder / "ledger.sqlite") as ledger, ledger.transaction():
        ledger.add_event("note", "first")
        ledger.add_event("note", BIG)


def write_a_checkpoint(folder: Path) -> None:
    with open_checkpoints(folder / "checkpoints.sqlite") as saver:
        checkpoint = empty_checkpoint() | {"channel_values": {"text": BIG}}
        config = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}
        saver.put(config, checkpoint, {}, {})  # type: ignore[arg-type]


WRITERS = [write_a_document, append_a_lesson, write_the_ledger, write_a_checkpoint]


def contents(folder: Path) -> dict[str, str]:
    """File → text, of a database the statements that make it; the names say that nothing is left beside them."""
    held = {path for path in folder.iterdir() if path.name != "ballast" and not path.name.endswith(("-wal", "-shm"))}
    return {path.name: dump(path) if path.suffix == ".sqlite" else path.read_text() for path in held}


def dump(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return "".join(connection.iterdump())


def prepared(folder: Path) -> None:
    (folder / "final_report.md").write_text("the report before\n")
    lessons.append(folder / "lessons.jsonl", lesson("before"))
    with Ledger.open(folder / "ledger.sqlite") as ledger:
        ledger.add_event("note", "before")
    with open_checkpoints(folder / "checkpoints.sqlite"):
        pass


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_full_disk_leaves_everything_as_it_was_and_the_same_write_works_later(
    disk: SmallDisk, write: Callable[[Path], None]
) -> None:
    prepared(disk.folder)
    before = contents(disk.folder)
    disk.fill(leave_bytes=100_000)
    with pytest.raises(DiskError, match=r"cannot be written: .*free on its disk; make room there") as told:
        write(disk.folder)
    assert "\n" not in str(told.value) and str(told.value).startswith(str(disk.folder))
    assert contents(disk.folder) == before
    disk.free()
    write(disk.folder)
    assert contents(disk.folder) != before


LIMITED = """
import resource, sys
from pathlib import Path
from nightlab.errors import DiskError
from tests.tools import test_disk
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, resource.RLIM_INFINITY))
try:
    getattr(test_disk, sys.argv[1])(Path(sys.argv[2]))
except DiskError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__)
def test_a_limit_of_the_process_is_told_like_a_full_disk(tmp_path: Path, write: Callable[[Path], None]) -> None:
    prepared(tmp_path)
    before = contents(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, write.__name__, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert "cannot be written: " in done.stderr and done.stderr.count("\n") == 1
    assert contents(tmp_path) == before


def job(folder: Path, command: str) -> JobSpec:
    return JobSpec(key="tiny/01/1/0", command=("sh", "-c", command), cwd=folder, env={}, directory=folder / "job")


def test_a_job_that_ends_on_a_full_disk_keeps_its_result_until_there_is_room(disk: SmallDisk, tmp_path: Path) -> None:
    begin, end = shlex.quote(str(tmp_path / "begin")), shlex.quote(str(tmp_path / "end"))
    backend, spec = (
        LocalBackend(BackendSettings()),
        job(disk.folder, f"while [ ! -e {begin} ]; do :; done; touch {end}"),
    )
    backend.submit(spec)
    places = {spec.key: spec.directory}
    disk.fill()
    Path(begin.strip("'")).touch()
    while not Path(end.strip("'")).exists():
        pass
    assert not backend.wait(places, 0.5)
    assert backend.poll(places)[spec.key].state is JobState.RUNNING
    disk.free()
    assert backend.wait(places, 30.0)
    status = backend.poll(places)[spec.key]
    assert (status.state, status.exit_code) == (JobState.ENDED, 0)
    assert not list(spec.directory.glob("*.tmp"))


def test_a_job_is_not_submitted_to_a_full_disk_and_is_later(disk: SmallDisk) -> None:
    backend, spec = LocalBackend(BackendSettings()), job(disk.folder, "exit 3")
    disk.fill()
    with pytest.raises(DiskError):
        backend.submit(spec)
    assert backend.poll({spec.key: spec.directory})[spec.key].state is JobState.LOST
    disk.free()
    backend.submit(spec)
    assert backend.wait({spec.key: spec.directory}, 30.0)
    assert backend.poll({spec.key: spec.directory})[spec.key].exit_code == 3
    assert JobPaths(spec.directory).result.exists()


def test_git_on_a_full_disk_is_told_and_healed(disk: SmallDisk) -> None:
    root = make_repository(disk.folder / "repo").parent
    trees, base = Worktrees(StudyPaths(root, "tiny")), git(root, "rev-parse", "HEAD")
    tree = trees.ensure_branch_tree(1, "experiment-01-toy", base)
    disk.fill()
    with pytest.raises(DiskError):
        trees.commit_files(tree, {"params.json": BIG}, "change")
    with pytest.raises(DiskError):
        trees.ensure_replica_tree(1, base, "seed-2")
    disk.free()
    trees.heal()
    commit = trees.commit_files(tree, {"params.json": BIG}, "change")
    assert git(root, "show", f"{commit}:params.json") == BIG
    assert trees.ensure_replica_tree(1, base, "seed-2").is_dir()
    git(root, "fsck", "--strict")


def test_free_room_is_that_of_the_disk_a_path_will_lie_on(disk: SmallDisk, tmp_path: Path) -> None:
    disk.fill(leave_bytes=2_000_000)
    assert free_bytes(disk.folder / "not" / "yet") == pytest.approx(2_000_000, abs=200_000)
    require_space(disk.folder / "report", 1_000_000)
    with pytest.raises(DiskError, match=r"less than 3\.0 MB left on the disk \(2\.\d MB free"):
        require_space(disk.folder / "report", 3_000_000)


def test_the_reserve_takes_room_only_where_there_is_enough_and_gives_it_back(disk: SmallDisk) -> None:
    reserve = disk.folder / "study" / "reserve"
    before = free_bytes(disk.folder)
    assert keep_reserve(reserve, 2_000_000) and keep_reserve(reserve, 2_000_000)
    assert before - free_bytes(disk.folder) == pytest.approx(2_000_000, abs=100_000)
    disk.fill()
    release_reserve(reserve)
    assert free_bytes(disk.folder) >= 2_000_000
    assert not keep_reserve(reserve, 2_000_000) and not reserve.exists()
