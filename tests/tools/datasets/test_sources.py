"""Data are found as files, as folders and by their names in dataset_info.json; what is not there is said at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nightlab.configs.data import DataSettings
from nightlab.errors import ConfigError
from nightlab.tools.datasets.sources import sources_of
from tests.tools.datasets.files import figures_of, write_json, write_lines


def info_file(root: Path, **entries: Any) -> str:
    (root / "dataset_info.json").write_text(json.dumps(entries))
    return "dataset_info.json"


def test_files_and_folders(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [])
    (tmp_path / "parts" / "deep").mkdir(parents=True)
    for name in ("deep/2.jsonl", "1.jsonl", "README.md", "dataset_info.json"):
        (tmp_path / "parts" / name).write_text("")
    found = sources_of(DataSettings(train=["a.json", "parts"]), tmp_path, "train")
    assert [[file.name for file in source.files] for source in found] == [["a.json"], ["1.jsonl", "2.jsonl"]]


def test_every_absent_file_is_named_with_what_was_probably_meant(tmp_path: Path) -> None:
    info = info_file(tmp_path, qr_train={"file_name": "gone.json"}, hub={"hf_hub_url": "some/where"})
    (tmp_path / "empty").mkdir()
    settings = DataSettings(train=["qr_trian", "qr_train", "hub", "empty"], info=info)
    with pytest.raises(ConfigError) as caught:
        sources_of(settings, tmp_path, "train")
    lines = str(caught.value).splitlines()
    assert lines[0] == "data.train: qr_trian does not exist (did you mean qr_train?)"
    assert "names gone.json, which does not exist" in lines[1]
    assert "hub is not a file here" in lines[2]
    assert "empty holds no data file" in lines[3]


@pytest.mark.parametrize("text", [None, "{", "[]"])
def test_an_info_that_cannot_be_read(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "dataset_info.json").write_text(text)
    with pytest.raises(ConfigError, match=r"data\.info"):
        sources_of(DataSettings(train="x", info="dataset_info.json"), tmp_path, "train")


def test_columns_of_an_entry_hide_the_usual_ones(tmp_path: Path) -> None:
    """LLaMA-Factory's trap: with `columns`, a column that is not listed is not read."""
    write_json(tmp_path / "a.json", [{"instruction": "q", "input": "more", "output": "a"}] * 2)
    info_file(
        tmp_path,
        whole={"file_name": "a.json"},
        part={"file_name": "a.json", "columns": {"prompt": "instruction", "response": "output"}},
    )
    whole = figures_of(tmp_path, train="whole", info=".").train
    part = figures_of(tmp_path, train="part", info=".").train
    assert whole is not None
    assert part is not None
    assert whole.tokens.mean > part.tokens.mean


def test_own_tags_and_a_wrong_role(tmp_path: Path) -> None:
    rows = [{"chat": [{"who": "u", "says": "q"}, {"who": "a", "says": "r"}]}, {"chat": [{"who": "x", "says": "q"}] * 2}]
    write_lines(tmp_path / "a.jsonl", rows)
    tags = {"role_tag": "who", "content_tag": "says", "user_tag": "u", "assistant_tag": "a"}
    entry = {"file_name": "a.jsonl", "formatting": "sharegpt", "columns": {"messages": "chat"}, "tags": tags}
    info_file(tmp_path, mine=entry)
    side = figures_of(tmp_path, train="mine", info="dataset_info.json").train
    assert side is not None
    assert side.broken == {"has the unknown role x": 1}
    assert side.good_rows == 1


def test_ranking_and_pretraining_entries(tmp_path: Path) -> None:
    write_json(tmp_path / "pairs.json", [{"instruction": "q", "chosen": "good one", "rejected": "bad"}] * 3)
    write_json(tmp_path / "text.json", [{"text": "words"}])
    columns = {"prompt": "instruction", "chosen": "chosen", "rejected": "rejected"}
    info_file(
        tmp_path,
        pairs={"file_name": "pairs.json", "ranking": True, "columns": columns},
        text={"file_name": "text.json", "columns": {"prompt": "text"}},
        odd={"file_name": "text.json", "formatting": "other"},
    )
    pairs = figures_of(tmp_path, train="pairs", info=".").train
    assert pairs is not None
    assert pairs.pairs is not None
    text = figures_of(tmp_path, train="text", info=".").train
    assert text is not None
    assert (text.rows, text.broken_rows) == (1, 0)
    with pytest.raises(ConfigError, match="has the formatting other"):
        figures_of(tmp_path, train="odd", info=".")


def test_columns_that_tell_no_format_are_the_persons_to_name(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", [{"foo": "q", "bar": "a"}])
    with pytest.raises(ConfigError, match=r"the columns foo, bar tell no format \(say what they hold"):
        figures_of(tmp_path, train="a.json")
    side = figures_of(tmp_path, train="a.json", columns={"prompt": "foo", "response": "bar"}).train
    assert side is not None
    assert side.good_rows == 1


def test_as_many_rows_are_usable_as_llamafactory_keeps(tmp_path: Path) -> None:
    """LLaMA-Factory 0.9.5 was given these files: it kept 13 of 14, 12 of 17 and 11 of 12 rows."""
    human, gpt, robot = ({"from": role, "value": "x"} for role in ("human", "gpt", "robot"))
    system = {"from": "system", "value": "s"}
    talks = [
        [human],
        [gpt, human],
        [robot, gpt],
        [system, human, gpt],
        [human, gpt, human],
        [human, {**gpt, "value": ""}],
    ]
    q, pair = {"instruction": "q", "input": ""}, {"chosen": "a", "rejected": "b"}
    history = {"instruction": "q", "input": "i", "output": "ok", "history": [["a", "b"]]}
    alpaca = [{**q, "output": "a"}] * 10 + [q, {**q, "output": ""}, {"instruction": "", "output": "x"}, history]
    pairs = [{**q, **pair}] * 10 + [{**q, "chosen": "a"}, {**q, **pair, "rejected": ""}]
    write_json(tmp_path / "alpaca.json", alpaca)
    write_json(tmp_path / "talks.json", [{"conversations": one} for one in [[human, gpt]] * 10 + [*talks, []]])
    write_json(tmp_path / "pairs.json", pairs)
    columns = {"prompt": "instruction", "query": "input", "chosen": "chosen", "rejected": "rejected"}
    info_file(
        tmp_path,
        alpaca={"file_name": "alpaca.json"},
        talks={"file_name": "talks.json", "formatting": "sharegpt"},
        pairs={"file_name": "pairs.json", "ranking": True, "columns": columns},
    )
    sides = [figures_of(tmp_path, train=name, info=".").train for name in ("alpaca", "talks", "pairs")]
    assert [(side.rows, side.good_rows) for side in sides if side] == [(14, 13), (17, 12), (12, 11)]


def test_a_section_without_data_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="names no data"):
        DataSettings(format="alpaca")
    assert DataSettings().train_names == []
    with pytest.raises(ValidationError):
        DataSettings(train="a", columns={"prompts": "a"})  # type: ignore[dict-item]
