"""What a model is shown of a repository: the committed files that matter, within bounds, and no secret."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.agents.reading import Reading, quoted_within, read_repository
from nightlab.agents.samples import is_private
from tests.agents.lab import new_lab
from tests.task import commit_all

TOKEN = "ghp_" + "a1B2" * 9
FILES = {
    "README.md": "# A small task\n",
    "model.py": "class Model: ...\n",
    "eval/metric.py": "def metric(): ...\n",
    "eval/held_out.jsonl": '{"text": "held out"}\n',
    "data/test.json": '[{"text": "held out"}]',
    "data/train.jsonl": "".join(f'{{"text": "row {row}"}}\n' for row in range(100)),
    "configs/base.yaml": f"rate: 1\nhub: {TOKEN}\n",
    ".env": "PASSWORD=hunter2hunter2\n",
    "deploy/.env.production": "PASSWORD=hunter2hunter2\n",
    "keys/server.pem": "hunter2hunter2\n",
    "secrets.yaml": "hunter2hunter2\n",
    "weights.bin": "\0\1\2 binary-content",
    "study_notes.txt": "a note\n",
}


def shown(reading: Reading) -> dict[str, str]:
    """Path → text, as a model reads them."""
    return {json.loads(one.path): json.loads(one.text) for one in reading.excerpts}


def everything(reading: Reading) -> str:
    return reading.tree + "".join(one.path + one.text for one in reading.excerpts)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Reading:
    folder = tmp_path_factory.mktemp("reading")
    measured = {"data": {"train": "data/train.jsonl", "eval": "data/test.json"}}
    with new_lab(folder, append="import model\n", extra=FILES, frozen=["prepare.py", "eval"], **measured) as lab:
        return read_repository(lab, 30_000)


def test_what_the_command_starts_comes_first_then_what_it_imports(reading: Reading) -> None:
    assert list(shown(reading))[:2] == ["train.py", "model.py"]
    assert [one.kind for one in reading.excerpts][:2] == ["started by the command", "imported by it"]
    assert {"params.json", "configs/base.yaml", "README.md", "eval/metric.py"} <= shown(reading).keys()
    assert "data/train.jsonl 1890" in json.loads(reading.tree)


def test_data_are_shown_by_their_first_rows_and_evaluation_data_never(reading: Reading) -> None:
    rows = shown(reading)["data/train.jsonl"].splitlines()
    assert rows == [f'{{"text": "row {row}"}}' for row in range(6)]
    assert "held out" not in everything(reading)


def test_no_secret_and_nothing_binary_is_shown(reading: Reading) -> None:
    text = everything(reading)
    assert "hunter2" not in text and TOKEN not in text and "binary-content" not in text
    assert not {".env", "deploy/.env.production", "keys/server.pem", "secrets.yaml"} & set(text.split())
    assert "hub: " in shown(reading)["configs/base.yaml"]


def test_the_study_file_is_told_in_our_words_alone(reading: Reading) -> None:
    assert "study.yaml" not in everything(reading)


@pytest.mark.parametrize("path", [".env", "a/.ENV.local", "x/id_rsa", "my-credentials.json", "secrets/one.txt"])
def test_files_that_keep_secrets_are_known_by_name(path: str) -> None:
    assert is_private(path)


@pytest.mark.parametrize("path", ["tokenizer.json", "environment.yml", "src/env.py", "keys.py"])
def test_and_others_are_not_taken_for_them(path: str) -> None:
    assert not is_private(path)


def test_the_base_commit_is_read_and_not_what_lies_about(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        before = read_repository(lab, 20_000)
        (lab.paths.root / "train.py").write_text("print('edited')\n")
        (lab.paths.root / "new.py").write_text("print('new')\n")
        assert read_repository(lab, 20_000) == before
        commit_all(lab.paths.root, "later")
        assert read_repository(lab, 20_000) == before


def test_inputs_are_sampled_but_no_link_out_of_them_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    outside.write_text("private\n")
    with new_lab(tmp_path, inputs=["pool"], frozen=["pool/valid.txt"]) as lab:
        pool = lab.paths.root / "pool"
        pool.mkdir()
        (pool / "b.txt").write_text("first row\n" * 3000)
        (pool / "valid.txt").write_text("held out\n")
        (pool / ".env").write_text("KEY=1\n")
        (pool / "credentials.txt").write_text("KEY=1\n")
        (pool / "noise.txt").write_bytes(b"\0\1")
        (pool / "a.txt").symlink_to(outside)
        found = shown(read_repository(lab, 20_000))
    assert found["pool/b.txt"].splitlines() == ["first row"] * 6
    assert [path for path in found if path.startswith("pool/")] == ["pool/b.txt"]


@pytest.mark.parametrize("limit", [0, 200, 3_000, 30_000])
def test_it_keeps_within_its_bound_whatever_there_is(tmp_path: Path, limit: int) -> None:
    files = {f"part_{index:03d}.py": f"# {index}\n" + '"\\\t' * 400 for index in range(60)}
    with new_lab(tmp_path, extra=files) as lab:
        reading = read_repository(lab, limit)
    size = len(reading.tree.encode()) + sum(len((one.path + one.text + one.kind).encode()) for one in reading.excerpts)
    assert size <= limit + len('""')
    assert (limit < 3_000) or next(iter(shown(reading))) == "train.py"


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, '"' * 5000, "\n\x00" * 3000, "語" * 3000, "\u2028" * 999])
@pytest.mark.parametrize("limit", [2, 60, 61, 500])
def test_quoted_within_is_a_json_string_of_at_most_its_bytes(text: str, limit: int) -> None:
    found = quoted_within(text, limit)
    assert len(found.encode()) <= limit
    assert "\n" not in found and len(found.splitlines()) == 1
    assert isinstance(json.loads(found), str)
