"""LLaMA-Factory: one YAML an experiment, one command a run; what the framework would refuse is told before."""

from __future__ import annotations

import shlex
import socket
from pathlib import Path
from typing import Any

import pytest
import yaml

from nightlab.agents.cards import Rerun
from nightlab.configs.study import Scalar
from nightlab.errors import LauncherError
from nightlab.knowledge.records import Experiment
from nightlab.tools.launchers.base import Exports
from nightlab.tools.launchers.llamafactory_rules import problems_of
from nightlab.tools.launchers.ports import free_port
from tests.tools.launchers.frameworks import framework, study, write

USER = {
    "model_name_or_path": "tiny",
    "stage": "sft",
    "do_train": True,
    "finetuning_type": "lora",
    "dataset": "train",
    "eval_dataset": "test",
    "template": "qwen",
    "output_dir": "out/mine",
    "seed": 3,
    "resume_from_checkpoint": "out/mine/checkpoint-5",
    "plot_loss": True,
    "per_device_train_batch_size": 4,
}


def rendered(tree: Path, **launcher: Any) -> dict[str, Any]:
    parameters = launcher.pop("parameters", {"learning_rate": 1e-4})
    files = framework(study("llamafactory", parameters, **launcher)).files(parameters, tree)
    (text,) = files.values()
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


def test_the_yaml_is_the_users_with_the_parameters_and_without_what_is_a_runs_own(tmp_path: Path) -> None:
    write(tmp_path, "conf/train.yaml", USER)
    document = rendered(tmp_path, config="conf/train.yaml", settings={"max_samples": 64, "bf16": True})
    assert document == {
        **{key: USER[key] for key in USER if key not in ("output_dir", "seed", "resume_from_checkpoint")},
        "max_samples": 64,
        "bf16": True,
        "learning_rate": 1e-4,
        "plot_loss": False,
        "logging_steps": 10,
        "report_to": "none",
        "do_eval": True,
        "eval_strategy": "epoch",
        "do_sample": False,
    }


def test_without_a_file_the_model_is_the_studys(tmp_path: Path) -> None:
    document = rendered(tmp_path, settings={"dataset": "train", "do_sample": True})
    assert document["model_name_or_path"] == "tiny"
    assert document["do_train"] is True
    assert document["do_sample"] is True, "what the study says stands"
    assert "eval_strategy" not in document, "there is nothing to evaluate on"


def test_the_file_is_written_beside_the_users(tmp_path: Path) -> None:
    write(tmp_path, "conf/train.yml", USER)
    the_study = study("llamafactory", {"learning_rate": 1e-4}, config="conf/train.yml")
    assert list(framework(the_study).files({"learning_rate": 1e-4}, tmp_path)) == ["conf/nightlab_train.yaml"]
    assert the_study.launcher.written == "conf/nightlab_train.yaml"


def test_names_come_from_the_framework_the_catalog_and_the_studys_map(tmp_path: Path) -> None:
    parameters = {"lora_rank": 8, "beta": 0.2, "lr": 1e-4, "effective_batch": 16}
    settings = {"dataset": "train", "per_device_train_batch_size": 4, "stage": "dpo"}
    document = rendered(
        tmp_path, parameters=parameters, settings=settings, catalog={"parameters": {"learning_rate": "lr"}}
    )
    assert document["lora_rank"] == 8
    assert document["pref_beta"] == 0.2
    assert document["learning_rate"] == 1e-4
    assert document["gradient_accumulation_steps"] == 4
    assert not {"beta", "lr", "effective_batch"} & document.keys()


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    parameters: dict[str, Scalar] = {
        "learning_rate": 1e-5,
        "beta": 0.2,
        "effective_batch": 8,
        "lora_target": "q_proj,v_proj",
    }
    the_study = study("llamafactory", parameters, settings={"dataset": "train", "stage": "dpo"})
    launcher = framework(the_study)
    assert launcher.read_back(tmp_path) == {}, "no file, nothing stated"
    for path, text in launcher.files({**parameters, "learning_rate": 2e-5}, tmp_path).items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    assert launcher.read_back(tmp_path) == {**parameters, "learning_rate": 2e-5}
    (tmp_path / "nightlab_train.yaml").write_text("a: [", encoding="utf-8")
    assert launcher.read_back(tmp_path) == {}


