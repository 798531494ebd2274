"""A retry changes configuration only, keeps the effective batch, and touches nothing that is locked."""

from __future__ import annotations

from typing import Any

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.tools.failures import BatchNames, batch_names, changed_retry

KEY = "night/03/2/0"


def study(parameters: dict[str, Scalar], **sections: Any) -> Study:
    return Study.model_validate(
        {
            "study": "night",
            "scenario": "qr",
            "method": "sft-lora",
            "base_model": "tiny",
            "objective": {"metric": "loss", "direction": "minimize", "min_effect": 0.01},
            "parameters": parameters,
            "launcher": {"command": "{python} train.py"},
            "budget": {"runs": 10},
            **sections,
        }
    )


def retried(parameters: dict[str, Scalar], signature: str = "cuda_oom", **sections: Any) -> dict[str, Scalar] | None:
    given = dict(parameters)
    retry = changed_retry(study(parameters, **sections), parameters, signature, key=KEY)
    assert parameters == given
    return retry.parameters if retry else None


@pytest.mark.parametrize(
    ("batch", "accumulation"),
    [
        ("per_device_train_batch_size", "gradient_accumulation_steps"),
        ("micro_batch_size", "gradient_accumulation_steps"),
        ("device_batch_size", "grad_accum_steps"),
        ("batch_size", "accumulation_steps"),
        ("batch_size", "accumulate_grad_batches"),
        ("DEVICE_BATCH_SIZE", "GRAD_ACCUM"),
        ("train.per-device-train-batch-size", "train.gradient-accumulation-steps"),
    ],
)
def test_out_of_memory_halves_the_batch_and_doubles_accumulation(batch: str, accumulation: str) -> None:
    parameters: dict[str, Scalar] = {"lr": 1e-4, batch: 8, accumulation: 2}
    assert retried(parameters) == {"lr": 1e-4, batch: 4, accumulation: 4}


@pytest.mark.parametrize("signature", ["cuda_oom", "cublas", "exit_137", "host_oom_kill", "k8s_oomkilled"])
@pytest.mark.parametrize(("batch", "accumulation", "divisor"), [(8, 1, 2), (2, 3, 2), (15, 2, 3), (7, 1, 7), (9, 4, 3)])
def test_the_effective_batch_is_kept(signature: str, batch: int, accumulation: int, divisor: int) -> None:
    parameters: dict[str, Scalar] = {"batch_size": batch, "gradient_accumulation_steps": accumulation}
    assert retried(parameters, signature) == {
        "batch_size": batch // divisor,
        "gradient_accumulation_steps": accumulation * divisor,
    }


def test_the_record_says_what_was_changed() -> None:
    parameters: dict[str, Scalar] = {"batch_size": 8, "grad_accum": 1}
    retry = changed_retry(study(parameters), parameters, "cuda_oom", key=KEY)
    assert retry is not None
    assert retry.change == "batch_size 8 → 4, grad_accum 1 → 2 (effective batch kept)"
    assert retry.env == {}


def test_a_total_batch_keeps_the_effective_batch_by_itself() -> None:
    parameters: dict[str, Scalar] = {"device_batch_size": 32, "total_batch_size": 524288}
    retry = changed_retry(study(parameters), parameters, "cuda_oom", key=KEY)
    assert retry is not None
    assert retry.parameters == {"device_batch_size": 16, "total_batch_size": 524288}
    assert retry.change == "device_batch_size 32 → 16 (effective batch kept by total_batch_size)"


def test_the_catalogs_effective_batch_is_a_total_batch() -> None:
    parameters: dict[str, Scalar] = {"per_device_train_batch_size": 8, "effective_batch": 32}
    retry = changed_retry(study(parameters), parameters, "cuda_oom", key=KEY)
    assert retry is not None
    assert retry.parameters == {"per_device_train_batch_size": 4, "effective_batch": 32}


