"""What the preflight tells of a framework's configuration: every fault at once, with its place and its mend."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.errors import Fault
from nightlab.tools.launchers import launcher_for
from nightlab.tools.launchers.arguments import Argument, Arguments, Missing, bundled, installed
from nightlab.tools.launchers.faults import launcher_faults
from nightlab.tools.launchers.interpreter import interpreter_of
from tests.tools.launchers.frameworks import install, study, write
from tests.tools.launchers.test_script import study as script_study

NONE = "no-such-program-here"
"""Nobody can be asked: the arguments kept in the package count."""


def faults(the_study: Study, root: Path, keep: Path | None = None) -> list[Fault]:
    return launcher_faults(the_study, launcher_for(the_study), root, keep)


def lines(found: Sequence[Fault]) -> str:
    return "\n".join(str(fault) for fault in found)


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {"tempelate": "qwen", "dataset": "d", "eval_strategy": False, "template": "qwen99"})
    the_study = study(
        "llamafactory",
        {"learning_rate": "1e-4", "lora_rnk": 8, "optim": "adamw_torh"},
        command=NONE,
        config="train.yaml",
        settings={"max_samples": 1.5, "use_dora": "yes"},
        predict=True,
        predict_settings={"max_new_token": 8},
        dry_run={"max_stps": 5},
        space={"learning_rate": {"levels": ["fast"]}},
    )
    told = lines(faults(the_study, tmp_path))
    for expected in (
        "train.yaml: tempelate: is no argument of llamafactory (0.9.5, as known here; it could not be asked itself)",
        "launcher.config: train.yaml: eval_strategy: no is read as false (write 'no' in quotes",
        "launcher.config: train.yaml: template: 'qwen99' is no choice (did you mean qwen",
        "launcher.settings.max_samples: 1.5 is not a whole number",
        "launcher.settings.use_dora: 'yes' is not true or false (write true or false, without quotes)",
        "launcher.predict_settings.max_new_token: is no argument",
        "launcher.dry_run.max_stps: is no argument",
        "parameters.learning_rate: '1e-4' is not a number",
        "parameters.lora_rnk: is no argument",
        "parameters.optim: 'adamw_torh' is no choice (did you mean adamw_torch?",
        "space.learning_rate: 'fast' is not a number",
    ):
        assert expected in told, told


def test_a_rule_is_told_where_the_argument_stands(tmp_path: Path) -> None:
    write(
        tmp_path, "train.yaml", {"dataset": "d", "stage": "rm", "load_best_model_at_end": True, "eval_strategy": "no"}
    )
    the_study = study(
        "llamafactory", {"pissa_init": True}, command=NONE, config="train.yaml", settings={"quantization_bit": 4}
    )
    told = lines(faults(the_study, tmp_path))
    assert "launcher.config: train.yaml: load_best_model_at_end is not for stage rm" in told
    assert "parameters.pissa_init: pissa_init does not go with quantization_bit" in told


def test_a_change_that_the_framework_would_refuse(tmp_path: Path) -> None:
    space = {
        "finetuning_type": {"levels": ["full"]},
        "learning_rate": {"levels": [1e-3]},
        "both": {"settings": {"dora": {"use_dora": True, "finetuning_type": "freeze"}}},
    }
    parameters: dict[str, Scalar] = {"learning_rate": 1e-4, "finetuning_type": "lora", "use_dora": True}
    the_study = study(
        "llamafactory",
        parameters,
        command=NONE,
        settings={"dataset": "d"},
        space={"finetuning_type": space["finetuning_type"]},
    )
    (fault,) = faults(the_study, tmp_path)
    assert (fault.key, fault.message) == (
        "space.finetuning_type",
        "use_dora is only for finetuning_type lora, not full",
    )
    bundle: dict[str, Scalar] = {**parameters, "use_dora": False}
    the_study = study("llamafactory", bundle, command=NONE, settings={"dataset": "d"}, space={"both": space["both"]})
    (fault,) = faults(the_study, tmp_path)
    assert fault.key == "space.both.settings.dora"


def test_a_sound_study_has_no_fault(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {"dataset": "d", "eval_dataset": "e", "template": "qwen", "warmup_ratio": 0.1})
    the_study = study(
        "llamafactory",
        {"learning_rate": 1e-4, "lora_target": "all", "beta": 0.1, "effective_batch": 8},
        command=NONE,
        config="train.yaml",
        space={"learning_rate": {"levels": [1e-3]}, "effective_batch": {"levels": [16]}},
        dry_run={"max_steps": 3},
        predict=True,
    )
    assert faults(the_study, tmp_path) == []


def test_a_batch_no_process_can_share(tmp_path: Path) -> None:
    the_study = study(
        "llamafactory",
        {"effective_batch": 8},
        command=NONE,
        settings={"dataset": "d", "per_device_train_batch_size": 4},
        space={"effective_batch": {"levels": [6]}},
    )
    (fault,) = faults(the_study, tmp_path)
    assert fault.key == "space.effective_batch"
    assert "no multiple of 4" in fault.message


def test_a_file_that_is_not_there_is_one_fault(tmp_path: Path) -> None:
    the_study = study("llamafactory", {"learning_rate": 1e-4}, command=NONE, config="train.yaml")
    (fault,) = faults(the_study, tmp_path)
    assert fault.key == "launcher.config"
    assert "train.yaml cannot be read" in fault.message


def test_a_resumed_run_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "train.yaml", {"dataset": "d", "resume_from_checkpoint": "out/checkpoint-5"})
    (fault,) = faults(study("llamafactory", {"lora_rank": 4}, command=NONE, config="train.yaml"), tmp_path)
    assert "never goes on from another's checkpoint" in fault.message


def test_more_processes_than_gpus(tmp_path: Path) -> None:
    the_study = script_study(
        "{python} train.py",
        passing={"via": "file"},
        distributed={"launcher": "torchrun", "processes": 4},
    )
    assert faults(the_study, tmp_path) == []
    the_study = the_study.model_copy(
        update={"backend": the_study.backend.model_copy(update={"gpus": [0, 1], "slots": 1})}
    )
    (fault,) = faults(the_study, tmp_path)
    assert (fault.key, fault.message) == ("launcher.distributed.processes", "are more than the 2 GPUs of a job")


def test_what_is_listed_is_not_checked(tmp_path: Path) -> None:
    settings = {"dataset": "d", "template_x": 1}
    the_study = study("llamafactory", {"lora_rnk": 8}, command=NONE, settings=settings, unchecked=["template_x"])
    (fault,) = faults(the_study, tmp_path)
    assert fault.key == "parameters.lora_rnk"
    assert fault.mend is not None and "did you mean lora_rank" in fault.mend
    assert "launcher.unchecked" in fault.mend


def test_a_plain_command_has_none(tmp_path: Path) -> None:
    assert faults(script_study("true"), tmp_path) == []


def test_the_installed_framework_is_asked_once_for_each_version(tmp_path: Path) -> None:
    program, env = install(tmp_path / "framework")
    keep = tmp_path / "arguments"
    keep.mkdir()
    the_study = study(
        "llamafactory",
        {"learning_rate": 1e-4, "brand_new": 1, "lora_rank": 8},
        command=str(program),
        settings={"dataset": "d", "template": "qwem"},
        backend={"env": env},
    )
    for _ in range(2):
        told = lines(faults(the_study, tmp_path, keep))
        assert "parameters.lora_rank: is no argument of llamafactory (9.9, installed)" in told
        assert "template: 'qwem' is no choice (did you mean qwen?)" in told
        assert "brand_new: is" not in told
        assert "do_train" not in told
    assert (tmp_path / "framework" / "imports").read_text().splitlines() == ["imported"]
    (keep / "arguments-llamafactory-9.9.json").write_text("{", encoding="utf-8")
    assert "9.9, installed" in lines(faults(the_study, tmp_path, keep)), "damaged: asked again"


def test_a_framework_that_cannot_be_imported_is_a_fault(tmp_path: Path) -> None:
    program, env = install(tmp_path / "framework", fault="import no_such_module_here")
    the_study = study(
        "llamafactory", {"lora_rank": 8}, command=str(program), settings={"dataset": "d"}, backend={"env": env}
    )
    (fault,) = faults(the_study, tmp_path)
    assert fault.key == "launcher.command"
    assert "No module named 'no_such_module_here'" in fault.message


@pytest.mark.parametrize("fault", ["import llamafactory.moved", "raise AttributeError('no such name')"])
def test_a_version_that_is_built_otherwise_is_no_fault(fault: str, tmp_path: Path) -> None:
    program, env = install(tmp_path / "framework", fault=fault)
    the_study = study(
        "llamafactory", {"lora_rank": 8}, command=str(program), settings={"dataset": "d"}, backend={"env": env}
    )
    assert faults(the_study, tmp_path) == []


def test_what_is_not_installed_is_told_by_the_list_kept_here(tmp_path: Path) -> None:
    program, _ = install(tmp_path / "framework")
    assert isinstance(installed(str(program.parent / "no-python"), "llamafactory", None, {}, None), Missing)
    found = installed("/usr/bin/env", "llamafactory", None, {}, None)
    assert isinstance(found, Missing)
    assert not found.is_broken


@pytest.mark.parametrize("task", ["sft", "dpo", "grpo", "kto", "reward", "rloo"])
def test_the_lists_kept_here(task: str) -> None:
    for arguments in (bundled("llamafactory"), bundled("trl", task)):
        assert not arguments.is_installed
        assert arguments.arguments["learning_rate"] == Argument(type="float")
        assert arguments.arguments["bf16"].type == "bool"
    assert "sft" in bundled("llamafactory").arguments["stage"].choices


def test_the_interpreter_of_a_command(tmp_path: Path) -> None:
    program, _ = install(tmp_path / "framework")
    text = program.read_text()
    interpreter = text.removeprefix("#!").strip()
    assert interpreter_of([str(program)], tmp_path) == interpreter
    assert interpreter_of(["framework/bin/llamafactory-cli"], tmp_path) == interpreter, "from where it starts"
    assert interpreter_of([interpreter, "-m", "llamafactory.cli"], tmp_path) == interpreter
    assert interpreter_of([NONE], tmp_path) is None
    assert interpreter_of(["sh"], tmp_path) is None
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    assert interpreter_of([str(program)], tmp_path) is None
    (program.parent / "python").symlink_to(interpreter)
    (program.parent.parent / "pyvenv.cfg").write_text("", encoding="utf-8")
    assert interpreter_of([str(program)], tmp_path) == str(program.parent / "python"), "an environment's own"


@pytest.mark.parametrize(
    ("argument", "value", "is_good"),
    [
        (Argument(type="float"), 1, True),
        (Argument(type="float"), True, False),
        (Argument(type="int"), 1.0, False),
        (Argument(type="bool"), 1, False),
        (Argument(type="str"), 1, True),
        (Argument(type="str", many=True), ["a", "b"], True),
        (Argument(type="int", many=True), [1, "b"], False),
        (Argument(type="int"), [1], False),
        (Argument(type="int"), None, True),
        (Argument(choices=("a", "b")), "a", True),
        (Argument(choices=("a", "b")), "c", False),
        (Argument(choices=("no", "steps")), False, False),
    ],
)
def test_what_an_argument_takes(argument: Argument, value: object, is_good: bool) -> None:
    assert (argument.problem_of(value) is None) is is_good


def test_names_that_may_have_been_meant() -> None:
    arguments = Arguments(version="1", arguments={"learning_rate": Argument(), "lora_rank": Argument()})
    assert arguments.closest("lerning_rate") == ["learning_rate"]
    assert arguments.closest("zzz") == []
