"""What every backend must do, whatever it runs jobs on: subclass `BackendContract` and fill in its two hooks."""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from nightlab.configs.paths import JobPaths
from nightlab.configs.study import BackendSettings
from nightlab.errors import BackendError
from nightlab.knowledge.records import JobState, run_key, utc_now
from nightlab.tools.backends.base import Backend, JobSpec, JobStatus

PYTHON = (sys.executable, "-I", "-S", "-c")
LONG = ("sleep", "600")
PATIENCE_SECONDS = 120.0


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must come; the bound only keeps a failing test from hanging."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def first_line(path: Path) -> str:
    """The file's first line once it is complete, until then nothing."""
    line, end, _ = path.read_text().partition("\n") if path.exists() else ("", "", "")
    return line if end else ""


def read_pid(path: Path) -> int:
    """The process id a job writes into `path`."""
    until(lambda: first_line(path))
    return int(first_line(path))


class Workshop:
    """Makes specs under one folder, and ends at the end of the test whatever still runs."""

    def __init__(self, root: Path, backend: Backend) -> None:
        self.root = root
        self.backend = backend
        self.specs: dict[str, JobSpec] = {}

    def spec(self, *command: str, **changes: object) -> JobSpec:
        number = len(self.specs)
        spec = JobSpec(
            key=run_key("contract", number, 1, 0),
            command=command,
            cwd=self.root,
            env={},
            directory=self.root / f"job-{number}",
        )
        spec = replace(spec, **changes)  # type: ignore[arg-type]
        self.specs[spec.key] = spec
        return spec

    def start(self, *command: str, **changes: object) -> JobSpec:
        spec = self.spec(*command, **changes)
        self.backend.submit(spec)
        return spec

    def status(self, spec: JobSpec) -> JobStatus:
        return self.backend.poll({spec.key: spec.directory})[spec.key]

    def end(self, spec: JobSpec) -> JobStatus:
        assert self.backend.wait({spec.key: spec.directory}, PATIENCE_SECONDS)
        return self.status(spec)

    def run(self, *command: str, **changes: object) -> JobStatus:
        return self.end(self.start(*command, **changes))

    def clean(self) -> None:
        self.backend.cancel({key: spec.directory for key, spec in self.specs.items() if spec.directory.exists()})


