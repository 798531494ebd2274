"""The file behind the ledger: damage is named in one line, several processes share it, kill -9 loses nothing."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from nightlab.configs.study import Study
from nightlab.errors import DiskError, LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Run, RunState
from nightlab.knowledge.tables import SCHEMA_VERSION
from tests.small_disk import small_disk

WRITER = """
import sys
from pathlib import Path
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Observation, Phase, Proposal, RunState

with Ledger.open(Path(sys.argv[1])) as ledger:
    start = len(ledger.experiments())
    for i in range(start + 1, 100_000):
        with ledger.transaction():
            run = ledger.plan(
                Proposal(parameters={"lr": i}, changed={"lr": i}, variable=f"lr-{i}", phase=Phase.SCREEN, seed=i,
                         reason="r"),
                scenario="s", method="m", base_model="b", base_commit="c", branch_for=lambda n, v: f"{n}-{v}",
            )
            ledger.add_event("planned", "r", run.number)
        for state in (RunState.SUBMITTED, RunState.FINISHED):
            ledger.update_run(run.key, state=state)
        ledger.record_observation(Observation(key=run.key, values={"val_bpb": float(i)}))
        ledger.update_run(run.key, state=RunState.MEASURED)
        ledger.settle(run.key, wall_seconds=1.0)
        print(run.key, flush=True)
