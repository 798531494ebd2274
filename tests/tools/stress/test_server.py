"""A server under test: ready before the block, gone after it with everything it started."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import psutil
import pytest

from nightlab.errors import StressError
from nightlab.tools.stress.job import Plan, main
from nightlab.tools.stress.server import free_port, serving

SERVER = """\
import http.server, subprocess, sys
port, pids = int(sys.argv[1]), sys.argv[2]
# A worker that ignores SIGTERM and does not share its parent's session.
worker = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
child = subprocess.Popen([sys.executable, "-c", worker], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
with open(pids, "w") as file:
    file.write(str(child.pid))
print("loading", flush=True)
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    return path


def is_gone(pid: int) -> bool:
    """Whether the process has ended; one that nobody has waited for yet may still be listed."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_the_whole_tree_is_ended(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nightlab.tools.stress.server.GRACE_SECONDS", 0.5)
    port, pids = free_port(), tmp_path / "pids"
    command = [sys.executable, str(script), str(port), str(pids)]
    ready = f"http://127.0.0.1:{port}/"
    with serving(command, ready=ready, timeout_seconds=60, log=tmp_path / "log") as pid:
        worker = int(pids.read_text())
        assert not is_gone(pid) and not is_gone(worker)
    assert is_gone(pid) and is_gone(worker)
    assert "loading" in (tmp_path / "log").read_text()


def test_a_server_that_ends_is_told_with_its_last_words(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import sys; sys.exit('no such model')"]
    told = "ended before it was ready, with status 1: no such model"
    with (
        pytest.raises(StressError, match=told),
        serving(command, ready="http://127.0.0.1:9/", timeout_seconds=60, log=tmp_path / "log"),
    ):
        raise AssertionError("it is not ready")


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; print('warming up', flush=True); time.sleep(600)"]
    address = f"http://127.0.0.1:{free_port()}/"
    with (
        pytest.raises(StressError, match=r"not ready within 1 s: .*ConnectError"),
        serving(command, ready=address, timeout_seconds=1, log=tmp_path / "log"),
    ):
        raise AssertionError("it is not ready")


def test_the_job_fills_the_port_in_and_has_its_commands_status(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nightlab.tools.stress.server.GRACE_SECONDS", 0.5)
    asks = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1]).read(); sys.exit(7)"
    plan = Plan(
        serve=(sys.executable, str(script), "{port}", str(tmp_path / "pids")),
        ready="http://127.0.0.1:{port}/",
        timeout_seconds=60,
        command=(sys.executable, "-c", asks, "http://127.0.0.1:{port}/"),
        log=tmp_path / "log",
    )
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert main(plan.model_dump_json()) == 7
    finally:
        signal.signal(signal.SIGTERM, before)
    worker = int((tmp_path / "pids").read_text())
    assert is_gone(worker)