@pytest.mark.parametrize(
    "parameters",
    [
        {"lr": 0.1},
        {"batch_size": 8},
        {"batch_size": 1, "grad_accum": 4},
        {"batch_size": "auto", "grad_accum": 4},
        {"batch_size": True, "grad_accum": 4},
        {"batch_size": 8, "grad_accum": "auto"},
        {"batch_size": 8, "grad_accum": 0},
        {"grad_accum": 4},
        {"sft.batch_size": 8, "dpo.batch_size": 8, "grad_accum": 1},
        {"micro_batch_size": 6, "global_batch_size": 64},
        {"micro_batch_size": 6, "global_batch_size": "auto"},
    ],
)
def test_no_remedy_where_the_effective_batch_would_change(parameters: dict[str, Scalar]) -> None:
    assert retried(parameters) is None


@pytest.mark.parametrize("locked", ["batch_size", "grad_accum"])
def test_a_locked_parameter_is_never_touched(locked: str) -> None:
    assert retried({"batch_size": 8, "grad_accum": 1}, locked=[locked]) is None


def test_a_searched_batch_is_halved_only_because_its_effect_is_kept() -> None:
    space = {"batch_size": {"levels": [16, 32]}}
    assert retried({"batch_size": 32, "grad_accum": 1}, space=space) == {"batch_size": 16, "grad_accum": 2}
    assert retried({"batch_size": 32}, space=space) is None


def test_a_value_that_a_factor_requires_is_kept() -> None:
    space = {"lr": {"levels": [0.1], "requires": {"batch_size": 8}}}
    assert retried({"lr": 1.0, "batch_size": 8, "grad_accum": 1}, space=space) is None


def test_a_command_that_has_no_place_for_the_batch_cannot_be_changed() -> None:
    def launcher(command: str) -> dict[str, object]:
        return {"command": command, "parameters": {"via": "template"}}

    parameters: dict[str, Scalar] = {"batch_size": 8, "grad_accum": 1}
    assert retried(parameters, launcher=launcher("t.py {batch_size}")) is None
    assert retried(parameters, launcher=launcher("t.py {batch_size} {grad_accum}")) is not None


def test_names_that_are_not_usual_can_be_given() -> None:
    parameters: dict[str, Scalar] = {"bs": 8, "acc": 1}
    assert batch_names(parameters) is None
    retry = changed_retry(study(parameters), parameters, "cuda_oom", key=KEY, names=BatchNames("bs", "acc"))
    assert retry is not None and retry.parameters == {"bs": 4, "acc": 2}


def test_the_more_special_name_wins() -> None:
    parameters: dict[str, Scalar] = {
        "train_batch_size": 64,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "per_device_eval_batch_size": 8,
    }
    assert batch_names(parameters) == BatchNames(
        "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
    )


def test_a_port_in_use_gives_another_port_and_no_other_parameters() -> None:
    parameters: dict[str, Scalar] = {"lr": 0.1}
    ports = set()
    for attempt in range(1, 21):
        key = f"night/03/{attempt}/0"
        retry = changed_retry(study(parameters), parameters, "port_in_use", key=key)
        assert retry is not None and retry.parameters == parameters
        assert retry == changed_retry(study(parameters), parameters, "port_in_use", key=key)
        assert 20_000 <= int(retry.env["MASTER_PORT"]) < 29_000
        assert retry.change == f"MASTER_PORT {retry.env['MASTER_PORT']}"
        ports.add(retry.env["MASTER_PORT"])
    assert len(ports) > 15


def test_a_tracker_without_login_goes_off_line() -> None:
    retry = changed_retry(study({"lr": 0.1}), {"lr": 0.1}, "tracker_login", key=KEY)
    assert retry is not None and retry.env == {"WANDB_MODE": "offline"}


@pytest.mark.parametrize("signature", ["nan_loss", "disk_full", "slurm_preempt", "no_such_signature"])
def test_other_failures_have_no_remedy_by_configuration(signature: str) -> None:
    assert retried({"batch_size": 8, "grad_accum": 1}, signature) is None