class BackendContract(ABC):
    """Tests of the `Backend` Protocol."""

    @abstractmethod
    def open(self, settings: BackendSettings) -> Backend:
        """A backend with a short grace period; each call stands for a new lab process."""

    @abstractmethod
    def lose(self, spec: JobSpec) -> None:
        """Make the running job vanish so that it can leave no result."""

    @pytest.fixture
    def settings(self) -> BackendSettings:
        return BackendSettings(slots=2)

    @pytest.fixture
    def workshop(self, tmp_path: Path, settings: BackendSettings) -> Iterator[Workshop]:
        workshop = Workshop(tmp_path, self.open(settings))
        yield workshop
        workshop.clean()

    def test_it_states_its_name_and_slots(self, settings: BackendSettings) -> None:
        backend = self.open(settings)
        assert backend.name
        assert backend.slots == 2

    @pytest.mark.parametrize("code", [0, 3, 255])
    def test_exit_code(self, workshop: Workshop, code: int) -> None:
        status = workshop.run("sh", "-c", f"exit {code}")
        assert (status.state, status.exit_code, status.timed_out) == (JobState.ENDED, code, False)

    @pytest.mark.parametrize("number", [9, 15])
    def test_end_by_a_signal_is_negative(self, workshop: Workshop, number: int) -> None:
        assert workshop.run("sh", "-c", f"kill -{number} $$").exit_code == -number

    def test_a_command_that_is_not_there(self, workshop: Workshop) -> None:
        spec = workshop.start("no-such-command-anywhere")
        assert workshop.end(spec).exit_code == 127
        assert "no-such-command-anywhere" in JobPaths(spec.directory).stderr.read_text()

    def test_a_command_that_is_not_executable(self, workshop: Workshop) -> None:
        (workshop.root / "train.py").write_text("pass")
        spec = workshop.start("./train.py")
        assert workshop.end(spec).exit_code == 126
        assert "train.py" in JobPaths(spec.directory).stderr.read_text()

    def test_a_folder_that_is_not_there(self, workshop: Workshop) -> None:
        spec = workshop.start("true", cwd=workshop.root / "missing")
        assert workshop.end(spec).exit_code == 126
        assert "missing" in JobPaths(spec.directory).stderr.read_text()

    def test_times_and_usage_are_recorded(self, workshop: Workshop) -> None:
        before = utc_now()
        status = workshop.run(*PYTHON, "sum(range(1_000_000))")
        assert status.started_at and status.ended_at
        assert before <= status.started_at <= status.ended_at <= utc_now()
        assert status.wall_seconds and status.wall_seconds > 0
        assert status.cpu_seconds and status.cpu_seconds > 0
        assert status.peak_memory_bytes and status.peak_memory_bytes > 1_000_000

    def test_output_is_kept_byte_for_byte(self, workshop: Workshop) -> None:
        payload = "bytes(range(256)) * 500"
        spec = workshop.start(
            *PYTHON, f"import os, sys; sys.stdout.buffer.write({payload}); os.write(2, b'\\xff\\r\\x00')"
        )
        workshop.end(spec)
        assert JobPaths(spec.directory).stdout.read_bytes() == bytes(range(256)) * 500
        assert JobPaths(spec.directory).stderr.read_bytes() == b"\xff\r\x00"

    def test_unusual_characters_arrive_as_they_are(self, workshop: Workshop) -> None:
        arguments = ["", " ", "a b", "$HOME", "`id`", "*", "'\"\\", "-n", "两\n行", "{lr}", "%s", os.fsdecode(b"\xff")]
        folder = workshop.root / "a folder; 'quoted' $X ü"
        folder.mkdir()
        spec = workshop.start(
            *PYTHON,
            "import json, os, sys\n"
            "json.dump([sys.argv[1:], os.environ['ODD'], os.getcwd()], open(os.environ['OUT'], 'w'))",
            *arguments,
            cwd=folder,
            env={"ODD": "a=b\n'$HOME' ü", "OUT": str(workshop.root / "seen.json")},
            directory=folder / "job: é",
            key="odd name/00/1/0",
        )
        assert workshop.end(spec).exit_code == 0
        assert json.loads((workshop.root / "seen.json").read_text()) == [
            arguments,
            "a=b\n'$HOME' ü",
            str(folder.resolve()),
        ]

    def test_standard_input_is_empty(self, workshop: Workshop) -> None:
        assert workshop.run("cat").exit_code == 0

    def test_the_same_key_starts_one_job(self, workshop: Workshop, settings: BackendSettings) -> None:
        spec = workshop.spec("sh", "-c", "echo started >> log; sleep 600")
        first = workshop.backend.submit(spec)
        assert workshop.backend.submit(spec) == first
        assert self.open(settings).submit(spec) == first
        until(lambda: first_line(workshop.root / "log"))
        assert (workshop.root / "log").read_text() == "started\n"

    def test_an_ended_job_is_not_started_again(self, workshop: Workshop, settings: BackendSettings) -> None:
        spec = workshop.spec("sh", "-c", "echo started >> log; exit 4")
        first = workshop.backend.submit(spec)
        workshop.end(spec)
        assert self.open(settings).submit(spec) == first
        assert workshop.status(spec).exit_code == 4
        assert (workshop.root / "log").read_text() == "started\n"

    def test_find(self, workshop: Workshop, settings: BackendSettings) -> None:
        spec = workshop.spec(*LONG)
        assert workshop.backend.find(spec.key, spec.directory) is None
        native = workshop.backend.submit(spec)
        later = self.open(settings)
        assert later.find(spec.key, spec.directory) == native
        assert later.find("contract/99/1/0", spec.directory) is None
        later.cancel({spec.key: spec.directory})
        assert later.find(spec.key, spec.directory) == native

    def test_poll_follows_a_job(self, workshop: Workshop) -> None:
        spec = workshop.spec("sh", "-c", "until [ -e go ]; do sleep 0.02; done")
        native = workshop.backend.submit(spec)
        running = workshop.status(spec)
        assert (running.state, running.native_id, running.exit_code) == (JobState.RUNNING, native, None)
        (workshop.root / "go").touch()
        ended = workshop.end(spec)
        assert (ended.state, ended.native_id, ended.exit_code) == (JobState.ENDED, native, 0)
        assert ended.started_at == running.started_at

    def test_wait_returns_with_the_first_end(self, workshop: Workshop) -> None:
        long = workshop.start(*LONG)
        short = workshop.start("sh", "-c", "sleep 0.2")
        assert workshop.backend.wait({spec.key: spec.directory for spec in (long, short)}, PATIENCE_SECONDS)
        assert workshop.status(short).state is JobState.ENDED
        assert workshop.status(long).state is JobState.RUNNING

    def test_wait_returns_when_its_time_is_up(self, workshop: Workshop) -> None:
        spec = workshop.start(*LONG)
        assert not workshop.backend.wait({spec.key: spec.directory}, 0.05)
        assert workshop.status(spec).state is JobState.RUNNING
        assert not workshop.backend.wait({}, 0.01)

    def test_cancel_ends_what_runs_and_says_so(self, workshop: Workshop, settings: BackendSettings) -> None:
        over = workshop.start("true")
        workshop.end(over)
        running = workshop.start("sh", "-c", "echo $$ > pid; sleep 600 & wait")
        pid = read_pid(workshop.root / "pid")
        both = {spec.key: spec.directory for spec in (over, running)}
        assert list(self.open(settings).cancel(both)) == [running.key]
        assert not alive(pid)
        status = workshop.status(running)
        assert (status.state, status.timed_out) == (JobState.ENDED, False)
        assert status.exit_code and status.exit_code < 0
        assert list(workshop.backend.cancel(both)) == []

    def test_a_job_that_takes_too_long_is_ended(self, workshop: Workshop) -> None:
        status = workshop.run(*LONG, timeout_seconds=0.3)
        assert (status.state, status.timed_out) == (JobState.ENDED, True)
        assert status.exit_code and status.exit_code < 0

    def test_a_job_that_is_in_time_is_not(self, workshop: Workshop) -> None:
        status = workshop.run("true", timeout_seconds=600.0)
        assert (status.exit_code, status.timed_out) == (0, False)

    def test_a_job_without_a_result_is_lost(self, workshop: Workshop, settings: BackendSettings) -> None:
        spec = workshop.spec(*LONG)
        native = workshop.backend.submit(spec)
        self.lose(spec)
        status = workshop.end(spec)
        assert (status.state, status.native_id, status.exit_code) == (JobState.LOST, native, None)
        assert status.detail
        assert self.open(settings).find(spec.key, spec.directory) == native
        assert list(workshop.backend.cancel({spec.key: spec.directory})) == []

    def test_a_job_never_submitted_is_lost(self, workshop: Workshop) -> None:
        spec = workshop.spec("true")
        assert workshop.status(spec).state is JobState.LOST

    def test_keys_are_withheld(self, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        monkeypatch.setenv("SOME_SETTING", "of the user")
        spec = workshop.start("env", env={"LAUNCHER": "said"})
        workshop.end(spec)
        seen = JobPaths(spec.directory).stdout.read_text().splitlines()
        assert "LAUNCHER=said" in seen
        assert not [line for line in seen if line.startswith(("OPENAI", "SOME_"))]
        stored = b"".join(path.read_bytes() for path in spec.directory.rglob("*") if path.is_file())
        assert b"sk-secret" not in stored

    def test_the_output_folder_stands_ready(self, workshop: Workshop) -> None:
        spec = workshop.spec("sh", "-c", 'echo 1 > "$0"/value')
        output = JobPaths(spec.directory).output
        workshop.backend.submit(replace(spec, command=(*spec.command, str(output))))
        assert workshop.end(spec).exit_code == 0
        assert (output / "value").read_text() == "1\n"

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"command": ()}, "empty"),
            ({"slot": 2}, "slot"),
            ({"env": {"A=B": "c"}}, "="),
            ({"command": ("\0",)}, "NUL"),
        ],
    )
    def test_a_spec_that_cannot_be_run_is_refused(
        self, workshop: Workshop, changes: dict[str, object], word: str
    ) -> None:
        with pytest.raises(BackendError, match=word):
            workshop.start("true", **changes)

    def test_a_folder_belongs_to_one_key(self, workshop: Workshop) -> None:
        first = workshop.start("true")
        with pytest.raises(BackendError, match="already belongs"):
            workshop.start("true", directory=first.directory, key="another/00/1/0")
