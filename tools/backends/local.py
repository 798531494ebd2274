"""Jobs as processes of this machine.

Everything known of a job lies in its folder (`JobPaths`), so any lab process may adopt it. Its runner
(`local_runner.py`) holds the folder's lock for as long as it lives:

=============  ==========  =====================================
result.json    lock        the job
=============  ==========  =====================================
there          any         ended
absent         held        starting or running
absent         free        never started, or lost: its runner died
=============  ==========  =====================================

`started.json` tells the last two apart. It is on disk before the command begins, so that a command never runs twice for
one job: where the machine dies between the two, the job counts as lost, although it may not have begun.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from nightlab.configs.files import sync_folder
from nightlab.configs.paths import JobPaths
from nightlab.configs.study import BackendSettings
from nightlab.errors import BackendError, DiskError
from nightlab.knowledge.records import JobState
from nightlab.tools.backends.base import JobSpec, JobStatus
from nightlab.tools.backends.environment import gpu_share, job_environment
from nightlab.tools.backends.gpus import busy_share, gpus_now
from nightlab.tools.backends.local_runner import KILL_SECONDS, boot_id, members, start_time, write_json
from nightlab.tools.disk import require_space

__all__ = ["LocalBackend"]

RUNNER = Path(__file__).with_name("local_runner.py")
# Isolated and without site-packages: nothing of the user's (sitecustomize, .pth files) can break it or slow it down.
INTERPRETER = (sys.executable, "-I", "-X", "utf8", *(("-S",) if sys.platform == "linux" else ()))
MARK = "NIGHTLAB_JOB_DIR"
"""Set for every process of a job; finds those whose runner died."""
START_SECONDS = 60.0
START_BYTES = 65_536
"""With less room a runner cannot write that it has started, and dies."""
POLL_SECONDS = 0.05
ANSWER_SECONDS = 15.0
"""How long, beyond the grace period, a runner may take to end its job before it is itself killed."""

Record = dict[str, Any]


class LocalBackend:
    """Runs each job in its own session on this machine.

    `grace_seconds` lie between SIGTERM and SIGKILL when a job is ended.
    """

    def __init__(self, settings: BackendSettings, *, grace_seconds: float = 10.0) -> None:
        self.settings = settings
        self.grace_seconds = grace_seconds

    @property
    def name(self) -> str:
        return "local"

    @property
    def slots(self) -> int:
        return self.settings.slots

    def submit(self, spec: JobSpec) -> str:
        """Start the job, or find the one already started under its key; returns the process id of its runner.

        A lost job is started again. Raises BackendError when the spec cannot be executed or the runner does not start.
        """
        self._check(spec)
        paths = JobPaths(spec.directory.absolute())
        _make_folder(paths)
        spawned = False
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if record := _read(paths.result) or _live_runner(paths):
                return str(record["pid"])
            with _claimed(paths.lock) as lock:
                if lock is not None and not paths.result.exists():
                    if spawned and (record := _read(paths.started)):
                        # Lost already, as `poll` will tell: its command may have run.
                        return str(record["pid"])
                    if spawned:
                        require_space(paths.directory, START_BYTES)
                        raise BackendError(f"job {spec.key}: its runner died at once: {_last_line(paths.stderr)}")
                    self._spawn(spec, paths, lock)
                    spawned = True
            time.sleep(0.005)
        raise BackendError(f"job {spec.key}: not started within {START_SECONDS:.0f} s; see {paths.stderr}")

    def find(self, key: str, directory: Path) -> str | None:
        """Native id of the job submitted under `key` in `directory`, None when there never was one."""
        paths = JobPaths(directory.absolute())
        spec = _read(paths.spec)
        if spec is None or spec["key"] != key:
            return None
        record = _started(paths)
        return str(record["pid"]) if record else None

    def poll(self, directories: Mapping[str, Path]) -> dict[str, JobStatus]:
        """Status of the jobs `{key: directory}`; of a lost job the processes that outlived its runner are killed."""
        return {key: _status(JobPaths(directory.absolute())) for key, directory in directories.items()}

    def wait(self, directories: Mapping[str, Path], seconds: float) -> bool:
        """True as soon as one of the jobs has ended or is lost, False after `seconds` without."""
        jobs = [JobPaths(directory.absolute()) for directory in directories.values()]
        deadline = time.monotonic() + seconds
        while all(_running(paths) for paths in jobs):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            _sleep(jobs, left)
        return True

    def cpu_seconds(self, directories: Mapping[str, Path]) -> dict[str, float]:
        """CPU seconds used so far by the living processes of each running job."""
        used = {}
        for key, directory in directories.items():
            runner = _live_runner(JobPaths(directory.absolute()))
            if runner is not None:
                used[key] = _tree_cpu_seconds(runner["pid"])
        return used

    def gpu_shares(self, directories: Mapping[str, Path]) -> dict[str, float]:
        """How busy each running job's busiest GPU is now, 0 to 1; empty without NVML or its driver."""
        gpus, shares = gpus_now(), {}
        for key, directory in directories.items() if gpus else ():
            paths = JobPaths(directory.absolute())
            runner, spec = _live_runner(paths), _read(paths.spec)
            if runner is not None and spec is not None:
                assigned = gpu_share(self.settings.gpus, self.slots, spec["slot"])
                share = busy_share(gpus, members(runner["pid"]).keys(), assigned)
                if share is not None:
                    shares[key] = share
        return shares

    def cancel(self, directories: Mapping[str, Path]) -> list[str]:
        """End the jobs with their whole process trees; returns the keys of those that were still running.

        Raises BackendError when one cannot be ended.
        """
        jobs = {key: JobPaths(directory.absolute()) for key, directory in directories.items()}
        running = {key: paths for key, paths in jobs.items() if _status(paths).state is JobState.RUNNING}
        for paths in running.values():
            if _started(paths) and (runner := _live_runner(paths)):
                _send(runner["pid"], signal.SIGTERM)
        deadline = time.monotonic() + self.grace_seconds + ANSWER_SECONDS
        for key, paths in running.items():
            if not self.wait({key: paths.directory}, deadline - time.monotonic()):
                _kill_runner(key, paths)
        return list(running)

    def _check(self, spec: JobSpec) -> None:
        if not 0 <= spec.slot < self.slots:
            raise BackendError(
                f"job {spec.key}: slot {spec.slot} is not among the {self.slots} slots 0…{self.slots - 1}"
            )
        if not spec.command:
            raise BackendError(f"job {spec.key}: the command is empty")
        texts = [*spec.command, str(spec.cwd), *spec.env, *spec.env.values()]
        if any("\0" in text for text in texts) or any("=" in name or not name for name in spec.env):
            raise BackendError(f"job {spec.key}: a NUL character, or a variable name that is empty or holds '='")
        earlier = _read(JobPaths(spec.directory).spec)
        if earlier is not None and earlier["key"] != spec.key:
            raise BackendError(f"job {spec.key}: {spec.directory} already belongs to job {earlier['key']}")

    def _spawn(self, spec: JobSpec, paths: JobPaths, lock: int) -> None:
        """Start the runner and hand it the lock, so that there is no moment at which the job looks free."""
        if paths.started.exists():
            _kill_marked(paths.directory)
            paths.started.unlink()
        job = {
            "key": spec.key,
            "command": list(spec.command),
            "cwd": str(spec.cwd.absolute()),
            "slot": spec.slot,
            "timeout_seconds": spec.timeout_seconds,
            "grace_seconds": self.grace_seconds,
        }
        with DiskError.at(paths.spec):
            write_json(paths.spec, job)
        environment = job_environment(self.settings, spec.env, spec.slot) | {MARK: str(paths.directory)}
        with paths.stderr.open("ab") as stderr:
            try:
                subprocess.run(
                    [*INTERPRETER, str(RUNNER), str(paths.directory), str(lock)],
                    check=True,
                    cwd="/",
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=stderr,
                    start_new_session=True,
                    pass_fds=(lock,),
                )
            except (OSError, subprocess.CalledProcessError) as error:
                raise BackendError(f"job {spec.key}: its runner cannot be started: {error}") from error


