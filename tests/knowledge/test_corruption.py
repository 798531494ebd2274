"""Damage to what the lab knows is told in one line or skipped, whatever bytes it is; it is never taken for true."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from nightlab.errors import LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import Job, Observation, Run, RunState
from nightlab.knowledge.restoring import Records, restore, salvage

Plan = Callable[..., Run]


@pytest.fixture
def filled(path: Path, ledger: Ledger, plan: Plan) -> Iterator[Path]:
    """A ledger of some pages, closed as a whole."""
    for level in range(40):
        run = plan(1.0 + level)
        ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory="logs", worktree="tree"))
        for state in (RunState.SUBMITTED, RunState.FINISHED):
            ledger.update_run(run.key, state=state)
        ledger.record_observation(Observation(key=run.key, values={"val_bpb": float(level)}))
        ledger.add_event("planned", "a reason " * 20, run.number)
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    yield path


def read_all(path: Path) -> None:
    with Ledger.open(path) as ledger:
        ledger.study_row()
        ledger.experiments(), ledger.runs(), ledger.jobs(), ledger.observations(), ledger.verdicts()
        ledger.questions(), ledger.events(), ledger.spend_totals()
        ledger.measured_runs(), ledger.outcomes(), ledger.configurations(), ledger.wall_seconds()


def test_whatever_bytes_change_reading_raises_nothing_but_a_ledger_error(filled: Path, tmp_path: Path) -> None:
    whole, chance = filled.read_bytes(), random.Random(11)  # noqa: S311
    copy = tmp_path / "copy" / "ledger.sqlite"
    told = set()
    for _ in range(120):
        copy.parent.mkdir()
        bytes_now = bytearray(whole)
        for _ in range(chance.choice((1, 10, 100, 1000))):
            bytes_now[chance.randrange(len(bytes_now))] = chance.randrange(256)
        copy.write_bytes(bytes_now)
        try:
            read_all(copy)
        except LedgerError as error:
            assert "\n" not in str(error)
            told.add(error.damaged)
        salvage(copy)
        shutil.rmtree(copy.parent)
    assert True in told


@pytest.mark.parametrize("kept", [0, 1, 100, 4096, 10_000, -1])
def test_a_ledger_cut_short_beside_its_jobs_names_the_mend(filled: Path, kept: int) -> None:
    (filled.parent / "logs" / "experiment-00").mkdir(parents=True)
    read_all(filled)
    os.truncate(filled, kept if kept >= 0 else filled.stat().st_size - 1)
    before = filled.read_bytes()
    with pytest.raises(LedgerError, match=r"^.*ledger\.sqlite: .* \(`nightlab recover` rebuilds it") as told:
        read_all(filled)
    assert told.value.damaged
    assert filled.read_bytes() == before


def test_a_ledger_that_is_gone_is_missed_only_where_jobs_have_run(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    assert not Ledger.exists(path)
    (tmp_path / "logs" / "experiment-00").mkdir(parents=True)
    with pytest.raises(LedgerError, match="is gone, although its study has begun") as told:
        Ledger.exists(path)
    assert told.value.damaged
    with pytest.raises(LedgerError, match="is gone"):
        Ledger.open(path)
    assert not path.exists()


def test_restored_records_are_the_same_and_contradictions_are_refused_as_a_whole(filled: Path, tmp_path: Path) -> None:
    with Ledger.open(filled) as ledger:
        records = Records(
            ledger.study_row(), ledger.experiments(), ledger.runs(), ledger.jobs(), ledger.observations(), [], []
        )
    copy = tmp_path / "copy.sqlite"
    restore(copy, records)
    with Ledger.open(copy) as ledger:
        assert (ledger.study_row(), ledger.experiments()) == (records.study, records.experiments)
        assert (ledger.runs(), ledger.jobs()) == (records.runs, records.jobs)
        assert ledger.observations() == records.observations
    twice = Records(records.study, [*records.experiments, records.experiments[0]], [], [], [], [], [])
    with pytest.raises(LedgerError, match="UNIQUE"):
        restore(tmp_path / "twice.sqlite", twice)
    with Ledger.open(tmp_path / "twice.sqlite") as ledger:
        assert not ledger.has_study()


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 5000, b"\xff\xfe{}\r\n\x1b[2J", b'{"id": 1}\n[]\nnull\n"', b"{" * 100_000]
)
def test_a_lessons_file_of_anything_holds_no_lessons(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lessons.jsonl"
    path.write_bytes(content)
    assert read(path).lessons == ()
