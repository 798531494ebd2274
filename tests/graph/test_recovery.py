"""Damaged files of a study: named, set aside and rebuilt, and the night ends as if nothing had happened."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.configs.paths import StudyPaths
from nightlab.errors import ConfigError, LedgerError, StudyBusyError
from nightlab.graph.checkpoints import mend_checkpoints, open_checkpoints
from nightlab.graph.opening import locate
from nightlab.graph.process import hold_study
from nightlab.graph.recovery import Recovery, recover, refuse_gaps
from nightlab.graph.retelling import missing_events
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import Question, RunState, StudyStatus
from nightlab.night import run_night
from tests.task import git, make_repository, study_data


def quiet(_: str) -> None:
    return None


def paths_of(file: Path) -> StudyPaths:
    return locate(load_study(file)).paths


def rebuilt(file: Path) -> Recovery | None:
    loaded = load_study(file)
    return recover(locate(loaded), loaded.study)


@pytest.fixture
def backed_up(finished_night: Path, tmp_path: Path) -> Path:
    """A copy of a finished night, in another place."""
    shutil.copytree(finished_night.parent, tmp_path / "repo", symlinks=True)
    return tmp_path / "repo" / finished_night.name


@pytest.fixture
def ended(backed_up: Path) -> Path:
    """Such a night whose copies of the ledger are lost, too."""
    shutil.rmtree(paths_of(backed_up).backups[0].parent)
    return backed_up


Results = dict[str, tuple[str, list[tuple[int, str]], tuple[float | None, ...]]]


def results(file: Path) -> Results:
    """Branch → verdict, seeds with their ends, effect with its interval; what somebody reads in the morning."""
    with Ledger.open(paths_of(file).ledger) as ledger:
        verdicts = ledger.verdicts()
        told: Results = {}
        for experiment in ledger.experiments():
            verdict = verdicts.get(experiment.number)
            effect = verdict.effect if verdict else None
            runs = sorted((run.seed, run.state.value) for run in ledger.runs(experiment.number))
            kind = f"{experiment.state}/{verdict.kind if verdict else ''}"
            told[experiment.branch] = kind, runs, (effect.delta, effect.low, effect.high) if effect else ()
        return told


def same(one: Results, other: Results) -> bool:
    flat, wanted = ({name: row[:2] for name, row in side.items()} for side in (one, other))
    effects = ((value, other[name][2][place]) for name, row in one.items() for place, value in enumerate(row[2]))
    return flat == wanted and all(value == pytest.approx(right, abs=1e-9) for value, right in effects)


def outcome(file: Path) -> dict[str, object]:
    """Variable → verdict, value of every seed, and the effect where it is confirmed.

    Other intervals are those of the moment a verdict was new: how much of the baseline was in by then is chance.
    """
    with Ledger.open(paths_of(file).ledger) as ledger:
        values = {(m.experiment.variable, m.run.seed): m.value for m in ledger.measured_runs()}
    told = results(file)
    kept = {name: [round(value or 0, 9) for value in row[2]] for name, row in told.items() if "keep" in row[0]}
    return {"values": values, "verdicts": {name: row[:2] for name, row in told.items()}, "kept": kept}


def sql(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def overwrite(ledger: Path) -> None:
    ledger.write_bytes(random.Random(3).randbytes(20_000))  # noqa: S311


def cut(ledger: Path) -> None:
    os.truncate(ledger, ledger.stat().st_size * 2 // 3)


def empty(ledger: Path) -> None:
    os.truncate(ledger, 0)


def lose_a_table(ledger: Path) -> None:
    sql(ledger, "DROP TABLE observations")


def lose_all_tables(ledger: Path) -> None:
    """What is left when the journal of a young ledger is deleted."""
    ledger.unlink()
    sql(ledger, "PRAGMA journal_mode = WAL")


def lose_the_last_run(ledger: Path) -> None:
    """What is left when the journal of an older one is deleted: it looks whole."""
    last = "(SELECT key FROM runs ORDER BY id DESC LIMIT 1)"
    tables = ("observations", "jobs", "spend", "runs")
    sql(ledger, *(f"DELETE FROM {table} WHERE key = {last}" for table in tables))  # noqa: S608


DAMAGES = [Path.unlink, overwrite, cut, empty, lose_a_table, lose_all_tables, lose_the_last_run]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_finished_night_comes_back_from_its_branches(ended: Path, damage: Callable[[Path], None]) -> None:
    before, lessons, paths = results(ended), paths_of(ended).lessons.read_bytes(), paths_of(ended)
    with Ledger.open(paths.ledger) as ledger:
        spent = ledger.spend_totals()
    damage(paths.ledger)
    broken = paths.ledger.read_bytes() if paths.ledger.exists() else None
    with pytest.raises(LedgerError, match=r"ledger.sqlite: .*nightlab recover") as told:
        run_night(ended, say=quiet)
    assert told.value.damaged and "\n" not in str(told.value)

    done = rebuilt(ended)

    assert done is not None and not done.not_restored
    assert (done.kept.read_bytes() if done.kept else None) == broken
    assert same(results(ended), before)
    with Ledger.open(paths.ledger) as ledger:
        again = ledger.spend_totals()
    assert (again.runs, again.settled_runs) == (spent.runs, spent.settled_runs)
    assert again.wall_seconds == pytest.approx(spent.wall_seconds)
    assert run_night(ended, say=quiet).already_finished
    assert rebuilt(ended) is None
    assert paths.lessons.read_bytes() == lessons
    assert not paths.recovered.parent.exists()


def test_without_the_studys_row_the_verdicts_are_computed_anew_and_equal(ended: Path) -> None:
    paths = paths_of(ended)
    before, lessons, branches = results(ended), paths.lessons.read_bytes(), git(ended.parent, "branch", "-v")
    paths.ledger.unlink()
    paths.card.unlink()
    done = rebuilt(ended)
    assert done is not None and done.started == 0 and done.ended == sum(len(row[1]) for row in before.values())
    again = run_night(ended, say=quiet)
    assert again.status is StudyStatus.FINISHED and not again.already_finished
    assert same(results(ended), before)
    assert paths.lessons.read_bytes() == lessons
    assert git(ended.parent, "branch", "-v") == branches


def test_a_later_verdict_in_the_same_words_is_told_again(ended: Path) -> None:
    with Ledger.open(paths_of(ended).ledger) as ledger:
        events, row, verdict = ledger.events(), ledger.study_row(), next(iter(ledger.verdicts().values()))
        experiments = {one.number: one for one in ledger.experiments()}
    later = verdict.model_copy(update={"decided_at": events[-1].time + timedelta(seconds=1)})
    assert missing_events(events, row, experiments, [], [verdict]) == []
    (told,) = missing_events(events, row, experiments, [], [later])
    assert (told.kind, told.number, told.time) == ("verdict", verdict.number, later.decided_at)


def test_what_only_the_ledger_knew_is_read_from_the_damaged_one(ended: Path) -> None:
    paths = paths_of(ended)
    with Ledger.open(paths.ledger) as ledger:
        ledger.ask(
            Question(id="plan", study="tiny", kind="approve-plan", text="Go on?", options=["yes"], default="yes")
        )
        ledger.answer("plan", "yes", by="me")
        asked = {"purpose": "analysis", "model": "m", "prompt_hash": "ab"}
        call = ledger.reserve_call("tiny/analysis", **asked, input_tokens=100, output_tokens=10, cost_usd=0.5)
        events = len(ledger.events())
    sql(paths.ledger, "DROP TABLE jobs")
    done = rebuilt(ended)
    assert done is not None and done.questions == 1
    with Ledger.open(paths.ledger) as ledger:
        assert [(q.id, q.answer, q.answered_by) for q in ledger.questions()] == [("plan", "yes", "me")]
        assert ledger.calls() == [call], "what was spent stays spent"
        told = [event.kind for event in ledger.events()[events:]]
        assert told == ["question", "answered", "recovered"], "what nobody had told is told now"


@pytest.mark.parametrize("card", ["copied", "lost"])
def test_an_experiment_whose_branch_is_gone_comes_back_from_its_logs(ended: Path, card: str) -> None:
    paths, before = paths_of(ended), results(ended)
    with Ledger.open(paths.ledger) as ledger:
        gone = next(e for e in ledger.experiments() if e.variable == "color-blue")
        keys = {run.key for run in ledger.runs(gone.number)}
    git(ended.parent, "branch", "-D", gone.branch)
    paths.ledger.unlink()
    if card == "lost":
        paths.result_card(gone.number).unlink()
    done = rebuilt(ended)
    assert done is not None and done.started == (len(keys) if card == "lost" else 0)
    with Ledger.open(paths.ledger) as ledger:
        back = ledger.experiment(gone.number)
        assert (back.parameters, back.commit, back.reason) == (gone.parameters, gone.commit, gone.reason)
        assert {run.key for run in ledger.runs(gone.number)} == keys
    if card == "copied":
        assert same(results(ended), before)


def test_a_job_that_nothing_tells_of_is_kept_apart_and_the_night_can_go_on(ended: Path) -> None:
    paths = paths_of(ended)
    with Ledger.open(paths.ledger) as ledger:
        last = ledger.runs()[-1]
    folder = paths.job(last.number, last.seed, last.attempt).directory
    shutil.copytree(folder, paths.job(77, 5, 1).directory)
    paths.job(77, 5, 1).run.write_text('{"torn')
    with pytest.raises(LedgerError, match=r"lacks the run of .*experiment-77/seed-5-attempt-1"):
        run_night(ended, say=quiet)
    done = rebuilt(ended)
    assert done is not None and "experiment-77/seed-5-attempt-1.damaged-" in done.not_restored[0]
    assert run_night(ended, say=quiet).already_finished


def test_a_card_that_is_newer_than_the_ledger_is_noticed(ended: Path) -> None:
    paths = paths_of(ended)
    with Ledger.open(paths.ledger) as ledger:
        refuse_gaps(ledger, paths)
        kept = next(e for e in ledger.experiments() if e.state == "kept")
    sql(
        paths.ledger,
        f"UPDATE experiments SET card_commit = NULL WHERE number = {kept.number}",  # noqa: S608
        f"UPDATE runs SET state = 'finished' WHERE number = {kept.number}",  # noqa: S608
    )
    with Ledger.open(paths.ledger) as ledger, pytest.raises(LedgerError, match=f"lacks the end of .*{kept.branch}"):
        refuse_gaps(ledger, paths)


def test_a_whole_ledger_is_left_alone_and_so_is_another_versions(ended: Path, tmp_path: Path) -> None:
    ledger = paths_of(ended).ledger
    before = ledger.read_bytes()
    assert rebuilt(ended) is None
    assert ledger.read_bytes() == before
    sql(ledger, "UPDATE meta SET value = '99'")
    with pytest.raises(LedgerError, match="schema version 99") as told:
        rebuilt(ended)
    assert not told.value.damaged


def test_nothing_is_rebuilt_under_a_running_lab_or_from_nothing(ended: Path, tmp_path: Path) -> None:
    paths = paths_of(ended)
    empty(paths.ledger)
    with hold_study(paths), pytest.raises(StudyBusyError):
        rebuilt(ended)
    fresh = make_repository(tmp_path / "fresh")
    with pytest.raises(ConfigError, match="neither branches nor logs tell of its study"):
        rebuilt(fresh)


def test_a_killed_night_goes_on_after_its_ledger_was_lost(tmp_path: Path) -> None:
    fewer = {"backend": study_data()["backend"] | {"slots": 1}, "budget": {"runs": 14}}
    calm, rough = (make_repository(tmp_path / name, **fewer) for name in ("calm", "rough"))
    run_night(calm, say=quiet)
    counter = tmp_path / "count"
    command = [sys.executable, "-m", "nightlab"]
    environment = {**os.environ, "RUN_COUNTER": str(counter)}
    paths = paths_of(rough)
    ledger = paths.ledger
    with subprocess.Popen([*command, "run", str(rough)], stdout=subprocess.DEVNULL, env=environment) as lab:
        while lab.poll() is None and (not counter.exists() or len(counter.read_text().splitlines()) < 9):
            time.sleep(0.02)
        lab.kill()
    for database in (ledger, paths.checkpoints):
        overwrite(database)
        for side in ("-wal", "-shm"):
            database.with_name(database.name + side).unlink(missing_ok=True)
    shutil.rmtree(paths.backups[0].parent)
    paths.results_csv.write_bytes(b"number,scen")
    paths.final_report_md.write_bytes(b"\xff\xfe")
    told = subprocess.run([*command, "recover", "--study", str(rough)], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assert "Rebuilt" in told.stdout and "damaged-" in told.stdout and "no sound copy" in told.stdout
    last = subprocess.run([*command, "run", str(rough)], capture_output=True, text=True, env=environment, check=False)
    assert last.returncode == 0, last.stdout + last.stderr

    assert outcome(rough) == outcome(calm)
    assert outcome(calm)["kept"]
    with Ledger.open(ledger) as opened:
        good = [run for run in opened.runs() if run.state is RunState.REVIEWED]
        lessons = [lesson.evidence["experiment"] for lesson in read(paths_of(rough).lessons).lessons]
        assert {f"{e.number:02d}" for e in opened.experiments() if e.number} == set(lessons)
        assert [event.kind for event in opened.events()].count("damaged") == 1
        assert len(paths.results_csv.read_text().splitlines()) == len(opened.experiments()) + 1
    assert "tiny" in paths.final_report_md.read_text()
    assert len(list(paths.folder.glob("checkpoints.sqlite.damaged-*Z"))) == 1
    ran = counter.read_text().splitlines()
    assert len(ran) == len(good) + 1, "every run was executed once, and the dry run"
    assert git(rough.parent, "status", "--porcelain") == ""
    assert len(git(rough.parent, "worktree", "list").splitlines()) == 1


def drop_a_column(path: Path) -> None:
    sql(path, "DROP TABLE checkpoints", "CREATE TABLE checkpoints (thread_id TEXT)")


def garble_the_content(path: Path) -> None:
    sql(path, "UPDATE checkpoints SET checkpoint = x'c1c1c1'")


@pytest.mark.parametrize("damage", [overwrite, cut, drop_a_column, garble_the_content], ids=lambda d: d.__name__)
def test_a_damaged_checkpoint_file_is_kept_and_begun_anew(ended: Path, damage: Callable[[Path], None]) -> None:
    checkpoints = paths_of(ended).checkpoints
    assert mend_checkpoints(checkpoints, "tiny") is None
    damage(checkpoints)
    broken = checkpoints.read_bytes()
    line = mend_checkpoints(checkpoints, "tiny")
    assert line is not None and line.startswith(f"{checkpoints}: is damaged: ") and "\n" not in line
    (kept,) = checkpoints.parent.glob("checkpoints.sqlite.damaged-*Z")
    assert kept.name in line and kept.read_bytes() == broken
    with open_checkpoints(checkpoints) as saver:
        assert saver.get_tuple({"configurable": {"thread_id": "tiny"}}) is None


def test_whatever_bytes_change_in_the_checkpoints_a_lab_can_start(ended: Path) -> None:
    checkpoints = paths_of(ended).checkpoints
    whole, chance = checkpoints.read_bytes(), random.Random(5)  # noqa: S311
    for _ in range(40):
        bytes_now = bytearray(whole)
        for _ in range(chance.choice((1, 20, 400))):
            bytes_now[chance.randrange(len(bytes_now))] = chance.randrange(256)
        checkpoints.write_bytes(bytes_now)
        mend_checkpoints(checkpoints, "tiny")
        with open_checkpoints(checkpoints) as saver:
            saver.get_tuple({"configurable": {"thread_id": "tiny"}})
