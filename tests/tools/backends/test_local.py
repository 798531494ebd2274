"""The local backend: the contract, and what is special to processes of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from nightlab.configs.paths import JobPaths
from nightlab.configs.study import BackendSettings
from nightlab.errors import BackendError
from nightlab.knowledge.records import JobState
from nightlab.tools.backends.base import Backend, JobSpec
from nightlab.tools.backends.local import LocalBackend

from .contract import LONG, PYTHON, BackendContract, Workshop, alive, first_line, read_pid, until

DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("daemon", "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
while not os.path.exists("daemon"):
    time.sleep(0.01)
"""
"""A command with a grandchild that left its session, lost its parent and does not mind SIGTERM."""

LIST_OPEN_FILES = """
import os
def is_open(number):
    try:
        return bool(os.fstat(number))
    except OSError:
        return False
print([number for number in range(3, 256) if is_open(number)])
"""

LAB = """
import sys
from pathlib import Path
from nightlab.configs.study import BackendSettings
from nightlab.tools.backends.base import JobSpec
from nightlab.tools.backends.local import LocalBackend
root = Path(sys.argv[1])
spec = JobSpec("lab/00/1/0", ("sh", "-c", sys.argv[2]), root, {}, root / "job")
print(LocalBackend(BackendSettings(), grace_seconds=0.3).submit(spec), flush=True)
sys.stdin.read()
"""


class TestLocalBackend(BackendContract):
    def open(self, settings: BackendSettings) -> Backend:
        return LocalBackend(settings, grace_seconds=0.3)

    def lose(self, spec: JobSpec) -> None:
        os.kill(runner_pid(spec), signal.SIGKILL)


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    workshop = Workshop(tmp_path, LocalBackend(BackendSettings(slots=2), grace_seconds=0.3))
    yield workshop
    workshop.clean()


def runner_pid(spec: JobSpec) -> int:
    return int(json.loads(JobPaths(spec.directory).started.read_text())["pid"])


def start_lab(root: Path, script: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", LAB, str(root), script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_killed_lab_leaves_its_job_to_the_next(workshop: Workshop) -> None:
    with start_lab(workshop.root, "echo $$ >> pid; until [ -e go ]; do sleep 0.02; done; echo done; exit 5") as lab:
        assert lab.stdout
        native = lab.stdout.readline().strip()
        read_pid(workshop.root / "pid")
        lab.send_signal(signal.SIGKILL)
    spec = workshop.spec("sh", "-c", "exit 9", key="lab/00/1/0", directory=workshop.root / "job")
    assert workshop.backend.find(spec.key, spec.directory) == native
    assert workshop.backend.submit(spec) == native
    assert workshop.status(spec).state is JobState.RUNNING
    (workshop.root / "go").touch()
    assert workshop.end(spec).exit_code == 5
    assert JobPaths(spec.directory).stdout.read_text() == "done\n"
    assert len((workshop.root / "pid").read_text().split()) == 1


def test_two_labs_at_the_same_moment_start_one_job(workshop: Workshop) -> None:
    labs = [start_lab(workshop.root, "echo started >> log; sleep 600") for _ in range(2)]
    answers = [lab.communicate()[0].strip() for lab in labs]
    workshop.spec(*LONG, key="lab/00/1/0", directory=workshop.root / "job")
    assert answers[0] == answers[1] != ""
    until(lambda: first_line(workshop.root / "log"))
    assert (workshop.root / "log").read_text() == "started\n"


def test_threads_that_submit_the_same_job_start_it_once(workshop: Workshop) -> None:
    spec = workshop.spec("sh", "-c", "echo started >> log; sleep 600")
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(workshop.backend.submit, [spec] * 16))) == 1
    until(lambda: first_line(workshop.root / "log"))
    assert (workshop.root / "log").read_text() == "started\n"


def test_nothing_of_a_lost_job_goes_on(workshop: Workshop) -> None:
    spec = workshop.start(*PYTHON, DAEMON + "\nopen('pid', 'w').write(f'{os.getpid()}\\n')\ntime.sleep(600)")
    family = [read_pid(workshop.root / "daemon"), read_pid(workshop.root / "pid")]
    os.kill(runner_pid(spec), signal.SIGKILL)
    assert workshop.end(spec).state is JobState.LOST
    assert [pid for pid in family if alive(pid)] == []


def test_a_lost_job_can_be_submitted_again(workshop: Workshop) -> None:
    spec = workshop.spec("sh", "-c", "echo started; [ -e again ] || sleep 600")
    first = workshop.backend.submit(spec)
    os.kill(int(first), signal.SIGKILL)
    assert workshop.end(spec).state is JobState.LOST
    (workshop.root / "again").touch()
    assert workshop.backend.submit(spec) != first
    assert workshop.end(spec).exit_code == 0
    assert JobPaths(spec.directory).stdout.read_text() == "started\n"


