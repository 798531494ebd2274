"""A server under test: started, waited for, and ended with everything it started."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil

from nightlab.errors import StressError

__all__ = ["free_port", "serving"]

POLL_SECONDS = 0.1
ANSWER_SECONDS = 5.0
GRACE_SECONDS = 10.0
"""Between SIGTERM and SIGKILL."""
TAIL_BYTES = 2048


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serving(
    command: Sequence[str],
    *,
    ready: str,
    timeout_seconds: float,
    log: Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """The server while the block lasts, from the moment `ready` answers; yields its process id.

    What it prints goes to `log`. Raises StressError when it cannot be started, ends, or is not ready in time.
    """
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                list(command),
                cwd=cwd,
                env=dict(env) if env is not None else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise StressError(f"the server {command[0]} cannot be started: {error.strerror or error}") from error
        try:
            _wait_until_ready(process, ready, timeout_seconds, log)
            yield process.pid
        finally:
            _end(process)


def _wait_until_ready(process: subprocess.Popen[bytes], ready: str, timeout_seconds: float, log: Path) -> None:
    give_up = time.monotonic() + timeout_seconds
    said = "nobody listens there"
    with httpx.Client(timeout=ANSWER_SECONDS, trust_env=False) as client:
        while time.monotonic() < give_up:
            if process.poll() is not None:
                raise StressError(
                    f"the server ended before it was ready, with status {process.returncode}: {_last_line(log)}"
                )
            try:
                status = client.get(ready).status_code
            except httpx.HTTPError as error:
                said = type(error).__name__
            else:
                if status < 400:
                    return
                said = f"status {status}"
            time.sleep(POLL_SECONDS)
    raise StressError(
        f"the server was not ready within {timeout_seconds:g} s: {ready}: {said}; it said last: {_last_line(log)}"
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the whole tree: what stays in the server's session, and what left it."""
    family = _family(process.pid)
    _signal_group(process.pid, signal.SIGTERM)
    for one in family:
        with suppress(psutil.NoSuchProcess):
            one.terminate()
    _, alive = psutil.wait_procs(family, timeout=GRACE_SECONDS)
    _signal_group(process.pid, signal.SIGKILL)
    for one in alive:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    psutil.wait_procs(alive, timeout=GRACE_SECONDS)
    process.wait()


def _family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    return []


def _signal_group(pid: int, number: signal.Signals) -> None:
    # The group has the server's id, and exists for as long as any process of it does.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _last_line(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing"