"""


def raw(path: Path, *statements: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows: list[tuple[object, ...]] = []
        for statement in statements:
            rows = connection.execute(statement).fetchall()
        connection.commit()
        return rows


def test_killed_while_writing_nothing_reported_is_lost_and_nothing_is_half_written(path: Path, study: Study) -> None:
    with Ledger.open(path) as ledger:
        ledger.save_study(study, base_commit="c")
    for lines_before_kill in (1, 4, 9):
        with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            reported = [writer.stdout.readline().strip() for _ in range(lines_before_kill)]
            writer.kill()
            reported += writer.stdout.read().split()
        assert writer.returncode == -signal.SIGKILL
        with Ledger.open(path) as ledger:
            rows = ledger.measured_runs()
            assert len(rows) == len(ledger.experiments()) == len(ledger.events()) == ledger.spend_totals().runs
            assert {run.key for run in ledger.runs(states=[RunState.MEASURED])} >= set(reported)
            assert all(value == run.seed for _, run, value in rows if run.state is RunState.MEASURED)
        assert raw(path, "PRAGMA integrity_check") == [("ok",)]


def test_every_commit_is_synced_and_foreign_keys_are_checked(ledger: Ledger) -> None:
    with ledger._engine.connect() as connection:
        pragmas = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in PRAGMAS]
    assert dict(zip(PRAGMAS, pragmas, strict=True)) == PRAGMAS


PRAGMAS = {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 30_000}


def test_a_reopened_ledger_holds_what_was_written(path: Path, plan: Callable[..., Run], ledger: Ledger) -> None:
    run = plan(0.003)
    with Ledger.open(path) as other:
        assert other.runs() == [run]
        other.update_run(run.key, state=RunState.SUBMITTED)
    assert ledger.run(run.key).state is RunState.SUBMITTED


def test_threads_planning_at_once_get_distinct_numbers(ledger: Ledger, plan: Callable[..., Run]) -> None:
    with ThreadPoolExecutor(8) as pool:
        runs = list(pool.map(lambda i: plan(float(2 + i // 2)), range(32)))
    assert sorted(run.number for run in runs) == sorted([*range(1, 17)] * 2)
    assert len(ledger.runs()) == len(ledger.experiments()) == 16


def test_a_transaction_of_one_thread_is_not_joined_by_another(ledger: Ledger) -> None:
    with ThreadPoolExecutor(1) as pool, ledger.transaction():
        ledger.add_event("mine", "not yet committed")
        assert pool.submit(ledger.events).result() == []
    assert len(ledger.events()) == 1


def test_two_processes_may_make_the_same_ledger_at_once(path: Path) -> None:
    code = "import sys; from pathlib import Path; from nightlab.knowledge.ledger import Ledger; "
    code += "Ledger.open(Path(sys.argv[1])).close()"
    makers = [subprocess.Popen([sys.executable, "-c", code, path]) for _ in range(2)]
    assert [maker.wait() for maker in makers] == [0, 0]
    assert raw(path, "SELECT value FROM meta") == [(str(SCHEMA_VERSION),)]


def one_line(path: Path) -> str:
    with pytest.raises(LedgerError) as caught:
        Ledger.open(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(path))
    return message


def test_another_schema_version_is_refused(path: Path) -> None:
    Ledger.open(path).close()
    raw(path, "UPDATE meta SET value = '99'")
    assert f"has schema version 99, this nightlab reads {SCHEMA_VERSION}" in one_line(path)


def test_what_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    path.write_text("not a database, but the only copy of something\n" * 100)
    assert "not a database" in one_line(path)
    assert path.read_text().count("only copy") == 100


def test_another_database_is_refused_and_left_alone(path: Path) -> None:
    raw(path, "CREATE TABLE mine (x)")
    assert "is a database, but not a ledger" in one_line(path)
    assert raw(path, "SELECT name FROM sqlite_master") == [("mine",)]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert "unable to open database file" in one_line(tmp_path / "absent" / "ledger.sqlite")


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_a_ledger_cut_short_is_refused(path: Path, tmp_path: Path, study: Study, kept: float) -> None:
    with Ledger.open(path) as ledger:
        ledger.save_study(study, base_commit="c")
        for i in range(50):
            ledger.add_event("note", f"{i} " * 200)
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    os.truncate(copy, int(copy.stat().st_size * kept))
    assert "malformed" in one_line(copy) or "damaged" in one_line(copy)


def test_an_empty_file_becomes_a_ledger(path: Path) -> None:
    path.touch()
    with Ledger.open(path) as ledger:
        assert ledger.runs() == []


def test_a_record_this_version_cannot_read_is_told_in_one_line(path: Path, ledger: Ledger) -> None:
    raw(path, "UPDATE study SET study = json_set(study, '$.fancy_new_section', 1)")
    with pytest.raises(
        LedgerError, match=r"StudyRow in the ledger: study\.fancy_new_section: Extra .*another name"
    ) as told:
        ledger.study_row()
    assert "\n" not in str(told.value)


def test_reading_writes_nothing_and_sees_what_others_write(
    path: Path, ledger: Ledger, plan: Callable[..., Run]
) -> None:
    run = plan(0.003)
    with Ledger.open_to_read(path) as reader:
        assert reader.runs() == [run] and reader.study_row() == ledger.study_row()
        ledger.update_run(run.key, state=RunState.SUBMITTED)
        assert reader.run(run.key).state is RunState.SUBMITTED
        with pytest.raises(DiskError, match="read-only"):
            reader.add_event("note", "never")
    ledger.close()
    content = path.read_bytes()
    with Ledger.open_to_read(path) as reader:
        assert len(reader.runs()) == 1
    assert path.read_bytes() == content


def test_to_be_read_an_empty_file_becomes_a_ledger_and_damage_is_named(path: Path) -> None:
    path.touch()
    with Ledger.open_to_read(path) as reader:
        assert not reader.has_study()
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(LedgerError, match="nightlab recover"):
        Ledger.open_to_read(path)


@pytest.mark.parametrize("was_killed", [False, True])
def test_on_a_full_disk_the_ledger_can_still_be_read(tmp_path: Path, study: Study, was_killed: bool) -> None:
    end = "os.kill(os.getpid(), 9)" if was_killed else "ledger.close()"
    code = f"""
import os, sys
from pathlib import Path
from nightlab.knowledge.ledger import Ledger
ledger = Ledger.open(Path(sys.argv[1]))
for number in range(30):
    ledger.add_event("note", f"event {{number}}")
{end}
"""
    with small_disk(tmp_path / "small", 2) as disk:
        place = disk.folder / "ledger.sqlite"
        with Ledger.open(place) as ledger:
            ledger.save_study(study, base_commit="c")
        subprocess.run([sys.executable, "-c", code, place], check=False)
        assert place.with_name("ledger.sqlite-wal").exists() == was_killed
        disk.fill()
        with Ledger.open_to_read(place) as reader:
            assert len(reader.events()) == 30 and reader.study_row().name == "night"
        with pytest.raises(DiskError, match="make room there"), Ledger.open(place) as ledger:
            ledger.add_event("note", "no room")


def test_a_folder_that_may_not_be_written_is_no_hindrance_to_reading(path: Path, study: Study) -> None:
    with Ledger.open(path) as ledger:
        ledger.save_study(study, base_commit="c")
    path.parent.chmod(0o555)
    try:
        with Ledger.open_to_read(path) as reader:
            assert reader.study_row().name == "night"
    finally:
        path.parent.chmod(0o755)
