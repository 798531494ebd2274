"""What a person and a script read: status, results, show, logs, diff, report, catalog, lessons, schema, help."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import jsonschema
import pytest

import nightlab
from nightlab.knowledge.ledger import Ledger
from tests.face.calling import call, state_of
from tests.small_disk import small_disk

COMMANDS = [
    "init",
    "check",
    "run",
    "demo",
    "status",
    "results",
    "show",
    "logs",
    "diff",
    "ideas",
    "report",
    "stop",
    "answer",
    "gc",
]
COMMANDS += ["schema", "catalog list", "catalog show", "catalog match", "lessons list"]


@pytest.fixture
def night(finished_night: Path) -> Path:
    return finished_night.parent


@pytest.fixture
def winner(night: Path) -> int:
    shown = json.loads(call(night, "status", "--json").out)
    return int(shown["best"]["number"])


def test_status_says_how_it_ended(night: Path) -> None:
    called = call(night, "status")
    assert called.status == 0
    for words in ("finished: every verdict is in", "val_loss 1.99", "confirmed", "% interval −0.", "of 30 runs"):
        assert words in called.out
    assert "slot" not in called.out
    assert call(night, "status", "--watch").out == called.out


def test_status_for_scripts(night: Path) -> None:
    shown = json.loads(call(night, "status", "--json").out)
    assert shown["status"] == "finished" and shown["lab_pid"] is None
    assert shown["best"]["confirmed"] and shown["best"]["effect"]["low"] > 0.03
    assert shown["runs_ended"] == shown["runs_planned"] <= shown["runs_budget"] == 30
    assert sum(shown["verdicts"].values()) == shown["experiments"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_results_fit_the_terminal(columns: int, night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = call(night, "results").out.splitlines()
    assert max(map(len, lines)) <= columns
    assert [line[:2] for line in lines if line[:2].isdigit()][:3] == ["00", "01", "02"]
    assert ("interval" in "".join(lines[:3])) is (columns >= 80)
    assert columns < 80 or [line[:2] for line in lines[:3]] == ["NN", "00", "01"]


def test_results_for_scripts_are_the_ledgers(night: Path) -> None:
    rows = json.loads(call(night, "results", "--json").out)
    with Ledger.open(night / ".nightlab" / "tiny" / "ledger.sqlite") as ledger:
        assert [(row["number"], row["branch"]) for row in rows] == [(e.number, e.branch) for e in ledger.experiments()]
    best = min(rows, key=lambda row: row["metric_mean"] or 9.0)
    assert best["verdict"] == "keep" and best["effect_low"] > 0.03 and best["changed"] == {"lr": 0.01, "width": 64}


def test_nothing_is_broken_in_a_pipe(night: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = call(night, "results").out.splitlines()
    assert all(line[:2].isdigit() for line in lines[1:-1]) and lines[-1].startswith("Won: ")
    assert "\x1b" not in "".join(lines)


def test_one_experiment_in_full(night: Path, winner: int) -> None:
    text = call(night, "show", str(winner)).out
    assert "`lr`: `0.001` → `0.01`" in text and "git merge experiment-" in text
    shown = json.loads(call(night, "show", str(winner), "--json").out)
    assert shown["verdict"]["kind"] == "keep"
    assert all(run["job"]["exit_code"] == 0 and run["values"]["val_loss"] < 2 for run in shown["runs"])


def test_logs_end_with_the_last_lines(night: Path, winner: int) -> None:
    whole = call(night, "logs", str(winner)).out
    assert whole.count("==> .nightlab/tiny/logs/") >= 4 and "step 1 | loss: 3.0" in whole
    one = call(night, "logs", str(winner), "--seed", "0", "-n", "1").out.splitlines()
    assert len(one) == 2 and one[1] == "memory_mb: 12.5"


def test_the_diff_is_the_change_and_nothing_else(night: Path, winner: int) -> None:
    text = call(night, "diff", str(winner)).out
    added = [line for line in text.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert added == ['+  "lr": 0.01,', '+  "width": 64,']
    assert "EXPERIMENT.md" in call(night, "diff", str(winner), "--all").out
    nothing = call(night, "diff", "0")
    assert nothing.out == "" and nothing.err == "Experiment 00 changes nothing: it is the baseline.\n"


def test_the_report_is_written_anew(night: Path, tmp_path: Path) -> None:
    shutil.copytree(night, tmp_path / "repo")
    for path in (tmp_path / "repo" / ".nightlab" / "tiny").glob("final_report.*"):
        path.unlink()
    called = call(tmp_path / "repo", "report")
    written = [tmp_path / "repo" / line for line in called.out.splitlines()]
    assert len(written) == 3 and all(path.stat().st_size > 500 for path in written)


def test_reading_changes_nothing(night: Path) -> None:
    before = state_of(night)
    for words in (["status"], ["results"], ["show", "1"], ["logs", "1"], ["diff", "1"], ["lessons", "list"]):
        assert call(night, *words).status == 0
    assert state_of(night) == before


def test_a_second_run_returns_at_once(night: Path) -> None:
    called = call(night, "run")
    assert called.status == 0
    assert "This study is finished already; nothing was started." in called.out
    assert "take it  git merge experiment-" in called.out and "planned" not in called.out


def test_commands_name_the_study_from_anywhere(night: Path, tmp_path: Path) -> None:
    called = call(night.parent, "run", "repo/study.yaml")
    assert "report   repo/.nightlab/tiny/final_report.html" in called.out
    assert "take it  git -C repo merge experiment-" in called.out
    assert call(tmp_path, "status", "--study", str(night / "study.yaml")).status == 0


def test_lessons(night: Path) -> None:
    called = call(night, "lessons", "list")
    assert "lr=0.01, width=64" in called.out and "+0.3" in called.out
    assert called.out.endswith("lessons in .nightlab/lessons.jsonl\n")
    lessons = json.loads(call(night, "lessons", "list", "--json").out)
    assert f"{len(lessons)} lessons in" in called.out
    other = call(night, "lessons", "list", "--file", ".nightlab/lessons.jsonl", "--json")
    assert json.loads(other.out) == lessons


def test_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = json.loads(call(tmp_path, "catalog", "list", "--json").out)
    ids = {technique["id"] for technique in listed}
    assert {"lr", "lora_rank"} <= ids
    one = json.loads(call(tmp_path, "catalog", "show", "lora_rank", "--json").out)
    assert one in listed
    assert "id: lora_rank" in call(tmp_path, "catalog", "show", "lora_rank").out
    matched = json.loads(
        call(tmp_path, "catalog", "match", "--symptom", "overfit", "--method", "sft-lora", "--json").out
    )
    assert matched and all("overfit" in technique["symptoms"] for technique in matched) and len(matched) < len(listed)
    monkeypatch.setenv("COLUMNS", "80")
    lines = call(tmp_path, "catalog", "list").out.splitlines()
    assert len(lines) == len(listed) + 2 and max(map(len, lines)) <= 80


def test_the_schema_judges_a_study(tmp_path: Path) -> None:
    from tests.task import study_data

    schema = json.loads(call(tmp_path, "schema").out)
    jsonschema.validate(study_data(), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(study_data(budgets={}), schema)


def test_the_version(tmp_path: Path) -> None:
    assert call(tmp_path, "--version").out == f"nightlab {nightlab.__version__}\n"


def test_the_help_names_every_command_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = call(tmp_path, "--help").out
    assert "..." not in text.partition("Commands:")[2] and max(map(len, text.splitlines())) <= 80
    for command in COMMANDS:
        assert f"\n  {command.split()[0]} " in text
        called = call(tmp_path, *command.split(), "--help")
        assert called.status == 0 and called.out.startswith(f"Usage: nightlab {command}")
        assert max(map(len, called.out.splitlines())) <= 80


def test_on_a_completely_full_disk_everything_can_still_be_read(night: Path, tmp_path: Path) -> None:
    commands = ["status", "status --json", "results", "show 1", "show 1 --json", "logs 1", "diff 1"]
    with small_disk(tmp_path / "disk", 64) as disk:
        place = disk.folder / "repo"
        shutil.copytree(night, place, symlinks=True)
        before = {words: call(place, *words.split()) for words in commands}
        assert {called.status for called in before.values()} == {0}
        disk.fill()
        for words in commands:
            called = call(place, *words.split())
            assert called == before[words], words
        assert "make room there" in call(place, "report").err
