"""Copies of a ledger: whole, checked, the latest two; what goes wrong on the way leaves them as they were."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge.backup import back_up, story_of
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Run
from tests.small_disk import small_disk

Plan = Callable[..., Run]


@pytest.fixture
def copies(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "copies" / "new.sqlite", tmp_path / "copies" / "old.sqlite"


def events_in(path: Path) -> list[str]:
    with Ledger.open(path) as ledger:
        return [event.text for event in ledger.events()]


def test_the_latest_two_copies_stay_and_each_is_one_whole_file(
    path: Path, ledger: Ledger, copies: tuple[Path, Path]
) -> None:
    for number in range(3):
        ledger.add_event("planned", f"run {number}")
        back_up(path, *copies)
        assert sorted(file.name for file in copies[0].parent.iterdir()) == sorted(
            file.name for file in copies if file.exists()
        )
    assert events_in(copies[0]) == ["run 0", "run 1", "run 2"]
    assert events_in(copies[1]) == ["run 0", "run 1"]
    assert story_of(copies[0]) == (ledger.events()[0].time, 3)


def test_a_copy_holds_whole_transactions_while_the_ledger_is_written(
    path: Path, ledger: Ledger, copies: tuple[Path, Path]
) -> None:
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            with ledger.transaction():
                ledger.add_event("first", "of two")
                ledger.add_event("second", "of two")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            back_up(path, *copies)
            with closing(sqlite3.connect(copies[0])) as copy:
                assert copy.execute("SELECT count(*) % 2 FROM events").fetchone() == (0,)
    finally:
        done.set()
        writer.join()


def test_what_a_killed_lab_left_half_made_is_in_nobodys_way(
    path: Path, ledger: Ledger, copies: tuple[Path, Path]
) -> None:
    half = copies[0].parent / "new"
    half.mkdir(parents=True)
    for name in (copies[0].name, f"{copies[0].name}-wal", f"{copies[0].name}-journal"):
        (half / name).write_bytes(b"half a page")
    ledger.add_event("planned", "run 0")
    back_up(path, *copies)
    assert events_in(copies[0]) == ["run 0"]
    assert not half.exists()


@pytest.mark.parametrize("damage", ["bytes", "no database"])
def test_a_damaged_ledger_takes_no_sound_copys_place(
    path: Path, ledger: Ledger, plan: Plan, copies: tuple[Path, Path], damage: str
) -> None:
    for level in range(30):
        plan(1.0 + level)
    for _ in copies:
        back_up(path, *copies)
    before = [copy.read_bytes() for copy in copies]
    ledger.close()
    chance = random.Random(1)  # noqa: S311
    content = bytearray(path.read_bytes())
    if damage == "bytes":
        for place in range(4096, len(content), 64):
            content[place] = chance.randrange(256)
    else:
        content = bytearray(chance.randbytes(20_000))
    path.write_bytes(content)
    with pytest.raises(LedgerError):
        back_up(path, *copies)
    assert [copy.read_bytes() for copy in copies] == before
    assert sorted(copies[0].parent.iterdir()) == sorted(copies)


def test_a_full_disk_leaves_the_last_copies_as_they_were(path: Path, ledger: Ledger, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        copies = disk.folder / "copies" / "new.sqlite", disk.folder / "copies" / "old.sqlite"
        ledger.add_event("planned", "run 0")
        back_up(path, *copies)
        disk.fill()
        ledger.add_event("planned", "run 1")
        with pytest.raises(DiskError):
            back_up(path, *copies)
        assert sorted(copies[0].parent.iterdir()) == [copies[0]]
        disk.free()
        assert events_in(copies[0]) == ["run 0"]


def test_of_what_is_no_copy_nothing_is_told(tmp_path: Path) -> None:
    assert story_of(tmp_path / "none.sqlite") is None
    (tmp_path / "noise.sqlite").write_bytes(random.Random(2).randbytes(9000))  # noqa: S311
    assert story_of(tmp_path / "noise.sqlite") is None
    assert [file.name for file in tmp_path.iterdir()] == ["noise.sqlite"]
