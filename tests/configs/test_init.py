"""The template a newcomer starts from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nightlab.configs.init import TEMPLATES, slug_of, write_template
from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError

FLAGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=1e-3)
parser.add_argument("-b", "--batch-size", type=int, default=32)
parser.add_argument("--max-steps", type=int, default=500)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--amp", action="store_true")
"""


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_loads_without_faults_in_an_empty_folder(kind: str, tmp_path: Path) -> None:
    path = write_template(tmp_path / "study.yaml", kind=kind, name="My Model_v2")
    loaded = load_study(path)
    assert loaded.study.study == "my-model-v2"
    assert loaded.study.space
    assert "# CHANGE" in loaded.text
    assert ("# CHANGE: these are examples" in loaded.text) is (kind in ("script", "karpathy"))
    assert {fault.key for fault in loaded.warnings} <= {"frozen", "code.required_calls"}


def test_flags_of_the_script_become_the_baseline_and_the_command(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FLAGS, encoding="utf-8")
    study = load_study(write_template(tmp_path, name="x")).study
    assert study.parameters == {"lr": 0.001, "batch_size": 32, "max_steps": 500}
    assert study.launcher.command == (
        "{python} train.py --lr {lr} --batch-size {batch_size} --max-steps {max_steps} --seed {seed}"
    )
    assert study.launcher.parameters.via == "template"
    assert study.locked == ["max_steps"]
    assert (study.space["lr"].levels, study.space["lr"].scale) == ([0.0003, 0.003], "log")
    assert study.space["batch_size"].levels == [16, 64]
    assert study.launcher.dry_run == {"max_steps": 10}


def test_a_settings_file_the_script_reads_goes_first(tmp_path: Path) -> None:
    script = FLAGS + 'parser.add_argument("--params")\nopen("params.json")\n'
    (tmp_path / "train.py").write_text(script, encoding="utf-8")
    values = {"lr": 1e-5, "seed": 3, "nested": {"a": 1}, "answer": "yes", "rate": float("nan"), "text": "a: b"}
    (tmp_path / "params.json").write_text(json.dumps(values), encoding="utf-8")
    study = load_study(write_template(tmp_path, name="x")).study
    assert study.parameters == {"lr": 1e-05, "answer": "yes", "text": "a: b"}
    assert (study.launcher.parameters.via, study.launcher.parameters.path) == ("file", "params.json")
    assert study.launcher.command == "{python} train.py --seed {seed} --params {params_file}"


def test_a_given_command_says_how_parameters_are_passed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FLAGS, encoding="utf-8")
    command = 'bash -c "python train.py --lr {lr} --depth {depth} --seed {seed}"'
    study = load_study(write_template(tmp_path, name="x", command=command)).study
    assert study.launcher.command == command
    assert study.launcher.parameters.via == "template"
    assert study.parameters == {"lr": 0.001, "depth": 1}


def test_nothing_is_ever_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text("mine", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"study\.yaml: is there already"):
        write_template(tmp_path, name="x")
    assert path.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "magic"}, "'magic' is no template (choose one of script, karpathy, "),
        ({"command": "python 'train.py"}, "launcher.command: cannot be split into words: No closing quotation"),
        ({"command": " "}, "launcher.command: ' ' is empty"),
        ({"command": "bash -c '{ a: b; }'"}, "launcher.command: { a: b; } stands for nothing"),
    ],
)
def test_a_wrong_argument_writes_nothing(arguments: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        write_template(tmp_path, name="x", **arguments)
    assert str(raised.value).startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the folder does not exist"):
        write_template(tmp_path / "absent" / "study.yaml", name="x")


@pytest.mark.parametrize(
    ("name", "slug"),
    [("My_Repo", "my-repo"), ("--", "study"), ("日本", "study"), ("a" * 60, "a" * 40), ("v2.1", "v2-1")],
)
def test_any_name_makes_a_slug(name: str, slug: str) -> None:
    assert slug_of(name) == slug


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-/]{0,8}", fullmatch=True)
        | st.sampled_from(["lr", "null", "steps", "wd"]),
        st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | st.sampled_from(["1e-3", "- a", "#", "~"]),
        max_size=6,
    ),
    st.sampled_from(["script", "karpathy"]),
)
def test_whatever_the_repository_holds_the_template_loads(tmp_path: Path, values: dict[str, object], kind: str) -> None:
    (tmp_path / "params.json").write_text(json.dumps(values), encoding="utf-8")
    constants = "".join(f"{name.upper()} = {value!r}\n" for name, value in values.items() if name.isidentifier())
    (tmp_path / "train.py").write_bytes(constants.encode("utf-8", "surrogatepass"))
    target = tmp_path / "study.yaml"
    target.unlink(missing_ok=True)
    study = load_study(write_template(target, kind=kind, name="x")).study
    if kind == "script":
        assert study.parameters.items() <= values.items() or "learning_rate" in study.parameters
