"""What a job sees of the lab's environment: a short allow-list, never a key."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from nightlab.configs.study import BackendSettings

__all__ = ["ALLOWED", "gpu_share", "job_environment", "looks_secret", "threads_per_job"]

# PYTHONPATH is left out on purpose: it would let a worktree import the code of the user's own checkout.
ALLOWED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FALLBACK_LIBRARY_PATH", "MODULEPATH", "LOADEDMODULES"),
    *("VIRTUAL_ENV", "CONDA_*", "PYENV_*", "UV_CACHE_DIR", "UV_PROJECT_ENVIRONMENT"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"),
    *("CUDA_*", "CUBLAS_*", "CUDNN_*", "NVIDIA_*", "NCCL_*", "PYTORCH_*", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"),
    *("TRITON_CACHE_DIR", "ROCR_*", "ROCM_*", "HIP_*", "HSA_*", "GPU_DEVICE_ORDINAL", "ASCEND_*", "NEURON_*"),
    *("OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "BLIS_*", "GLOO_*", "UCX_*", "FI_*"),
    *("HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE", "HF_DATASETS_OFFLINE", "HF_ENDPOINT"),
    *("TRANSFORMERS_CACHE", "TRANSFORMERS_OFFLINE", "MODELSCOPE_CACHE"),
    *("XDG_CACHE_HOME", "XDG_DATA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
)
"""Names, or shell patterns of names, a job may see without being asked for."""

THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)

_SECRET = re.compile(
    r"(?:^|_)(?:\w*KEY|\w*TOKENS?|\w*SECRETS?|\w*PASSWORD|PASSWD|PASSPHRASE|PASS|PWD|CREDENTIALS?|AUTH)(?:_|$)",
    re.IGNORECASE,
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a key, a token or a password."""
    return _SECRET.search(name) is not None


def gpu_share(gpus: Sequence[int | str], slots: int, slot: int) -> list[int | str]:
    """The GPUs of one slot: neighbours stay together, the first slots take what does not divide."""
    size, rest = divmod(len(gpus), slots)
    start = slot * size + min(slot, rest)
    return list(gpus[start : start + size + (slot < rest)])


def threads_per_job(settings: BackendSettings) -> int:
    """As declared, else the cores this process may use, divided by the slots; at least 1."""
    if settings.threads_per_job is not None:
        return settings.threads_per_job
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, cores // settings.slots)


def job_environment(
    settings: BackendSettings, spec_env: Mapping[str, str], slot: int, source: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The whole environment of a job in `slot`.

    Later wins: allow-listed variables of `source`, thread counts, `pass_env`, `env`, the spec's own, the slot's GPUs.
    A name that looks like a secret comes only through `pass_env`, `env` or the spec.
    """
    environment = {name: value for name, value in source.items() if _allowed(name)}
    environment |= dict.fromkeys(THREAD_VARIABLES, str(threads_per_job(settings)))
    environment["PYTHONUNBUFFERED"] = "1"
    environment |= {name: source[name] for name in settings.pass_env if name in source}
    environment |= settings.env
    environment |= spec_env
    environment["NIGHTLAB_SLOT"] = str(slot)
    if settings.gpus:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpu_share(settings.gpus, settings.slots, slot)))
    return environment


def _allowed(name: str) -> bool:
    return not looks_secret(name) and any(fnmatchcase(name, pattern) for pattern in ALLOWED)
