"""A ledger of an older nightlab: brought up to date in one transaction, a copy kept, or refused in one line."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nightlab.configs.study import Study
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge import tables
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.migration import kept_copy
from nightlab.knowledge.records import Run, RunState
from tests.small_disk import small_disk

Plan = Callable[..., Run]

# Columns and tables that came while the version was still 1.
CAME_LATER = {
    "study": ("paused", "notices"),
    "runs": ("next_step", "overrides", "extra_env", "remedies"),
    "questions": ("blocks", "deadline"),
    "spend": ("cost_usd", "reserved_gpu_hours", "reserved_cost_usd"),
}


def age(path: Path, *more: str) -> None:
    """Make the ledger what version 1 first wrote."""
    with closing(sqlite3.connect(path)) as connection:
        for table, columns in CAME_LATER.items():
            for column in columns:
                connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for statement in ("DROP TABLE calls", "DROP TABLE notices", "UPDATE meta SET value = '1'", *more):
            connection.execute(statement)
        connection.commit()


def layout(path: Path) -> dict[str, set[str]]:
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for name in names}


def version(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()[0])


@pytest.fixture
def old(path: Path, study: Study, ledger: Ledger, plan: Plan) -> Path:
    plan()
    run = plan(0.003)
    ledger.update_run(run.key, state=RunState.SUBMITTED)
    ledger.settle(run.key, wall_seconds=12.5)
    ledger.close()
    age(path)
    return path


def test_an_old_ledger_is_brought_up_to_date_and_goes_on(old: Path, path: Path) -> None:
    with Ledger.open(old) as ledger:
        baseline, run = ledger.runs()
        assert (run.state, run.next_step, run.overrides, run.remedies) == (RunState.SUBMITTED, None, {}, [])
        row = ledger.study_row()
        assert (row.paused, row.notices, row.name) == (False, {}, "night")
        totals = ledger.spend_totals()
        assert (totals.runs, totals.wall_seconds, totals.cost_usd) == (2, 12.5, 0.0)
        assert ledger.calls() == [] and not ledger.was_told("x")
        ledger.update_run(baseline.key, state=RunState.FAILED, cause="x", next_step="ask")
        ledger.reserve(baseline.key, gpu_hours=1.0, cost_usd=2.0)
        assert ledger.retry(baseline.key, overrides={"batch": 4}).overrides == {"batch": 4}
    assert version(path) == str(tables.SCHEMA_VERSION)
    assert {name: set(table.columns.keys()) for name, table in tables.metadata.tables.items()} == layout(path)


def test_calls_of_version_2_are_kept_and_may_be_settled(path: Path, study: Study, ledger: Ledger, plan: Plan) -> None:
    plan()
    asked = {"purpose": "analysis", "model": "m", "prompt_hash": "ab"}
    call = ledger.reserve_call("analysis/1", **asked, input_tokens=9, output_tokens=1, cost_usd=0.5)
    ledger.close()
    with closing(sqlite3.connect(path)) as connection:
        for column in ("prompt", "endpoint", "method", "answer"):
            connection.execute(f"ALTER TABLE calls DROP COLUMN {column}")
        for statement in (
            "DROP TABLE ideas",
            "DROP TABLE reviews",
            "DROP TABLE stresses",
            "UPDATE meta SET value = '2'",
        ):
            connection.execute(statement)
        connection.commit()
    with Ledger.open(path) as opened:
        assert opened.calls() == [call]
        opened.settle_call(call.id, input_tokens=8, output_tokens=1, cost_usd=0.1, seconds=1.0, answer="{}")
        held = opened.answered_call("analysis/1", "ab")
        assert held is not None and (held.answer, held.method) == ("{}", "")
    assert version(path) == str(tables.SCHEMA_VERSION) and kept_copy(path, "2").exists()


def test_a_copy_is_kept_as_it_was_and_made_once(old: Path) -> None:
    before = layout(old)
    Ledger.open(old).close()
    copy = kept_copy(old, "1")
    assert copy.name == "ledger.sqlite.version-1" and layout(copy) == before and version(copy) == "1"
    told = copy.stat().st_mtime_ns
    Ledger.open(old).close()
    assert copy.stat().st_mtime_ns == told
    assert sorted(p.name for p in old.parent.iterdir()) == ["ledger.sqlite", "ledger.sqlite.version-1"]


def test_what_the_journal_still_holds_is_in_the_copy(old: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(old)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("INSERT INTO events (time, kind, text) VALUES ('2026-11-29 22:00:00', 'note', 'last words')")
        writer.commit()
        crashed = tmp_path / "crashed"
        crashed.mkdir()
        for side in ("", "-wal"):
            shutil.copy(f"{old}{side}", crashed / f"ledger.sqlite{side}")
    place = crashed / "ledger.sqlite"
    with Ledger.open(place) as ledger:
        assert [event.text for event in ledger.events()] == ["last words"]
    with closing(sqlite3.connect(kept_copy(place, "1"))) as copy:
        assert copy.execute("SELECT text FROM events").fetchall() == [("last words",)]


def test_a_column_that_nothing_stands_for_is_told_in_one_line_and_nothing_is_changed(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("ALTER TABLE jobs DROP COLUMN worktree")
    before = layout(old)
    with pytest.raises(LedgerError, match=r"older nightlab \(schema version 1\) and holds no jobs\.worktree") as told:
        Ledger.open(old)
    assert "\n" not in str(told.value)
    assert layout(old) == before and not kept_copy(old, "1").exists()


def test_a_table_that_every_version_had_is_missed_as_damage(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("DROP TABLE jobs")
    with pytest.raises(LedgerError, match="is damaged: without jobs"):
        Ledger.open(old)


def test_killed_half_way_the_next_one_does_it(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = layout(old)

    def killed(*_: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("nightlab.knowledge.migration._literal", killed)
        Ledger.open(old)
    assert layout(old) == before, "all of it or nothing"
    with Ledger.open(old) as ledger:
        assert len(ledger.runs()) == 2


def test_on_a_full_disk_the_old_ledger_stays_whole(old: Path, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        place = disk.folder / "ledger.sqlite"
        shutil.copy(old, place)
        before = layout(place)
        disk.fill()
        with pytest.raises(DiskError, match="make room there"):
            Ledger.open(place)
        disk.free()
        assert layout(place) == before
        Ledger.open(place).close()
        assert version(place) == str(tables.SCHEMA_VERSION)


def test_a_change_of_the_tables_raises_the_version() -> None:
    columns = [
        f"{table}.{column}" for table in tables.metadata.sorted_tables for column in sorted(table.columns.keys())
    ]
    fingerprint = hashlib.sha256("\n".join(sorted(columns)).encode()).hexdigest()[:12]
    assert (tables.SCHEMA_VERSION, fingerprint) == (3, "443ca6f0a984"), "raise SCHEMA_VERSION, then write it down here"
