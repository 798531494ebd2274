"""The script launcher: words, placeholders, environment, file; every value arrives as it was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LauncherError
from nightlab.tools.launchers import Launch, launcher_for

PARAMETERS: dict[str, Scalar] = {"lr": 1e-05, "width": 64, "use_bias": True, "model.name": "none", "tag": "1e-3"}
ECHO = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ)]))"


def study(
    command: str | list[str],
    parameters: Mapping[str, Scalar] = PARAMETERS,
    *,
    passing: dict[str, str] | None = None,
    **launcher: Any,
) -> Study:
    return Study.model_validate(
        {
            "study": "s",
            "scenario": "s",
            "method": "m",
            "base_model": "b",
            "objective": {"metric": "loss", "direction": "minimize", "min_effect": 0.1},
            "parameters": dict(parameters),
            "launcher": {"command": command, "parameters": passing or {"via": "template"}, **launcher},
            "budget": {"runs": 3},
        }
    )


def launch(the_study: Study, tree: Path, parameters: Mapping[str, Scalar] | None = None) -> Launch:
    launcher = launcher_for(the_study)
    return launcher.launch(parameters or the_study.parameters, seed=7, tree=tree, output=tree / "out")


def test_placeholders_are_filled_after_splitting(tmp_path: Path) -> None:
    command = "{python} 'my train.py' --lr={lr} -b {use_bias} --out {output_dir}/x --seed {seed} {{lr}} ''"
    assert launch(study(command), tmp_path).command == (
        sys.executable,
        "my train.py",
        "--lr=1e-05",
        "-b",
        "True",
        "--out",
        f"{tmp_path}/out/x",
        "--seed",
        "7",
        "{lr}",
        "",
    )


def test_a_list_is_taken_as_it_is(tmp_path: Path) -> None:
    assert launch(study(["a b", '"{lr}"', "{width}{tag}"]), tmp_path).command == ("a b", '"1e-05"', "641e-3")


@pytest.mark.parametrize(
    "value",
    [
        "two words",
        "it's",
        '"quoted"',
        "-5",
        "--flag",
        "$(id) `id` ; rm -rf x",
        "naïve 模型 🌙",
        "",
        "{width}",
        "a\nb",
        "*",
    ],
)
@pytest.mark.parametrize("via", ["template", "environment"])
def test_text_reaches_a_real_process_unharmed(tmp_path: Path, via: str, value: str) -> None:
    passing = {"via": via, "prefix": "HP_"}
    the_study = study(["{python}", "-c", ECHO.replace("{", "{{"), "{text}"], {"text": value}, passing=passing)
    it = launch(the_study, tmp_path)
    done = subprocess.run(it.command, cwd=it.cwd, env=it.env, capture_output=True, check=True, text=True)
    arguments, environment = json.loads(done.stdout)
    assert arguments == [value]
    assert environment.get("HP_TEXT") == (value if via == "environment" else None)


def test_every_mode_tells_seed_and_output_folder(tmp_path: Path) -> None:
    assert launch(study("true"), tmp_path).env == {
        "NIGHTLAB_SEED": "7",
        "NIGHTLAB_OUTPUT_DIR": str(tmp_path / "out"),
    }
    by_file = study("run {params_file}", passing={"via": "file", "path": "conf/p.json"})
    it = launch(by_file, tmp_path)
    assert it.env["NIGHTLAB_PARAMS_FILE"] == str(tmp_path / "conf/p.json")
    assert it.command == ("run", str(tmp_path / "conf/p.json"))


def test_environment_variables_carry_the_prefix(tmp_path: Path) -> None:
    env = launch(study("true", passing={"via": "environment", "prefix": "HP_"}), tmp_path).env
    assert {name: value for name, value in env.items() if name.startswith("HP_")} == {
        "HP_LR": "1e-05",
        "HP_WIDTH": "64",
        "HP_USE_BIAS": "True",
        "HP_MODEL_NAME": "none",
        "HP_TAG": "1e-3",
    }


@pytest.mark.parametrize(
    ("parameters", "prefix", "word"),
    [
        ({"path": "x"}, "", "PATH"),
        ({"Home": "x"}, "", "HOME"),
        ({"library_path": "x"}, "LD_", "LD_LIBRARY_PATH"),
        ({"seed": 3}, "NIGHTLAB_", "NIGHTLAB_SEED"),
        ({"a.b": 1, "a-b": 2}, "", "another parameter"),
        ({"lr": 1}, "2X=", "no name of a variable"),
    ],
)
def test_a_colliding_variable_is_refused(tmp_path: Path, parameters: dict[str, Scalar], prefix: str, word: str) -> None:
    the_study = study("true", parameters, passing={"via": "environment", "prefix": prefix})
    with pytest.raises(LauncherError, match=word):
        launch(the_study, tmp_path)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train --lr {learning_rate}", ["{learning_rate}", "{lr}", "{output_dir}"]),
        ("train {params_file}", ["{params_file}"]),
        ("train '{\"a\": 1}'", ["written twice"]),
        ("train {lr", ["'{'"]),
    ],
)
def test_a_command_that_cannot_be_rendered_is_refused(
    tmp_path: Path, command: str | list[str], words: list[str]
) -> None:
    with pytest.raises(LauncherError) as caught:
        launch(study(command), tmp_path)
    assert all(word in str(caught.value) for word in ["launcher.command", *words])
    assert "\n" not in str(caught.value)


def test_a_parameter_may_not_hide_the_labs_own_placeholder(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="both the lab's and a parameter"):
        launch(study("train {seed}", {"seed": 1}), tmp_path)
    assert launch(study("train", {"seed": 1}), tmp_path).command == ("train",)


def test_a_nul_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="NUL"):
        launch(study("train {text}", {"text": "a\0b"}), tmp_path)


def test_a_change_without_a_place_in_the_template_is_refused(tmp_path: Path) -> None:
    the_study = study("train --lr {lr} {{width}}")
    assert launch(the_study, tmp_path, {**PARAMETERS, "lr": 0.1}).command == ("train", "--lr", "0.1", "{width}")
    with pytest.raises(LauncherError, match="width is to be 32, but the command has no place"):
        launch(the_study, tmp_path, {**PARAMETERS, "width": 32})


def test_a_shells_own_variables_are_left_alone(tmp_path: Path) -> None:
    assert launch(study(["bash", "-c", "echo ${HOME} $X {lr}"]), tmp_path).command[2] == "echo ${HOME} $X 1e-05"


def test_the_working_folder_lies_in_the_tree(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    assert launch(study("true", cwd="sub"), tmp_path).cwd == tmp_path / "sub"
    (tmp_path / "link").symlink_to(tmp_path.parent)
    for outside in ("link", "missing"):
        with pytest.raises(LauncherError, match=r"launcher\.cwd"):
            launch(study("true", cwd=outside), tmp_path)


@pytest.mark.parametrize("via", ["template", "environment"])
def test_without_a_file_there_is_nothing_to_write_or_read_back(tmp_path: Path, via: str) -> None:
    launcher = launcher_for(study("true", passing={"via": via}))
    assert launcher.files(PARAMETERS, tmp_path) == {}
    assert launcher.read_back(tmp_path) is None


@pytest.mark.parametrize("path", ["p.json", "conf/p.yaml", "p.yml"])
def test_files_are_deterministic_and_read_back_exactly(tmp_path: Path, path: str) -> None:
    launcher = launcher_for(study("true", passing={"via": "file", "path": path}))
    files = launcher.files(PARAMETERS, tmp_path)
    assert files == launcher.files(dict(reversed(PARAMETERS.items())), tmp_path)
    (tmp_path / path).parent.mkdir(exist_ok=True)
    (tmp_path / path).write_text(files[path], encoding="utf-8")
    stated = launcher.read_back(tmp_path)
    assert repr(stated) == repr(PARAMETERS)
    assert launcher.files(PARAMETERS, tmp_path) == files


@pytest.mark.parametrize("text", [None, "{broken", "[1]"])
def test_a_file_that_is_gone_or_broken_states_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "p.json").write_text(text, encoding="utf-8")
    launcher = launcher_for(study("true", passing={"via": "file", "path": "p.json"}))
    assert launcher.read_back(tmp_path) == {}
