"""`nightlab data`: files given by hand, or those of the study."""

from __future__ import annotations

import json
from pathlib import Path

from tests.face.calling import call
from tests.task import commit_all, make_repository

ROWS = [{"instruction": f"question {at} {at * 7919 % 1009}", "output": f"answer {at * 31}"} for at in range(20)]


def test_files_by_hand(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text(json.dumps(ROWS))
    (tmp_path / "test.json").write_text(json.dumps(ROWS[:4]))
    called = call(tmp_path, "data", "train.json", "--eval", "test.json", "--window", "4")
    assert called.status == 0
    assert "! Leakage: 4 of 4 (100 %) evaluation rows are training rows" in called.out
    assert "truncation_high" in called.out
    as_json = json.loads(call(tmp_path, "data", "train.json", "--json").out)
    assert [one["about"] for one in as_json if "20 training rows" in one["text"]] == ["data"]


def test_the_data_of_the_study(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", data={"train": "train.json"})
    (file.parent / "train.json").write_text(json.dumps(ROWS))
    called = call(file.parent, "data")
    assert called.status == 0
    assert "20 training rows: median" in called.out


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo")
    for words in (["data"], ["data", "gone.json"], ["data", "train.py"]):
        called = call(file.parent, *words)
        assert called.status == 2
        assert len(called.err.splitlines()) == 1
    assert "names no data" in call(file.parent, "data").err
    assert "gone.json does not exist" in call(file.parent, "data", "gone.json").err
    assert "holds no data file" in call(file.parent, "data", "train.py").err


def test_check_tells_what_is_loud_and_refuses_what_is_not_there(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", data={"train": "train.json", "eval": "test.json"})
    for name in ("train.json", "test.json"):
        (file.parent / name).write_text(json.dumps(ROWS))
    commit_all(file.parent, "data")
    called = call(file.parent, "check")
    assert called.status == 0, called.err
    assert "note: Leakage: 20 of 20 (100 %) evaluation rows are training rows" in called.out + called.err
    (file.parent / "test.json").unlink()
    commit_all(file.parent, "no evaluation data")
    assert "data.eval: test.json does not exist" in call(file.parent, "check").err
