"""What a job may see."""

from __future__ import annotations

import os

import pytest

from nightlab.configs.study import BackendSettings
from nightlab.tools.backends.environment import gpu_share, job_environment, looks_secret, threads_per_job

SHELL = {
    "PATH": "/bin",
    "HOME": "/home/ada",
    "LC_ALL": "C.UTF-8",
    "CUDA_HOME": "/usr/local/cuda",
    "OPENBLAS_CORETYPE": "Haswell",
    "OMP_NUM_THREADS": "64",
    "CUDA_VISIBLE_DEVICES": "6,7",
    "OPENAI_API_KEY": "sk-1",
    "NVIDIA_API_KEY": "nv-1",
    "CONDA_TOKEN": "c-1",
    "HF_TOKEN": "hf-1",
    "PYTHONPATH": "/home/ada/checkout",
    "EDITOR": "vi",
}

SECRETS = [
    *("OPENAI_API_KEY", "OPENAI_APIKEY", "AWS_SECRET_ACCESS_KEY", "SSH_KEY_PATH", "HF_TOKEN", "GITHUB_TOKEN_2"),
    *("DB_PASSWORD", "PGPASSWORD", "db_password", "MY_SECRETS", "GOOGLE_APPLICATION_CREDENTIALS", "PROXY_AUTH"),
]


def environment(spec_env: dict[str, str] | None = None, slot: int = 0, **settings: object) -> dict[str, str]:
    return job_environment(BackendSettings.model_validate(settings), spec_env or {}, slot, SHELL)


def test_the_allow_list_passes_and_all_else_is_withheld() -> None:
    seen = environment()
    assert {name: seen[name] for name in ("PATH", "HOME", "LC_ALL", "CUDA_HOME", "OPENBLAS_CORETYPE")}
    assert not seen.keys() & {"OPENAI_API_KEY", "NVIDIA_API_KEY", "CONDA_TOKEN", "HF_TOKEN", "PYTHONPATH", "EDITOR"}


def test_a_secret_passes_when_it_is_named() -> None:
    seen = environment(pass_env=["HF_TOKEN", "NOT_SET"], env={"WANDB_API_KEY": "w"})
    assert (seen["HF_TOKEN"], seen["WANDB_API_KEY"], "NOT_SET" in seen) == ("hf-1", "w", False)


@pytest.mark.parametrize("name", SECRETS)
def test_names_of_secrets(name: str) -> None:
    assert looks_secret(name)


@pytest.mark.parametrize("name", ["PATH", "CUDA_HOME", "KMP_AFFINITY", "TOKENIZERS_PARALLELISM", "OMP_PLACES"])
def test_names_of_settings(name: str) -> None:
    assert not looks_secret(name)


def test_later_wins() -> None:
    assert environment()["OMP_NUM_THREADS"] != "64"
    assert environment(pass_env=["OMP_NUM_THREADS"])["OMP_NUM_THREADS"] == "64"
    assert environment(pass_env=["OMP_NUM_THREADS"], env={"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"
    assert environment({"OMP_NUM_THREADS": "2"}, env={"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "2"


def test_every_job_knows_its_slot_and_prints_at_once() -> None:
    seen = environment(slots=3, slot=2)
    assert (seen["NIGHTLAB_SLOT"], seen["PYTHONUNBUFFERED"]) == ("2", "1")


def test_threads() -> None:
    assert environment(threads_per_job=5)["MKL_NUM_THREADS"] == "5"
    assert threads_per_job(BackendSettings(slots=512)) >= 1
    assert threads_per_job(BackendSettings(slots=1)) <= (os.cpu_count() or 1)


def test_each_slot_has_its_own_gpus() -> None:
    shares = [environment(slots=2, slot=slot, gpus=[0, 1, 2, "GPU-4f"])["CUDA_VISIBLE_DEVICES"] for slot in range(2)]
    assert shares == ["0,1", "2,GPU-4f"]


def test_gpus_that_are_not_declared_stay_as_the_user_set_them() -> None:
    assert environment()["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert "CUDA_VISIBLE_DEVICES" not in job_environment(BackendSettings(), {}, 0, {"PATH": "/bin"})


@pytest.mark.parametrize(("count", "slots"), [(1, 1), (5, 2), (8, 3), (7, 7)])
def test_shares_are_disjoint_and_complete(count: int, slots: int) -> None:
    shares = [gpu_share(range(count), slots, slot) for slot in range(slots)]
    assert [gpu for share in shares for gpu in share] == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
