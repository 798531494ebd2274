"""When a lab copies its ledger, and what a recovery makes of the copies."""

from __future__ import annotations

import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from nightlab.errors import LedgerError
from nightlab.graph.backups import Backups, copy_without_lab
from nightlab.graph.process import hold_study
from nightlab.graph.recovery import refuse_gaps
from nightlab.knowledge.backup import back_up
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Question, StudyStatus
from nightlab.night import run_night
from tests.agents.lab import new_lab
from tests.graph.test_recovery import empty, overwrite, paths_of, quiet, rebuilt, results


@pytest.fixture
def night(finished_night: Path, tmp_path: Path) -> Path:
    """A copy of a finished night with a question answered since, and its copies of the ledger."""
    shutil.copytree(finished_night.parent, tmp_path / "repo", symlinks=True)
    file = tmp_path / "repo" / finished_night.name
    paths = paths_of(file)
    with Ledger.open(paths.ledger) as ledger:
        ledger.ask(
            Question(id="base", study="tiny", kind="base-model", text="Keep it?", options=["keep"], default="keep")
        )
        ledger.add_event("question", "Keep it?")
        ledger.answer("base", "keep", by="me")
        ledger.add_event("answered", "base: keep, by me")
        ledger.mark_told("there/tiny/question/base")
    copy_without_lab(paths)
    return file


def test_a_ledger_is_copied_after_a_change_and_not_too_often(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        newest, before = lab.paths.backups
        backups = Backups(lab)
        backups.take_due()
        made = newest.stat().st_mtime_ns
        backups.due_at = 0.0
        backups.take_due()
        assert newest.stat().st_mtime_ns == made, "nothing has changed"
        lab.ledger.add_event("planned", "something")
        backups.due_at = time.monotonic() + 3600
        backups.take_due()
        assert newest.stat().st_mtime_ns == made, "the last copy was made just now"
        backups.due_at = 0.0
        backups.take_due()
        assert (before.stat().st_mtime_ns, newest.stat().st_mtime_ns > made) == (made, True)
        assert backups.due_at > time.monotonic()


def test_no_copy_is_made_while_the_disk_is_short_and_none_stops_the_lab(tmp_path: Path) -> None:
    with new_lab(tmp_path, disk={"min_free": "1000 TB"}) as lab:
        Backups(lab).take()
        assert not lab.paths.backups[0].parent.exists()
    with new_lab(tmp_path / "other") as lab:
        lab.paths.backups[0].parent.write_text("in the way")
        Backups(lab).take()


def test_an_answer_is_copied_unless_a_lab_does_it(night: Path) -> None:
    paths = paths_of(night)
    with Ledger.open(paths.ledger) as ledger:
        ledger.add_event("answered", "another")
    made = paths.backups[0].stat().st_mtime_ns
    with hold_study(paths):
        copy_without_lab(paths)
    assert paths.backups[0].stat().st_mtime_ns == made
    copy_without_lab(paths)
    assert paths.backups[0].stat().st_mtime_ns > made


@pytest.mark.parametrize("damage", [Path.unlink, overwrite, empty], ids=lambda damage: damage.__name__)
def test_what_only_the_ledger_knew_comes_back_from_its_copy(night: Path, damage: Callable[[Path], None]) -> None:
    paths, before = paths_of(night), results(night)
    with Ledger.open(paths.ledger) as ledger:
        numbers = [experiment.number for experiment in ledger.experiments()]
        story = [(event.kind, event.number, event.text) for event in ledger.events()]
        histories = [ledger.verdict_history(number) for number in numbers]
        runs, spent = ledger.runs(), ledger.spend_totals()
    damage(paths.ledger)
    done = rebuilt(night)
    assert done is not None and done.copy == paths.backups[0] and done.questions == 1
    assert (done.from_cards, done.from_folders, done.retold, done.not_restored) == (0, 0, 0, [])
    with Ledger.open(paths.ledger) as ledger:
        assert [(event.kind, event.number, event.text) for event in ledger.events()][:-1] == story
        assert [ledger.verdict_history(number) for number in numbers] == histories
        assert (ledger.runs(), ledger.spend_totals()) == (runs, spent)
        assert [(q.id, q.answer, q.answered_by) for q in ledger.questions()] == [("base", "keep", "me")]
        assert ledger.was_told("there/tiny/question/base")
        assert ledger.study_row().status is StudyStatus.FINISHED
    assert results(night) == before
    assert run_night(night, say=quiet).already_finished
    assert rebuilt(night) is None


def test_where_the_newest_copy_is_no_good_the_one_before_it_is_taken(night: Path) -> None:
    paths, before = paths_of(night), results(night)
    copy_without_lab(paths)
    overwrite(paths.ledger)
    paths.backups[0].write_bytes(random.Random(9).randbytes(40_000))  # noqa: S311
    done = rebuilt(night)
    assert done is not None and done.copy == paths.backups[1]
    assert results(night) == before
    assert run_night(night, say=quiet).already_finished


def test_without_any_copy_the_story_is_told_anew_as_far_as_records_tell_it(night: Path) -> None:
    paths = paths_of(night)
    with Ledger.open(paths.ledger) as ledger:
        told = {(event.kind, event.number, event.text) for event in ledger.events()}
        verdicts = len(ledger.verdicts())
    shutil.rmtree(paths.backups[0].parent)
    paths.ledger.unlink()
    done = rebuilt(night)
    assert done is not None and done.copy is None and done.retold > 0
    with Ledger.open(paths.ledger) as ledger:
        events = ledger.events()
        again = {(event.kind, event.number, event.text) for event in events} - {
            (events[-1].kind, None, events[-1].text)
        }
        assert [event.time for event in events[:-1]] == sorted(event.time for event in events[:-1])
    assert again <= told
    # Questions, answers, and verdicts that were replaced later, stand in no branch or folder.
    assert {kind for kind, *_ in told - again} <= {"question", "answered", "verdict"}
    assert sum(kind == "verdict" for kind, *_ in again) == verdicts


def test_a_ledger_that_is_older_than_its_copy_is_noticed(night: Path, tmp_path: Path) -> None:
    paths = paths_of(night)
    older, unused = tmp_path / "older.sqlite", tmp_path / "unused.sqlite"
    back_up(paths.ledger, older, unused)
    with Ledger.open(paths.ledger) as ledger:
        ledger.add_event("answered", "one more")
    copy_without_lab(paths)
    older.replace(paths.ledger)
    for side in ("-wal", "-shm"):
        paths.ledger.with_name(paths.ledger.name + side).unlink(missing_ok=True)
    with Ledger.open(paths.ledger) as ledger, pytest.raises(LedgerError, match=r"ends before its copy backups/ledger"):
        refuse_gaps(ledger, paths)
    done = rebuilt(night)
    assert done is not None
    with Ledger.open(paths.ledger) as ledger:
        assert [event.text for event in ledger.events()][-2] == "one more"
        refuse_gaps(ledger, paths)


def test_copies_of_another_start_of_the_study_are_not_used(night: Path) -> None:
    paths = paths_of(night)
    for copy in paths.backups:
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("UPDATE experiments SET parameters = json_set(parameters, '$.lr', 0.5) WHERE number = 1")
            connection.commit()
    paths.ledger.unlink()
    done = rebuilt(night)
    assert done is not None and done.copy is None
    assert any("does not belong to these branches" in line for line in done.not_restored)
    assert rebuilt(night) is None