def _make_folder(paths: JobPaths) -> None:
    try:
        with DiskError.at(paths.directory):
            paths.output.mkdir(parents=True, exist_ok=True)
            # What is written in a folder outlives a power cut only if the folder itself does.
            for parent in (paths.directory, *list(paths.directory.parents)[:2]):
                sync_folder(parent)
    except OSError as error:
        raise BackendError(f"{paths.directory}: the job's folder cannot be made: {error.strerror}") from error


def _read(path: Path) -> Record | None:
    try:
        content = json.loads(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BackendError(f"{path}: not JSON, although it is written in one step; remove the job's folder") from error
    if not isinstance(content, dict):
        raise BackendError(f"{path}: not a record of a job; remove the job's folder")
    return content


@contextmanager
def _claimed(path: Path, operation: int = fcntl.LOCK_EX) -> Iterator[int | None]:
    """The lock file, open and locked; None while another process holds it. Closing gives up this holder only."""
    access = os.O_RDONLY if operation == fcntl.LOCK_SH else os.O_RDWR
    lock = os.open(path, access | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        yield None
    else:
        yield lock
    finally:
        os.close(lock)


def _running(paths: JobPaths) -> bool:
    if paths.result.exists() or not paths.lock.exists():
        return False
    with _claimed(paths.lock, fcntl.LOCK_SH) as lock:
        return lock is None


def _started(paths: JobPaths) -> Record | None:
    """What the runner wrote at its start or end; waits for one that is just starting."""
    deadline = time.monotonic() + START_SECONDS
    while not (record := _read(paths.result) or _read(paths.started)) and _running(paths):
        if time.monotonic() > deadline:
            raise BackendError(f"{paths.directory}: the job's runner does not start")
        time.sleep(0.005)
    return record or _read(paths.result)


def _live_runner(paths: JobPaths) -> Record | None:
    """The start record if its very process is alive; another process with the same id does not count."""
    started = _read(paths.started)
    if started is None or started["boot_id"] != boot_id() or start_time(started["pid"]) != started["start_time"]:
        return None
    return started


def _status(paths: JobPaths) -> JobStatus:
    if result := _read(paths.result):
        return _ended(result)
    if _running(paths):
        return _unfinished(JobState.RUNNING, _read(paths.started))
    if not paths.spec.exists():
        return JobStatus(JobState.LOST, detail="never submitted")
    with _claimed(paths.lock, fcntl.LOCK_SH) as lock:
        if result := _read(paths.result):
            return _ended(result)
        started = _read(paths.started)
        if lock is None:
            return _unfinished(JobState.RUNNING, started)
        _kill_marked(paths.directory)
    why = "ended without a result: killed, out of memory, or the machine restarted" if started else "never started"
    return _unfinished(JobState.LOST, started, f"its runner {why}")


def _unfinished(state: JobState, started: Record | None, detail: str = "") -> JobStatus:
    if started is None:
        return JobStatus(state, detail=detail)
    return JobStatus(state, str(started["pid"]), datetime.fromisoformat(started["started_at"]), detail=detail)


def _ended(result: Record) -> JobStatus:
    return JobStatus(
        JobState.ENDED,
        str(result["pid"]),
        datetime.fromisoformat(result["started_at"]),
        datetime.fromisoformat(result["ended_at"]),
        exit_code=result["exit_code"],
        timed_out=result["timed_out"],
        cancelled=result["cancelled"],
        wall_seconds=result["wall_seconds"],
        cpu_seconds=result["cpu_seconds"],
        peak_memory_bytes=result["peak_memory_bytes"],
        detail="; ".join(text for text in ("cancelled" if result["cancelled"] else "", result["detail"]) if text),
    )


def _sleep(jobs: list[JobPaths], seconds: float) -> None:
    """Sleep until a runner exits if the system can tell, else for one polling interval; never beyond `seconds`."""
    with ExitStack() as stack:
        poller = select.poll()
        for paths in jobs:
            handle = _process_handle(paths)
            if handle is None:
                time.sleep(min(POLL_SECONDS, seconds))
                return
            stack.callback(os.close, handle)
            poller.register(handle, select.POLLIN)
        poller.poll(min(seconds, 3600.0) * 1000)


def _process_handle(paths: JobPaths) -> int | None:
    """A descriptor that becomes readable when the job's runner exits; None where there is no such thing."""
    if not hasattr(os, "pidfd_open") or not (runner := _live_runner(paths)):
        return None
    try:
        return os.pidfd_open(runner["pid"])
    except OSError:
        return None


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _kill_runner(key: str, paths: JobPaths) -> None:
    """End a runner that does not answer (stopped, or stuck in the kernel) and all it started."""
    runner = _live_runner(paths)
    if runner is not None:
        family = members(runner["pid"])
        for pid in (runner["pid"], *family):
            _send(pid, signal.SIGKILL)
    deadline = time.monotonic() + KILL_SECONDS
    while _running(paths):
        if time.monotonic() > deadline:
            raise BackendError(f"job {key}: process {runner and runner['pid']} cannot be ended, even by SIGKILL")
        time.sleep(POLL_SECONDS)
    _kill_marked(paths.directory)


def _kill_marked(directory: Path) -> None:
    """Kill every process that carries the job's mark; call it only when the job's runner is dead."""
    import psutil

    deadline = time.monotonic() + KILL_SECONDS
    while left := [process for process in psutil.process_iter() if _is_marked(process, str(directory))]:
        for process in left:
            _send(process.pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            ids = [process.pid for process in left]
            raise BackendError(f"{directory}: processes {ids} of a lost job cannot be ended, even by SIGKILL")
        time.sleep(0.01)


def _is_marked(process: Any, directory: str) -> bool:
    import psutil

    try:
        return bool(process.environ().get(MARK) == directory and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, OSError):
        return False


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1] if lines else "no message"


def _tree_cpu_seconds(pid: int) -> float:
    """User and system time of a process's descendants, those that ended and were waited for included."""
    total = 0.0
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
                total += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total