def test_a_batch_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="no multiple of 8"):
        rendered(
            tmp_path,
            parameters={"effective_batch": 12},
            settings={"dataset": "train", "per_device_train_batch_size": 4},
            distributed={"launcher": "torchrun", "processes": 2},
        )


def test_every_run_has_its_own_folder_and_seed(tmp_path: Path) -> None:
    launcher = framework(study("llamafactory", {"learning_rate": 1e-4}, command="{python} -m llamafactory.cli"))
    launch = launcher.launch({"learning_rate": 1e-4}, seed=7, tree=tmp_path, output=tmp_path / "run 1")
    assert launch.command[1:] == (
        *("-m", "llamafactory.cli", "train", str(tmp_path / "nightlab_train.yaml")),
        *(f"output_dir={tmp_path}/run 1", "overwrite_output_dir=true", "seed=7"),
    )
    assert launch.env == {"NIGHTLAB_SEED": "7", "NIGHTLAB_OUTPUT_DIR": str(tmp_path / "run 1")}


def test_a_path_that_yaml_would_read_otherwise_is_quoted(tmp_path: Path) -> None:
    launcher = framework(study("llamafactory", {"learning_rate": 1e-4}))
    launch = launcher.launch({"learning_rate": 1e-4}, seed=7, tree=tmp_path, output=tmp_path / "a: b #1")
    (word,) = (word for word in launch.command if word.startswith("output_dir="))
    assert yaml.safe_load(word.partition("=")[2]) == str(tmp_path / "a: b #1")


def test_prediction_takes_what_was_just_trained(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", USER)
    the_study = study(
        "llamafactory",
        {"learning_rate": 1e-4},
        config="train.yaml",
        predict=True,
        predict_settings={"eval_dataset": "other", "max_new_tokens": 8},
    )
    output = tmp_path / "it's"
    launcher = framework(the_study)
    launch = launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=output)
    assert launch.command[:2] == ("sh", "-c")
    train, _, predict = launch.command[2].partition(" && exec ")
    assert shlex.split(train)[:2] == shlex.split(predict)[:2] == ["llamafactory-cli", "train"]
    file, *words = shlex.split(predict)[2:]
    step = dict(word.split("=", 1) for word in words)
    assert yaml.safe_load(step["adapter_name_or_path"]) == str(output)
    assert yaml.safe_load(step["output_dir"]) == str(output / "predict")
    files = launcher.files({"learning_rate": 1e-4}, tmp_path)
    assert [str(tmp_path / path) for path in files] == [shlex.split(train)[2], file]
    assert list(files) == the_study.launcher.files, "review knows them"
    document = yaml.safe_load(files["nightlab_train_predict.yaml"])
    assert document["do_predict"] and document["predict_with_generate"] and not document["do_train"]
    assert (document["template"], document["eval_dataset"], document["max_new_tokens"]) == ("qwen", "other", 8)
    assert document["dataset"] is None, "pairs, for one, could not even be read in stage sft"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"finetuning_type": "full"}, {"model_name_or_path": "/out"}),
        ({"adapter_name_or_path": "first"}, {"adapter_name_or_path": "/out"}),
        ({"adapter_name_or_path": "first,second"}, {"adapter_name_or_path": "first,/out"}),
        ({"adapter_name_or_path": "first", "create_new_adapter": True}, {"adapter_name_or_path": "first,/out"}),
    ],
)
def test_what_prediction_loads(more: dict[str, Any], expected: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {**USER, **more})
    launcher = framework(study("llamafactory", {"learning_rate": 1e-4}, config="train.yaml", predict=True))
    launch = launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=Path("/out"))
    step = dict(word.split("=", 1) for word in shlex.split(launch.command[2].partition(" && exec ")[2])[3:])
    assert {key: step.get(key) for key in ("model_name_or_path", "adapter_name_or_path") if key in step} == expected


