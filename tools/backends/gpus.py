"""How busy the GPUs of this machine are, as NVIDIA's NVML tells; without library or driver nothing is known of them."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import psutil

__all__ = ["Gpu", "busy_share", "gpu_memory_bytes", "gpus_now"]

LIBRARY = "pynvml"
"""Of the distribution `nvidia-ml-py` (`pip install "nightlab[gpu]"`)."""


@dataclass(frozen=True)
class Gpu:
    """One GPU at this moment."""

    index: int
    uuid: str
    share: float
    """How much of the last moments (a second at most) a kernel was running on it, 0 to 1."""
    pids: frozenset[int] = frozenset()
    """Processes that compute on it."""


def gpus_now() -> list[Gpu]:
    """The GPUs that tell how busy they are; none without NVML."""
    library = _library()
    if library is None:
        return []
    found = []
    with suppress(library.NVMLError):
        for index in range(library.nvmlDeviceGetCount()):
            # One that does not tell (split by MIG, just lost) hides none of the others.
            with suppress(library.NVMLError):
                found.append(_gpu(library, index))
    return found


def gpu_memory_bytes(assigned: Collection[int | str]) -> int | None:
    """Memory of the smallest of the GPUs in `assigned` (indexes or UUIDs), of all where none is; None without NVML."""
    library, sizes = _library(), []
    if library is None:
        return None
    with suppress(library.NVMLError):
        for index in range(library.nvmlDeviceGetCount()):
            with suppress(library.NVMLError):
                handle = library.nvmlDeviceGetHandleByIndex(index)
                gpu = Gpu(index, _uuid(library, handle), 0.0)
                if not assigned or any(_names(gpu, name) for name in assigned):
                    sizes.append(int(library.nvmlDeviceGetMemoryInfo(handle).total))
    return min(sizes, default=None)


def busy_share(gpus: Collection[Gpu], pids: Collection[int], assigned: Collection[int | str]) -> float | None:
    """How busy the busiest GPU of a job is that consists of the processes `pids`; None where nothing tells.

    In a container NVML gives process ids of the host. So a GPU is also the job's that is among those `assigned` to it
    (indexes, or UUIDs as far as they are written) and on which no process of this machine is seen.
    """
    shares = [gpu.share for gpu in gpus if _is_of(gpu, pids, assigned)]
    return max(shares, default=None)


def _is_of(gpu: Gpu, pids: Collection[int], assigned: Collection[int | str]) -> bool:
    if not gpu.pids.isdisjoint(pids):
        return True
    is_assigned = any(_names(gpu, name) for name in assigned)
    return is_assigned and not any(psutil.pid_exists(pid) for pid in gpu.pids)


def _names(gpu: Gpu, name: int | str) -> bool:
    return str(name) == str(gpu.index) or (str(name).startswith("GPU-") and gpu.uuid.startswith(str(name)))


@cache
def _library() -> Any:
    """NVML, ready; None where there is none. Loaded once a process, the first time it is asked."""
    try:
        library = importlib.import_module(LIBRARY)
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError:
        return None
    return library


def _gpu(library: Any, index: int) -> Gpu:
    handle = library.nvmlDeviceGetHandleByIndex(index)
    share = library.nvmlDeviceGetUtilizationRates(handle).gpu / 100
    pids: frozenset[int] = frozenset()
    with suppress(library.NVMLError):
        pids = frozenset(process.pid for process in library.nvmlDeviceGetComputeRunningProcesses(handle))
    return Gpu(index, _uuid(library, handle), share, pids)


def _uuid(library: Any, handle: Any) -> str:
    uuid = library.nvmlDeviceGetUUID(handle)
    return uuid if isinstance(uuid, str) else str(uuid.decode())
