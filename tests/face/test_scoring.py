"""`nightlab score` on a real file of predictions."""

from __future__ import annotations

import json
from pathlib import Path

from tests.face.calling import call
from tests.tools.scoring.files import FIXTURE, pairs, write


def test_a_table_for_people(tmp_path: Path) -> None:
    said = call(tmp_path, "score", str(FIXTURE), "-m", "exact_match", "-m", "rouge_l", "--bad-cases", "1")
    assert said.status == 0, said.err
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["score", "value", "interval", "examples"]
    assert rows[1] == ["exact_match", "0.1000", "0.0250", "to", "0.2000", "40"]
    assert rows[2][:2] == ["rouge_l", "48.4446"]
    assert "exact_match 0.0000, line 1: 'waterproof laptop in London' for 'best rated headphones in" in said.out
    assert said.out.splitlines()[-1].startswith("intervals are over examples")


def test_json_for_scripts_with_slices_and_a_comparison(tmp_path: Path) -> None:
    rows = pairs(*[("a", "a")] * 6, *[("b", "a")] * 4)
    write(tmp_path / "old.jsonl", rows)
    write(tmp_path / "new.jsonl", [*({**row, "predict": "a"} for row in rows), {"predict": "a", "label": "a"}])
    words = ("new.jsonl", "--metric", "f1", "--against", "old.jsonl", "--slice-by", "predict", "--slice-edge", "5")
    said = call(tmp_path, "score", *words, "--json")
    (found,) = json.loads(said.out)
    assert (found["score"], found["value"], found["examples"]) == ("f1", 1.0, 11)
    assert [(part["name"], part["examples"]) for part in found["slices"]] == [("below 5", 11)]
    against = found["against"]
    assert (against["examples"], against["only_second"], against["better"], against["worse"]) == (10, 1, 4, 0)
    assert against["delta"] == 0.4 and against["interval"]["low"] > 0
    table = call(tmp_path, "score", *words).out
    assert "against old.jsonl" in table and "+0.4000" in table
    assert "f1: 4 examples better, 0 worse, 6 the same" in table
    assert "f1: 1 example only here, 0 examples only in the other file" in table


def test_broken_rows_are_told(tmp_path: Path) -> None:
    file = write(tmp_path / "p.jsonl", pairs(*[("a", "a")] * 150))
    file.write_text("{torn\n" + file.read_text())
    assert "f1: 1 broken row left out (line 1)" in call(tmp_path, "score", "p.jsonl", "-m", "f1").out


def test_a_mistake_is_one_line(tmp_path: Path) -> None:
    def told(*words: str) -> str:
        said = call(tmp_path, "score", *words)
        assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
        return said.err

    file = str(FIXTURE)
    assert told(file, "-m", "exact").startswith("nightlab: --metric: Input should be 'exact_match', 'f1'")
    assert told(file, "-m", "f1", "--k", "3") == "nightlab: --k: belongs to ndcg, pass_at_k, not f1 (remove it)\n"
    assert told(file, "-m", "f1", "--label", "gold").endswith("it has prompt, predict, label (label names the field)\n")
    assert told("none.jsonl", "-m", "f1") == "nightlab: none.jsonl: No such file or directory\n"
    (tmp_path / "empty.jsonl").touch()
    missing = told(file, "-m", "f1", "--against", "empty.jsonl")
    assert missing == "nightlab: empty.jsonl: f1: is empty: there is nothing to score\n"
