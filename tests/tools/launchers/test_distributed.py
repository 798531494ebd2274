"""A script in several processes: what stands between Python and it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from nightlab.configs.launcher import LauncherSettings
from nightlab.errors import LauncherError
from tests.tools.launchers.test_script import launch
from tests.tools.launchers.test_script import study as script_study


def command(tmp_path: Path, start: str, launcher: str, gpus: list[int] | None = None, **more: Any) -> tuple[str, ...]:
    the_study = script_study(start, passing={"via": "file"}, distributed={"launcher": launcher, **more})
    backend = the_study.backend.model_copy(update={"gpus": gpus or [], "slots": 1})
    return launch(the_study.model_copy(update={"backend": backend}), tmp_path).command


def test_torchrun(tmp_path: Path) -> None:
    assert command(tmp_path, "{python} train.py --seed {seed}", "torchrun", processes=4) == (
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"),
        *("train.py", "--seed", "7"),
    )


def test_a_module_stays_one(tmp_path: Path) -> None:
    words = command(tmp_path, "{python} -m pkg.train -x", "torchrun", gpus=[0, 1])
    assert words[-5:] == ("--nproc-per-node", "2", "--module", "pkg.train", "-x")


def test_accelerate(tmp_path: Path) -> None:
    words = command(tmp_path, "{python} train.py", "accelerate", processes=2, config="acc.yaml")
    assert words[1:5] == ("-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "acc.yaml"))
    assert words[5:10] == ("--num_processes", "2", "--num_machines", "1", "--main_process_port")
    assert words[11:] == ("train.py",)
    words = command(tmp_path, "{python} train.py", "accelerate", gpus=[0, 1])
    assert words[-2:] == ("--multi_gpu", "train.py")
    assert "--multi_gpu" not in command(tmp_path, "{python} train.py", "accelerate")


def test_deepspeed_leaves_the_choice_of_gpus_to_the_backend(tmp_path: Path) -> None:
    assert "--num_gpus" in command(tmp_path, "{python} train.py", "deepspeed", processes=2)
    words = command(tmp_path, "{python} train.py", "deepspeed", gpus=[2, 3])
    assert "--num_gpus" not in words
    assert words[-3] == "--master_port"


@pytest.mark.parametrize("start", ["{python}", "{python} -c pass", "{python} -m"])
def test_what_has_no_script_cannot_be_started(start: str, tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="no script to start in processes"):
        command(tmp_path, start, "torchrun", processes=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"command": ""}, ["is empty"]),
        ({"command": "bash run.sh", "distributed": {"launcher": "torchrun"}}, ["must begin with Python", "torchrun"]),
        ({"command": "python t.py", "config": "a.yaml"}, ["belongs to kind llamafactory and trl and roll, not script"]),
        ({"command": "python t.py", "predict": True}, ["belongs to kind llamafactory, not script"]),
        ({"kind": "trl"}, ["is missing", "sft, dpo, grpo"]),
        ({"kind": "trl", "task": "sftt"}, ["'sftt' is none of trl"]),
        ({"kind": "llamafactory", "task": "sft"}, ["belongs to kind trl and roll, not llamafactory"]),
        ({"kind": "roll", "task": "rlvr"}, ["name the pipeline's YAML"]),
        ({"kind": "llamafactory", "config": "a.toml"}, ["neither .yaml nor .yml"]),
        ({"kind": "llamafactory", "distributed": {"launcher": "deepspeed"}}, ["not started by deepspeed", "torchrun"]),
        ({"kind": "llamafactory", "parameters": {"via": "environment"}}, ["belongs to kind script"]),
        ({"kind": "llamafactory", "predict_settings": {"a": 1}}, ["is for the second step, which is off"]),
        ({"kind": "roll", "task": "sft", "config": "a.yaml", "distributed": {"launcher": "torchrun"}}, ["Ray starts"]),
        (
            {"command": "python t.py", "distributed": {"launcher": "torchrun", "config": "x"}},
            ["torchrun reads no file"],
        ),
    ],
)
def test_what_does_not_go_together(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ValidationError) as caught:
        LauncherSettings.model_validate(given)
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_what_was_written_by_the_model_is_read_by_it() -> None:
    for given in ({"command": "train"}, {"kind": "llamafactory"}, {"kind": "trl", "task": "sft"}):
        settings = LauncherSettings.model_validate(given)
        assert LauncherSettings.model_validate_json(settings.model_dump_json(by_alias=True)) == settings
