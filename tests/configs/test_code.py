"""The section `code`: what may be changed, and what contradicts the rest of the study."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.code import (
    CodeSettings,
    is_mutable,
    settings_of,
    with_ideas_unused,
    without_unused_ideas,
)
from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from tests.configs.sample import SAMPLE


def loaded(folder: Path, section: str, text: str = SAMPLE) -> CodeSettings:
    (folder / "study.yaml").write_text(f"{text}code:\n{section}")
    return load_study(folder / "study.yaml").study.code


def test_a_study_without_the_section_lets_nothing_be_changed(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(SAMPLE)
    code = load_study(tmp_path / "study.yaml").study.code
    assert code.mutable == [] and not is_mutable(code, [], "train.py")


@pytest.mark.parametrize(
    ("section", "fault"),
    [
        ("  mutable: [prepare.py]\n", r"code\.mutable\[0\]: 'prepare\.py' is frozen"),
        ("  mutable: [../x.py]\n", "inside the repository"),
        ("  mutable: [nightlab_params.json]\n", "holds the parameter file"),
        ("  mutable: ['*.json']\n", "holds the parameter file"),
        ("  mutable: [train.py]\n  smoke: {epochs: 1}\n", r"code\.smoke\.epochs: 'epochs' is not among parameters"),
        ("  mutable: [train.py]\n  required_calls: ['f()']\n", "required_calls"),
        ("  ideas: 0\n", r"code\.ideas"),
    ],
)
def test_what_contradicts_the_study_is_a_fault_at_load(tmp_path: Path, section: str, fault: str) -> None:
    with pytest.raises(ConfigError, match=fault):
        loaded(tmp_path, section)


def test_no_parameter_has_the_name_of_an_idea(tmp_path: Path) -> None:
    text = SAMPLE.replace("  steps: 100\n", "  steps: 100\n  code/x: 1\n")
    with pytest.raises(ConfigError, match="is the name of a code idea"):
        loaded(tmp_path, "  mutable: [train.py]\n", text)


def test_a_pattern_stays_within_its_folder_and_frozen_paths_win() -> None:
    code = CodeSettings(mutable=["train.py", "model/*.py"])
    assert [is_mutable(code, ["model/eval.py", "data"], path) for path in ("train.py", "model/net.py")] == [True, True]
    for path in ("model/eval.py", "model/deep/net.py", "other/train.py", "model/net.txt", "data/model/net.py"):
        assert not is_mutable(code, ["model/eval.py", "data"], path)


def test_configurations_with_and_without_ideas() -> None:
    whole = {"lr": 0.1, "code/a": True, "code/b": False, "flag": False}
    assert settings_of(whole) == {"lr": 0.1, "flag": False}
    assert without_unused_ideas(whole) == {"lr": 0.1, "code/a": True, "flag": False}
    assert with_ideas_unused(without_unused_ideas(whole), ["code/a", "code/b"]) == whole