def test_several_processes_have_a_port_of_their_own(tmp_path: Path) -> None:
    the_study = study(
        "llamafactory",
        {"learning_rate": 1e-4},
        command="env/bin/llamafactory-cli",
        backend={"slots": 2, "gpus": [0, 1, 2, 3]},
    )
    launcher = framework(the_study)
    ports = set()
    for name in ("a", "b"):
        launch = launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=tmp_path / name)
        assert launch.env["FORCE_TORCHRUN"] == "1"
        assert launch.env["NPROC_PER_NODE"] == "2"
        assert launch.env["PATH"].startswith("env/bin:")
        assert "CUDA_VISIBLE_DEVICES" not in launch.env
        ports.add(launch.env["MASTER_PORT"])
    assert len(ports) == 2
    again = launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=Path("{output_dir}"))
    assert "MASTER_PORT" not in again.env, "a rerun finds one for itself"
    with pytest.raises(LauncherError, match="holds a space"):
        launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=tmp_path / "a b")


def test_deepspeed_is_started_by_torchrun_on_one_device_too(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {**USER, "deepspeed": "ds_z2.json"})
    launcher = framework(study("llamafactory", {"learning_rate": 1e-4}, config="train.yaml"))
    launch = launcher.launch({"learning_rate": 1e-4}, seed=1, tree=tmp_path, output=tmp_path / "o")
    assert launch.env["FORCE_TORCHRUN"] == "1"
    assert launch.env["NPROC_PER_NODE"] == "1"


def test_a_port_that_is_taken_is_not_given_out() -> None:
    first = free_port("run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        assert free_port("run") != first
    assert free_port("run") == first


def test_the_command_can_be_run_anywhere_else(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", USER)
    the_study = study("llamafactory", {"learning_rate": 1e-4}, config="train.yaml", predict=True)
    experiment = Experiment.model_validate(
        {
            "study": "s",
            "number": 1,
            "scenario": "s",
            "method": "m",
            "base_model": "tiny",
            "variable": "x",
            "parameters": {"learning_rate": 1e-4},
            "branch": "b",
            "base_commit": "c",
            "phase": "screen",
            "changed": {},
            "reason": "",
            "created_at": "2026-01-01T00:00:00Z",
        }
    )
    line = Rerun.of(framework(the_study), experiment, tmp_path).line(5)
    assert "train nightlab_train.yaml" in line
    assert "train nightlab_train_predict.yaml" in line
    assert "output_dir=output/predict" in line
    assert "seed=5" in line
    assert str(tmp_path) not in line


RULES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"stage": "dpo", "predict_with_generate": True}, "predict_with_generate"),
    ({"stage": "rm", "neat_packing": True}, "neat_packing"),
    ({"stage": "pt", "train_on_prompt": True}, "train_on_prompt"),
    ({"stage": "kto", "mask_history": True}, "mask_history"),
    ({"do_predict": True}, "do_predict"),
    ({"stage": "rm", "load_best_model_at_end": True, "eval_strategy": "steps"}, "load_best_model_at_end"),
    ({"stage": "ppo"}, "reward_model"),
    ({"stage": "ppo", "reward_model": "r", "do_eval": True}, "do_train"),
    ({"stage": "dpo", "pref_loss": "ipo", "dpo_label_smoothing": 0.1}, "dpo_label_smoothing"),
    ({"dataset": None}, "dataset"),
    ({"eval_dataset": None, "do_eval": True}, "eval_dataset"),
    ({"eval_dataset": None, "eval_strategy": "steps"}, "eval_dataset"),
    ({"val_size": 0.1}, "val_size"),
    ({"streaming": True}, "max_steps"),
    ({"streaming": True, "max_steps": 9, "eval_dataset": None, "val_size": 0.1}, "val_size"),
    ({"streaming": True, "max_steps": 9, "max_samples": 5}, "max_samples"),
    ({"interleave_probs": "0.5,0.5"}, "interleave_probs"),
    ({"mask_history": True, "train_on_prompt": True}, "mask_history"),
    ({"finetuning_type": "full", "use_dora": True}, "use_dora"),
    ({"finetuning_type": "freeze", "loraplus_lr_ratio": 16}, "loraplus_lr_ratio"),
    ({"finetuning_type": "full", "adapter_name_or_path": "a"}, "adapter_name_or_path"),
    ({"stage": "dpo", "pissa_init": True}, "pissa_init"),
    ({"pissa_init": True, "quantization_bit": 4}, "pissa_init"),
    ({"pissa_init": True, "deepspeed": "examples/ds_z3_config.json"}, "pissa_init"),
    ({"stage": "dpo", "use_dft_loss": True}, "use_dft_loss"),
    ({"use_galore": True}, "use_galore"),
    ({"finetuning_type": "full", "use_galore": True, "use_badam": True}, "use_badam"),
    ({"finetuning_type": "full", "use_apollo": True, "deepspeed": "ds_z2.json"}, "use_apollo"),
    ({"pure_bf16": True, "deepspeed": {"zero_optimization": {"stage": 3}}}, "pure_bf16"),
    ({"finetuning_type": "full", "quantization_bit": 4}, "quantization_bit"),
    ({"quantization_bit": 4, "resize_vocab": True}, "resize_vocab"),
    ({"quantization_bit": 4, "fp8": True}, "fp8"),
    ({"use_unsloth": True, "deepspeed": "ds_z3.json"}, "use_unsloth"),
    ({"infer_backend": "vllm"}, "infer_backend"),
    ({"bf16": True, "fp16": True}, "fp16"),
    ({"predict_with_generate": True, "deepspeed": "ds_z3.json"}, "predict_with_generate"),
    ({"predict_with_generate": True, "compute_accuracy": True}, "compute_accuracy"),
    ({"load_best_model_at_end": True, "eval_strategy": "epoch"}, "load_best_model_at_end"),
    ({"early_stopping_steps": 3}, "early_stopping_steps"),
)


