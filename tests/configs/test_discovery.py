"""What a repository shows of itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.discovery import Discovery, constants, discover
from nightlab.configs.proposals import ProposedFactor, propose_locked, propose_space
from nightlab.configs.study import Scalar


def test_an_empty_folder_shows_nothing(tmp_path: Path) -> None:
    assert discover(tmp_path) == Discovery()


def test_only_literal_defaults_of_long_options_count(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "p.add_argument('data', default='x')\n"
        "p.add_argument('-q', default=1)\n"
        "p.add_argument('--depth', default=2 + 2)\n"
        "p.add_argument('--shift', default=-0.5)\n"
        "p.add_argument('--name', default='')\n"
        "p.add_argument('--flag', action='store_true', default=False)\n"
        "p.add_argument('--sizes', nargs='+', default=3)\n"
        "p.add_argument('--width', dest='hidden', default=64)\n"
        "p.add_argument('--output-dir', default='out')\n",
        encoding="utf-8",
    )
    found = discover(tmp_path)
    assert found.parameters == {"shift": -0.5, "hidden": 64}
    assert found.command == "{python} main.py --shift {shift} --width {hidden} --output-dir {output_dir}"


def test_a_yaml_file_is_read_with_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "train.yaml").write_text("lr: 1e-3\nlist: [1]\nempty:\n", encoding="utf-8")
    found = discover(tmp_path)
    assert (found.path, found.parameters) == ("configs/train.yaml", {"lr": 0.001})


@pytest.mark.parametrize("content", [b"def (", b"\xff\xfe", b"\x00", b"(" * 5000, b"x = " + b"-" * 50000 + b"1"])
def test_a_script_that_cannot_be_read_shows_only_its_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_bytes(content)
    assert discover(tmp_path) == Discovery(command="{python} train.py")
    assert constants(tmp_path, "train.py") == {}


@pytest.mark.parametrize("content", ["", "[1]", "{", "[" * 100_000, '{"a": {"b": 1}}', '{"a b": 1}'])
def test_a_settings_file_without_plain_values_is_passed_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "params.json").write_text(content, encoding="utf-8")
    assert discover(tmp_path) == Discovery()


def test_names_say_what_to_try_and_what_to_keep() -> None:
    parameters: dict[str, Scalar] = {
        "optimizer.lr": 0.1,
        "learningRate": 0.0,
        "WEIGHT_DECAY": 0.1,
        "warmup_steps": 10,
        "train_batch_size": 1,
        "dropout": 0.5,
        "num_epochs": 3,
        "eval_path": "x",
        "model": "a/b",
    }
    assert propose_locked(parameters) == ["num_epochs", "eval_path", "model"]
    assert propose_space(parameters) == {
        "optimizer.lr": ProposedFactor((0.03, 0.3), log=True),
        "WEIGHT_DECAY": ProposedFactor((0.0, 0.01)),
        "dropout": ProposedFactor((0.0, 0.1, 0.2)),
    }


def test_without_a_familiar_name_the_first_number_is_proposed() -> None:
    assert propose_space({"depth": 4, "width": 8}) == {"depth": ProposedFactor((2, 8))}
    assert propose_space({"steps": 100, "kind": "a", "is_on": True}) == {}
