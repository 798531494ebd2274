"""How busy GPUs are: really without the library, and with a stub of NVML's module where it is imported."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from nightlab.agents.watchdog import Watch
from nightlab.configs.study import BackendSettings
from nightlab.configs.watchdog import Watchdog
from nightlab.knowledge.records import Job
from nightlab.tools.backends import gpus
from nightlab.tools.backends.base import JobSpec
from nightlab.tools.backends.gpus import Gpu, busy_share, gpu_memory_bytes, gpus_now
from nightlab.tools.backends.local import LocalBackend
from tests.agents.lab import new_lab, planned

GIB = 1024**3
NO_PROCESS = 2**22 + 1
"""Above the highest process id of any Linux."""

# A stub of the module, not of our code: devices are the lines `share pid pid …` of a file; `error` fails.
STUB = """
import pathlib
from types import SimpleNamespace as Record

class NVMLError(Exception):
    pass

DEVICES = pathlib.Path(__file__).with_name("devices")

def nvmlInit():
    if not DEVICES.exists():
        raise NVMLError("Driver Not Loaded")

def lines():
    return DEVICES.read_text().splitlines()

def nvmlDeviceGetCount():
    return len(lines())

def nvmlDeviceGetHandleByIndex(index):
    if lines()[index] == "error":
        raise NVMLError("GPU is lost")
    return index

def nvmlDeviceGetUtilizationRates(handle):
    return Record(gpu=int(lines()[handle].split()[0]), memory=0)

def nvmlDeviceGetMemoryInfo(handle):
    return Record(total=(80 - 8 * handle) * 1024**3)

def nvmlDeviceGetUUID(handle):
    return f"GPU-{handle}{handle}{handle}{handle}"

def nvmlDeviceGetComputeRunningProcesses(handle):
    pids = lines()[handle].split()[1:]
    if pids == ["unsupported"]:
        raise NVMLError("Not Supported")
    return [Record(pid=int(pid)) for pid in pids]
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    gpus._library.cache_clear()
    yield
    gpus._library.cache_clear()
    sys.modules.pop(gpus.LIBRARY, None)


@pytest.fixture
def devices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The stub's file of devices, not yet there."""
    folder = tmp_path / "stub"
    folder.mkdir()
    (folder / "pynvml.py").write_text(STUB)
    monkeypatch.syspath_prepend(folder)
    return folder / "devices"


def test_without_the_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec(gpus.LIBRARY) is not None:
        # Python's own way of saying that a module is not there.
        monkeypatch.setitem(sys.modules, gpus.LIBRARY, None)
    assert gpus_now() == []


def test_with_the_library_and_without_a_driver_nothing_is_known(devices: Path) -> None:
    assert not devices.exists() and gpus_now() == []


def test_what_nvml_tells_is_read_and_one_that_fails_hides_no_other(devices: Path) -> None:
    devices.write_text("37 11 12\nerror\n0 unsupported\n")
    assert gpus_now() == [Gpu(0, "GPU-0000", 0.37, frozenset({11, 12})), Gpu(2, "GPU-2222", 0.0)]


def test_memory_is_that_of_the_smallest_of_the_named_gpus(devices: Path) -> None:
    assert gpu_memory_bytes([]) is None
    gpus._library.cache_clear()
    devices.write_text("0\nerror\n0\n")
    assert gpu_memory_bytes([]) == gpu_memory_bytes([0, "GPU-22"]) == 64 * GIB
    assert gpu_memory_bytes([0]) == 80 * GIB
    assert gpu_memory_bytes([7]) is None


def test_a_gpu_is_a_jobs_by_its_processes_or_in_a_container_by_its_slot() -> None:
    own, other = Gpu(0, "GPU-0000", 0.5, frozenset({7})), Gpu(1, "GPU-1111", 0.9, frozenset({os.getpid()}))
    hidden = Gpu(2, "GPU-2222", 0.7, frozenset({NO_PROCESS}))
    assert busy_share([own, other, hidden], {7, 8}, []) == 0.5
    assert busy_share([own, other, hidden], {8}, []) is None
    assert busy_share([other, hidden], {8}, [1]) is None, "somebody else's process is seen on it"
    assert busy_share([other, hidden], {8}, [1, 2]) == busy_share([hidden], {8}, ["GPU-22"]) == 0.7
    assert busy_share([hidden], {8}, [22, "GPU-3"]) is None


def test_a_silent_job_is_left_alone_while_its_gpu_works(tmp_path: Path, devices: Path) -> None:
    """Real processes under the real backend and watchdog; only NVML is the stub, and the clock a number."""
    devices.write_text("0")
    watch = Watch(Watchdog.model_validate({"no_progress": "60s", "every": "5s"}))
    with new_lab(tmp_path) as lab:
        backend = LocalBackend(BackendSettings(slots=1, gpus=[0]), grace_seconds=0.5)
        lab.backend = backend
        run = planned(lab, {}, 0)
        directory = tmp_path / "job"
        spec = JobSpec(run.key, ("sleep", "600"), tmp_path, {}, directory)
        lab.ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory=str(directory), worktree="w"))
        lab.ledger.update_experiment(0, state="prepared", commit=lab.base_commit)
        lab.ledger.adopt(run.key, backend.submit(spec))
        command = seen_on_a_gpu(backend, run.key, directory, devices)
        for second in range(0, 300, 10):
            devices.write_text(f"1 {command}")
            assert watch.look(lab, float(second)) == []
        devices.write_text(f"0 {command}")
        assert watch.look(lab, 300.0) == [], "still for ten seconds"
        assert watch.look(lab, 350.0) == [run.key]
        assert "no output and no CPU or GPU use for 60 s" in (directory / "ended_by.json").read_text()


def seen_on_a_gpu(backend: LocalBackend, key: str, directory: Path, devices: Path) -> int:
    """The job's process, which the backend tells from others on the GPU."""
    runner = backend.find(key, directory)
    assert runner is not None
    (command,) = psutil.Process(int(runner)).children()
    devices.write_text(f"42 {command.pid}")
    assert backend.gpu_shares({key: directory}) == {key: 0.42}
    devices.write_text(f"42 {os.getpid()}")
    assert backend.gpu_shares({key: directory}) == {}, "somebody else's"
    return command.pid