@pytest.mark.parametrize(("change", "key"), RULES)
def test_what_the_framework_would_refuse(change: dict[str, Any], key: str) -> None:
    found = list(problems_of({**USER, **change}))
    assert [one[0] for one in found] == [key], found
    assert all(message and mend for _, message, mend in found)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"use_galore": True, "galore_layerwise": True}, "galore_layerwise"),
        ({"use_apollo": True, "apollo_layerwise": True}, "apollo_layerwise"),
        ({"use_badam": True, "badam_mode": "ratio"}, "badam_mode"),
        ({"use_badam": True}, "use_badam"),
    ],
)
def test_what_it_would_refuse_in_several_processes(change: dict[str, Any], key: str) -> None:
    whole = {**USER, "finetuning_type": "full", **change}
    assert [one[0] for one in problems_of(whole, processes=2)] == [key]
    assert not list(problems_of(whole))


def test_a_sound_configuration_has_no_problem() -> None:
    assert not list(problems_of(USER))
    best = {"load_best_model_at_end": True, "eval_strategy": "steps", "early_stopping_steps": 2}
    assert not list(problems_of({**USER, **best}))


def test_a_combination_it_would_refuse_is_no_job(tmp_path: Path) -> None:
    with pytest.raises(LauncherError, match="use_dora is only for finetuning_type lora"):
        rendered(tmp_path, parameters={"finetuning_type": "full", "use_dora": True}, settings={"dataset": "d"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["launcher.config", "train.yaml", "cannot be read"]),
        ("a: [", ["launcher.config", "cannot be read"]),
        ("- 1", ["launcher.config", "no keys with values"]),
        ("learning_rate: {a: 1}", ["learning_rate is a section"]),
    ],
)
def test_a_file_that_cannot_be_used(text: str | None, words: list[str], tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "train.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(LauncherError) as caught:
        rendered(tmp_path, config="train.yaml")
    assert all(word in str(caught.value) for word in words)


def test_how_an_adapter_becomes_a_model(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {**USER, "adapter_name_or_path": "first", "create_new_adapter": True})
    launcher = framework(study("llamafactory", {"learning_rate": 1e-4}, config="train.yaml"))
    assert isinstance(launcher, Exports)
    command = launcher.export_command({"learning_rate": 1e-4}, tree=tmp_path, weights=tmp_path / "o" / "checkpoint 5")
    assert command is not None
    program, verb, *words = shlex.split(command)
    assert (program, verb) == ("llamafactory-cli", "export")
    assert f"--adapter_name_or_path=first,{tmp_path}/o/checkpoint 5" in words
    assert f"--export_dir={tmp_path}/o/checkpoint 5-merged" in words
    assert "--template=qwen" in words
    write(tmp_path, "train.yaml", {**USER, "finetuning_type": "full"})
    assert launcher.export_command({"learning_rate": 1e-4}, tree=tmp_path, weights=tmp_path) is None
