"""Files as runs leave them: broken rows, missing fields, nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring import libraries, rows
from nightlab.tools.scoring.score import Score, score_file
from tests.tools.scoring.files import pairs, scored, write

GOOD = '{"predict": "a", "label": "a"}\n'


def read(folder: Path, text: str | bytes, kind: str = "exact_match") -> Score:
    file = folder / "p.jsonl"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return score_file(file, ScoringSettings.model_validate({"kind": kind}))


def error(folder: Path, text: str | bytes) -> MetricError:
    with pytest.raises(MetricError) as caught:
        read(folder, text)
    return caught.value


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    found = read(tmp_path, b"\xef\xbb\xbf" + f"{GOOD}\n  \n{GOOD.strip()}".encode())
    assert (found.value, found.examples, found.rows.broken) == (1.0, 2, 0)


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_an_empty_file_counts_as_absent(tmp_path: Path, text: str) -> None:
    assert error(tmp_path, text).cause == "metric-absent"


def test_a_few_broken_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    found = read(tmp_path, GOOD * 60 + '{"predict": "tor\n' + GOOD * 60)
    assert (found.value, found.examples) == (1.0, 120)
    assert (found.rows.broken, found.rows.first_broken) == (1, [61])


@pytest.mark.parametrize("broken", [b'{"predict": "tor\n', b"[1]\n", b"\xff\xfe\n", b"[" * 100_000 + b"\n", b"7\n"])
def test_more_than_a_small_share_of_broken_rows_is_no_result(tmp_path: Path, broken: bytes) -> None:
    found = error(tmp_path, GOOD.encode() * 20 + broken + GOOD.encode() * 20)
    assert found.cause == "metric-unreadable"
    assert str(found) == "1 of 41 rows are no JSON object (line 21); at most 1% may be"


def test_a_row_above_a_mebibyte_is_broken_and_the_next_is_read(tmp_path: Path) -> None:
    huge = json.dumps({"predict": "x" * rows.LONGEST_ROW_BYTES * 2, "label": "a"}) + "\n"
    found = read(tmp_path, GOOD * 100 + huge + '{"predict": "b", "label": "a"}\n')
    assert (found.value, found.examples, found.rows.first_broken) == (100 / 101, 101, [101])


def test_more_rows_than_a_run_may_leave_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_ROWS", 3)
    assert read(tmp_path, GOOD * 3).examples == 3
    assert error(tmp_path, GOOD * 4).cause == "metric-unreadable"


def test_a_missing_field_is_told_with_what_there_is(tmp_path: Path) -> None:
    found = error(tmp_path, GOOD + '{"prompt": "p", "predict": "a"}\n')
    assert found.cause == "metric-unreadable"
    assert str(found) == "line 2 has no field label; it has prompt, predict (label names the field)"
    assert str(error(tmp_path, '{"label": "a"}\n')).startswith("line 1 has no field predict; it has label (prediction")


def test_no_prediction_at_all_is_a_wrong_one(tmp_path: Path) -> None:
    assert scored(tmp_path, pairs((None, "a"), ("a", "a")), "exact_match").value == 0.5


def test_dots_step_into_objects_and_a_key_with_dots_is_found_first(tmp_path: Path) -> None:
    row: dict[str, object] = {"meta": {"gold": "a"}, "out.text": "a", "out": {"text": "b"}}
    assert scored(tmp_path, [row], "exact_match", label="meta.gold", prediction="out.text").value == 1


def test_half_a_character_harms_nothing(tmp_path: Path) -> None:
    text = '{"prompt": "\\ud83d", "predict": "\\ud83d你好吗好", "label": "\\ud83d你好吗好"}\n'
    for kind in ("exact_match", "rouge_1", "bleu", "chrf", "bleu_4", "f1"):
        found = read(tmp_path, text * 2, kind)
        assert found.examples == 2 and found.bad_cases == [] and found.own_values[0] is not None
    (case,) = read(tmp_path, text.replace('好", "label', '坏", "label')).bad_cases
    assert case.prediction == "?你好吗坏", "what a file of ours can hold"
    messages = text.replace('"\\ud83d", "predict"', '[{"content": "\\ud83d"}], "predict"')
    assert read(tmp_path, messages).value == 1 and "ud83d" in messages


def test_a_library_that_is_missing_is_named_with_its_extra() -> None:
    with pytest.raises(MetricError) as caught:
        libraries.library("no_such_library.at_all")
    assert str(caught.value) == 'needs no_such_library, which is not installed (pip install "nightlab[metrics]")'


def test_the_worst_come_first_few_and_short_and_what_is_right_is_none_of_them(tmp_path: Path) -> None:
    rows_ = pairs(("a b", "a b"), ("x", "a b"), ("a c", "a b"), ("y", "a b"), ("z" * 2000, "a b"))
    found = scored(tmp_path, rows_, "f1", bad_cases=3, slice_by="prompt").bad_cases
    assert [(case.line, case.value) for case in found] == [(2, 0.0), (4, 0.0), (5, 0.0)]
    assert (found[0].prompt, found[0].label, found[0].prediction, found[0].slice) == ("p1", "a b", "x", "p1")
    assert len(found[2].prediction) == 500
    everything = scored(tmp_path, rows_, "f1", bad_cases=200).bad_cases
    assert [case.line for case in everything] == [2, 4, 5, 3]
    assert scored(tmp_path, rows_, "f1", bad_cases=0).bad_cases == []
    assert scored(tmp_path, pairs(("two words", "two words")), "bleu").bad_cases == [], "however short"


def test_a_file_of_many_rows_is_read_in_one_pass(tmp_path: Path) -> None:
    file = write(tmp_path / "many.jsonl", ({"predict": str(i % 3), "label": "0"} for i in range(20_000)))
    found = score_file(file, ScoringSettings(kind="exact_match"))
    assert found.examples == 20_000 and found.value == pytest.approx(6667 / 20_000)
