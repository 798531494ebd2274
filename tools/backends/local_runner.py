"""Runs one local job to its end and records what became of it.

`LocalBackend` starts this file as a detached process of its own, so that a job, its timeout and its result do not
depend on the lab being alive. It imports the standard library only (psutil where there is no /proc): no site-packages,
no nightlab, a few milliseconds to start. The job's environment is this process's own and is never written to disk.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["boot_id", "main", "members", "start_time", "write_json"]

LINUX = sys.platform == "linux"
PAGE_BYTES = resource.getpagesize()
MAXRSS_BYTES = 1024 if LINUX else 1
FIRST_SAMPLE_SECONDS, SAMPLE_SECONDS = 0.02, 1.0
KILL_SECONDS = 10.0
"""How long processes may take to vanish after SIGKILL; longer means the kernel holds them."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
NOT_EXECUTABLE, NOT_FOUND = 126, 127
FULL = (errno.ENOSPC, errno.EDQUOT)
FULL_SECONDS = 1.0
"""Between two attempts to write a result while the disk is full."""


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` in one step that survives a power cut; an OSError leaves it as it was, and nothing beside it.

    To be called by the holder of the job's lock only: then what a killed writer left is written over by the next.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        with temporary.open("w", encoding="ascii") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def boot_id() -> str:
    """Identifies this boot of the machine: a process id means nothing in another."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() if LINUX else ""


def start_time(pid: int) -> float | None:
    """When process `pid` started (clock ticks after boot, or a Unix time without /proc); None when it has ended.

    Together with the process id it tells a process from a later one with the same id.
    """
    if LINUX:
        fields = _stat(pid)
        return float(fields[19]) if fields and fields[0] not in (b"Z", b"X") else None
    import psutil

    try:
        return float(psutil.Process(pid).create_time())
    except psutil.NoSuchProcess:
        return None


def members(root: int) -> dict[int, int]:
    """Every descendant of process `root`: process id → resident bytes."""
    found: dict[int, int] = {}
    waiting = [root]
    while waiting:
        for pid, memory_bytes in _children(waiting.pop()).items():
            if pid not in found:
                found[pid] = memory_bytes
                waiting.append(pid)
    return found


def _children(parent: int) -> dict[int, int]:
    if LINUX:
        stats = {pid: fields for pid in _child_ids(parent) if (fields := _stat(pid))}
        return {pid: int(fields[21]) * PAGE_BYTES for pid, fields in stats.items()}
    import psutil

    children = {}
    try:
        for process in psutil.Process(parent).children():
            children[process.pid] = process.memory_info().rss
    except psutil.Error:
        return children
    return children


def _child_ids(parent: int) -> list[int]:
    if not Path(f"/proc/self/task/{os.getpid()}/children").exists():
        # Kernels without CONFIG_PROC_CHILDREN: every process must be asked for its parent.
        everyone = [int(name) for name in _listing("/proc") if name.isdigit()]
        return [pid for pid in everyone if (fields := _stat(pid)) and int(fields[1]) == parent]
    lists = [_read(f"/proc/{parent}/task/{thread}/children") for thread in _listing(f"/proc/{parent}/task")]
    return [int(pid) for text in lists for pid in text.split()]


def _stat(pid: int) -> list[bytes] | None:
    """Fields of /proc/PID/stat from the state on; the name before it may hold blanks and brackets."""
    return _read(f"/proc/{pid}/stat").rpartition(b")")[2].split() or None


def _listing(folder: str) -> list[str]:
    try:
        return [entry.name for entry in Path(folder).iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def _read(file: str) -> bytes:
    """What /proc tells of a process or thread; nothing when it has ended."""
    try:
        return Path(file).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


class Signals:
    """Turns signals into something to wait for, without races: the ids arrive through a pipe."""

    def __init__(self) -> None:
        self.cancelled = False
        self._reader, writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, self._seen)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])

    def _seen(self, number: int, _frame: object) -> None:
        self.cancelled = self.cancelled or number != signal.SIGCHLD

    def wait(self, seconds: float) -> None:
        """Return at the next signal, or after `seconds`."""
        if select.select([self._reader], [], [], max(0.0, seconds))[0]:
            os.read(self._reader, 4096)


class Tree:
    """The command and everything it starts, processes that leave its session included."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.exit_codes: dict[int, int] = {}
        self.peak_memory_bytes = 0
        self._seen: dict[int, float | None] = {}

    def sample(self) -> None:
        """Note the memory in use now."""
        memory_bytes = self._alive()
        self.peak_memory_bytes = max(self.peak_memory_bytes, sum(memory_bytes.values()))

    def gone(self) -> bool:
        """Collect what ended; True when nothing is left. As subreaper, no child means no descendant."""
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self.exit_codes[ended[0]] = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            return LINUX or not self._alive()
        return False

    def end(self, grace_seconds: float) -> list[int]:
        """SIGTERM to all, after the grace period SIGKILL; returns the process ids that could not be ended."""
        kill_from = time.monotonic() + grace_seconds
        asked: set[int] = set()
        pause = 0.005
        while not self.gone():
            now = time.monotonic()
            if now > kill_from + KILL_SECONDS:
                return sorted(self._alive())
            for pid in self._alive():
                if now >= kill_from:
                    _send(pid, signal.SIGKILL)
                elif pid not in asked:
                    asked.add(pid)
                    _send(pid, signal.SIGTERM)
            self.signals.wait(min(pause, kill_from - now) if now < kill_from else 0.01)
            pause = min(2 * pause, 0.1)
        return []

    def _alive(self) -> dict[int, int]:
        alive = members(os.getpid())
        if not LINUX:
            # Without a subreaper a process whose parent died is out of sight unless it was seen before.
            for pid, started in self._seen.items():
                if pid not in alive and started is not None and start_time(pid) == started:
                    alive |= {pid: 0} | members(pid)
            self._seen = {pid: start_time(pid) for pid in alive}
        return alive


def _send(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return


class CannotStartError(Exception):
    """The command is not there or may not be executed; `exit_code` is a shell's for that."""

    def __init__(self, reason: str, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__(reason)


class Runner:
    """One job from start to result; paths are the fixed names of `JobPaths`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.job: dict[str, Any] = json.loads((directory / "job.json").read_text(encoding="ascii"))
        self.identity = {"pid": os.getpid(), "start_time": start_time(os.getpid()), "boot_id": boot_id()}
        self.started_at = datetime.now(UTC)
        self.clock = time.monotonic()
        self.tree = Tree(Signals())
        self.timed_out = False

    def run(self) -> None:
        """Run the command, end what it leaves behind, write the result."""
        try:
            command = self._start()
        except CannotStartError as error:
            self._finish(error.exit_code, str(error))
            return
        self._follow(command.pid)
        left = self.tree.end(float(self.job["grace_seconds"]))
        exit_code = self.tree.exit_codes.get(command.pid, -signal.SIGKILL)
        self._finish(exit_code, f"processes that could not be ended: {left}" if left else "")

    def _start(self) -> subprocess.Popen[bytes]:
        """The started command; when there is none, the reason also goes to the job's stderr."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        stdout = os.open(self.directory / "stdout.log", flags, 0o644)
        stderr = os.open(self.directory / "stderr.log", flags, 0o644)
        try:
            return self._spawn(stdout, stderr)
        except CannotStartError as error:
            os.write(stderr, os.fsencode(f"nightlab: {error}\n"))
            raise
        finally:
            os.close(stdout)
            os.close(stderr)
            # The runner must not keep the worktree busy.
            os.chdir("/")

    def _spawn(self, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
        command, cwd = self.job["command"], self.job["cwd"]
        try:
            os.chdir(cwd)
        except OSError as error:
            raise CannotStartError(f"cannot enter {cwd}: {error.strerror}", NOT_EXECUTABLE) from error
        # On disk before the command is: with the machine dying in between it might have run, and must count as lost.
        write_json(self.directory / "started.json", self.identity | {"started_at": self.started_at.isoformat()})
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_die_with_parent(os.getpid()) if LINUX else None,
            )
        except OSError as error:
            exit_code = NOT_FOUND if error.errno == errno.ENOENT else NOT_EXECUTABLE
            raise CannotStartError(f"cannot start {command[0]}: {error.strerror}", exit_code) from error

    def _follow(self, pid: int) -> None:
        """Return when the command ended, ran out of time or was cancelled."""
        timeout_seconds = self.job["timeout_seconds"]
        deadline = float("inf") if timeout_seconds is None else self.clock + timeout_seconds
        pause = FIRST_SAMPLE_SECONDS
        while not self.tree.gone() and pid not in self.tree.exit_codes and not self.tree.signals.cancelled:
            left = deadline - time.monotonic()
            if left <= 0:
                self.timed_out = True
                return
            self.tree.sample()
            self.tree.signals.wait(min(pause, left))
            pause = min(2 * pause, SAMPLE_SECONDS)

    def _finish(self, exit_code: int, detail: str) -> None:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        result = {
            "key": self.job["key"],
            "exit_code": exit_code,
            "timed_out": self.timed_out,
            "cancelled": self.tree.signals.cancelled,
            "started_at": self.started_at.isoformat(),
            "ended_at": datetime.now(UTC).isoformat(),
            "wall_seconds": time.monotonic() - self.clock,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_memory_bytes": max(self.tree.peak_memory_bytes, usage.ru_maxrss * MAXRSS_BYTES),
            "detail": detail,
        }
        while not self._written(self.identity | result):
            self.tree.signals.wait(FULL_SECONDS)

    def _written(self, result: dict[str, Any]) -> bool:
        """Whether the result could be written; a full disk must not lose a run that has ended, so it waits for room."""
        try:
            write_json(self.directory / "result.json", result)
        except OSError as error:
            if error.errno in FULL:
                return False
            raise
        return True


def _libc() -> Any:
    import ctypes

    return ctypes.CDLL(None)


def _die_with_parent(parent: int) -> Any:
    """What makes the command end when its runner is killed: nobody would then enforce its timeout."""
    libc = _libc()

    def prepare() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(NOT_EXECUTABLE)

    return prepare


def main(directory: Path, lock: int) -> None:
    """Run the job of `directory`; `lock` is the open lock file, handed over already locked by the submitter."""
    # No child of the lab: nobody has to collect it, and no signal for the lab's family reaches it.
    if os.fork():
        os._exit(0)
    os.set_inheritable(lock, False)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if (directory / "result.json").exists():
        return
    if LINUX:
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    Runner(directory).run()
    # Waiting labs watch for the end of this process.
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
