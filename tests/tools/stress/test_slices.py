"""Harder slices of an evaluation file: deterministic, in the file's own format, labels untouched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import StressError
from nightlab.tools.scoring.score import score_file
from nightlab.tools.stress.slices import SliceRules, make_slices, noisy
from tests.face.calling import call


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def rows() -> list[dict[str, Any]]:
    made = [{"prompt": f"is the day number {n % 4} good", "label": "yes" if n % 2 else "no"} for n in range(20)]
    made[7]["prompt"] = "does a xylophone quixotically bewilder zebras"
    made[12]["prompt"] += " and" * 60
    made[3]["label"] = "perhaps"
    return [{**row, "predict": row["label"]} for row in made]


def test_slices_are_the_longest_the_rarest_and_all_with_noise(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    made = make_slices(write(tmp_path / "eval.jsonl", rows), tmp_path / "out", SliceRules(share=0.1))
    assert (made.rows, made.broken, made.kept) == (20, 0, 2)
    assert rows[12] in read(made.long) and len(read(made.long)) == 2
    # One for its words, one for its label.
    assert read(made.rare) == [rows[3], rows[7]]
    changed = read(made.noisy)
    assert all(one["prompt"] != row["prompt"] for one, row in zip(changed, rows, strict=True))
    assert [(one["label"], one["predict"]) for one in changed] == [(row["label"], row["predict"]) for row in rows]


def test_a_slice_can_be_scored_as_predictions(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    made = make_slices(write(tmp_path / "eval.jsonl", rows), tmp_path / "out")
    score = score_file(made.noisy, ScoringSettings.model_validate({"kind": "exact_match"}))
    assert (score.examples, score.value) == (20, 1.0)


def test_the_same_file_and_seed_give_the_same_noise(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    file = write(tmp_path / "eval.jsonl", rows)
    texts = [
        make_slices(file, tmp_path / name, SliceRules(seed=seed)).noisy.read_text()
        for name, seed in (("a", 1), ("b", 1), ("c", 2))
    ]
    assert texts[0] == texts[1] != texts[2]


def test_of_a_conversation_only_what_the_user_says_is_changed() -> None:
    said = [("system", "Be kind."), ("user", "What is a fjord and where"), ("assistant", "A long inlet of the sea")]
    row = {"messages": [{"role": role, "content": text} for role, text in said]}
    changed = noisy(row, SliceRules(), 1)["messages"]
    assert [one["content"] != text for one, (_, text) in zip(changed, said, strict=True)] == [False, True, False]
    shared = {"conversations": [{"from": "human", "value": "Wo liegt Köln"}, {"from": "gpt", "value": "Am Rhein"}]}
    assert noisy(shared, SliceRules(), 1)["conversations"][1] == shared["conversations"][1]
    assert noisy(shared, SliceRules(), 1) != shared


def test_every_text_with_a_word_gets_noise() -> None:
    for text in ("a", "好", "9", "É", "…x…", "天气怎么样"):
        assert all(noisy({"prompt": text}, SliceRules(seed=seed), 1)["prompt"] != text for seed in range(40))


def test_rows_of_no_use_are_counted_and_a_file_of_none_is_told(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    file = write(tmp_path / "eval.jsonl", rows)
    file.write_text(file.read_text() + "{oops\n" + '{"id": 4}\n')
    done = call(tmp_path, "slices", "eval.jsonl", "--out", "slices")
    assert done.status == 0 and "2 rows could not be used and are left out" in done.out
    nothing = write(tmp_path / "ids.jsonl", [{"id": 1}])
    with pytest.raises(StressError, match=r"no row has text in .*--input"):
        make_slices(nothing, tmp_path / "out")
    assert call(tmp_path, "slices", "eval.jsonl", "--out", "s", "--share", "0").status == 2


def test_noise_in_a_very_long_text_touches_single_words_only() -> None:
    text = "one two three. " * 150_000
    changed = noisy({"prompt": text}, SliceRules(), 1)["prompt"]
    assert changed != text and abs(len(changed) - len(text)) < 0.06 * len(text)
    assert changed.count("one two three. ") > 100_000


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StressError, match="does not exist"):
        make_slices(tmp_path / "nofile", tmp_path / "out")