def test_a_command_whose_runner_dies_as_it_begins_is_lost_and_not_as_if_it_had_never_begun(workshop: Workshop) -> None:
    spec = workshop.spec("sh", "-c", "kill -9 $PPID; sleep 600")
    native = workshop.backend.submit(spec)
    assert workshop.end(spec).state is JobState.LOST
    assert workshop.backend.find(spec.key, spec.directory) == native


def test_a_later_process_with_the_same_id_is_not_the_job(workshop: Workshop) -> None:
    spec = workshop.start(*LONG)
    os.kill(runner_pid(spec), signal.SIGKILL)
    until(lambda: workshop.status(spec).state is JobState.LOST)
    with subprocess.Popen(LONG) as bystander:
        started = JobPaths(spec.directory).started
        started.write_text(json.dumps(json.loads(started.read_text()) | {"pid": bystander.pid}))
        assert workshop.status(spec).state is JobState.LOST
        assert workshop.backend.cancel({spec.key: spec.directory}) == []
        assert workshop.backend.submit(spec) != str(bystander.pid)
        assert bystander.poll() is None
        bystander.kill()


def test_a_lost_job_does_not_run_beside_its_repetition(workshop: Workshop) -> None:
    spec = workshop.start(*PYTHON, "import os\nif os.path.exists('daemon'): os._exit(0)" + DAEMON + "\ntime.sleep(600)")
    daemon = read_pid(workshop.root / "daemon")
    os.kill(runner_pid(spec), signal.SIGKILL)
    until(lambda: not alive(runner_pid(spec)))
    workshop.backend.submit(spec)
    assert not alive(daemon)


@pytest.mark.parametrize("why", ["timeout", "cancel", "end"])
def test_the_whole_tree_is_gone(workshop: Workshop, why: str) -> None:
    tail = "" if why == "end" else "\ntime.sleep(600)"
    spec = workshop.start(*PYTHON, DAEMON + tail, timeout_seconds=4.0 if why == "timeout" else None)
    daemon = read_pid(workshop.root / "daemon")
    if why == "cancel":
        assert workshop.backend.cancel({spec.key: spec.directory}) == [spec.key]
    status = workshop.end(spec)
    assert not alive(daemon)
    assert (status.timed_out, status.exit_code) == (why == "timeout", 0 if why == "end" else -signal.SIGTERM)
    assert ("cancelled" in status.detail) == (why == "cancel")


def test_a_job_may_save_its_work_when_it_is_asked_to_end(workshop: Workshop) -> None:
    spec = workshop.start("sh", "-c", "trap 'echo saved; exit 7' TERM; echo $$ > pid; while :; do sleep 0.02; done")
    read_pid(workshop.root / "pid")
    workshop.backend.cancel({spec.key: spec.directory})
    assert workshop.status(spec).exit_code == 7
    assert JobPaths(spec.directory).stdout.read_text() == "saved\n"


def test_a_runner_that_does_not_answer_is_ended_too(workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nightlab.tools.backends.local.ANSWER_SECONDS", 0.2)
    spec = workshop.start("sh", "-c", "echo $$ > pid; sleep 600 & wait")
    pid = read_pid(workshop.root / "pid")
    os.kill(runner_pid(spec), signal.SIGSTOP)
    assert workshop.backend.cancel({spec.key: spec.directory}) == [spec.key]
    assert not alive(pid)
    assert workshop.status(spec).state is JobState.LOST


def test_a_runner_that_cannot_start_says_why(workshop: Workshop) -> None:
    spec = workshop.spec("true")
    spec.directory.mkdir()
    (spec.directory / "stdout.log").mkdir()
    with pytest.raises(BackendError, match=r"stdout\.log"):
        workshop.backend.submit(spec)


def test_a_job_gets_no_open_file_but_its_own(workshop: Workshop) -> None:
    spec = workshop.start(*PYTHON, LIST_OPEN_FILES)
    workshop.end(spec)
    assert JobPaths(spec.directory).stdout.read_text() == "[]\n"


def test_peak_memory_is_that_of_the_tree(workshop: Workshop) -> None:
    hold = "import time; block = b'x' * 100_000_000; open('held', 'a').write('.')"
    wait = "import os, time\nwhile len(open('held').read()) < 2: time.sleep(0.01)\ntime.sleep(2.5)"
    two = f"import os, time\nos.fork()\n{hold}\n{wait}"
    status = workshop.run(*PYTHON, two)
    assert status.exit_code == 0
    assert status.peak_memory_bytes and 200_000_000 < status.peak_memory_bytes < 400_000_000


def test_twenty_jobs_in_a_row(workshop: Workshop) -> None:
    specs = [workshop.start("sh", "-c", f"echo {number}; exit {number}") for number in range(20)]
    ends = [workshop.end(spec) for spec in specs]
    assert [end.exit_code for end in ends] == list(range(20))
    assert [JobPaths(spec.directory).stdout.read_text() for spec in specs] == [f"{number}\n" for number in range(20)]
    assert not [runner for spec in specs if psutil.pid_exists(runner := runner_pid(spec)) and alive(runner)]
