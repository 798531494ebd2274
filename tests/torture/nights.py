"""Small nights to be killed: a training repository that notes every execution, and ways to start and kill its lab."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Scalar
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import StudyStatus
from nightlab.tools.backends.local import MARK
from tests.task import TRAIN, commit_all, make_repository, study_data
from tests.torture.bootstrap import Fault

__all__ = ["BOOTSTRAP", "HUNG", "Nursery", "Task", "family", "kill_family", "response"]

BOOTSTRAP = Path(__file__).with_name("bootstrap.py")
DEADLY_RUNNER = Path(__file__).with_name("deadly_runner.py")
HUNG = 124
"""Exit status of a lab that had to be killed because it came to no end."""
LONGEST_SECONDS = 180.0

NOTE = """\
import os, time
_notes = os.open({notes!r}, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(_notes, (os.environ[{mark!r}] + "\\n").encode())
os.close(_notes)
"""
"""Put before the training script: one line an execution, whatever becomes of it."""

GATE = """\
while os.environ[{mark!r}].startswith({logs!r}) and not os.path.exists({gate!r}):
    time.sleep(0.002)
"""
"""Put before it, too: a job of the night ends while a lab waits for it, and never while there is none. What is known
when the next run is planned then does not hang on how long a killed lab was away."""


EVENTS = """\
import json, sys
_parameters = json.load(open(sys.argv[sys.argv.index("--params") + 1]))
if _parameters["crash"] == "more":
    sys.exit("boom: out of luck")
if _parameters["hang"] == "yes":
    print("loss: nan\\n" * 5, flush=True)
    time.sleep(600)
"""
"""Put before it in an eventful night: a second way to crash, and a run that loses its loss and then hangs."""

EVENTFUL: dict[str, Any] = {
    "space": {
        "lr": {"levels": [0.01], "tier": 2},
        "crash": {"levels": ["yes", "more"], "tier": 1},
        "hang": {"levels": ["yes"], "tier": 1},
    },
    "approvals": {
        "plan": {"policy": "ask-with-default", "deadline": "0.5s"},
        "repeated_failure": {"policy": "ask-with-default", "deadline": "0.1s"},
        "spend": "ask",
    },
    "search": {"baseline_replicates": 2, "confirm_candidates": 1, "confirm_seeds": 2},
    "failures": {"breaker": 2},
    "watchdog": {"every": "0.1s"},
    "prices": {"run_usd": 1.0},
    "notify": {"targets": ["env:TORTURE_TARGET"]},
}
"""A night in which everything happens: a job hangs, a factor's runs all crash, the plan and what to do about the
crashes are asked with a deadline that passes, and a person is asked whether more may be spent."""
SOFT_LIMIT_USD = 7.0
"""Reached once both ways to crash were tried: the breaker comes first (see `damage.MOMENTS`)."""


def response(parameters: Mapping[str, Scalar], seed: int) -> float:
    """What the task's training script prints for a configuration and a seed."""
    names = ("lr", "width", "color")
    loss = (
        2.0 - 0.20 * (parameters["lr"] == 0.01) + 0.30 * (parameters["lr"] == 0.1) - 0.15 * (parameters["width"] == 64)
    )
    noise = random.Random(json.dumps([*(parameters[name] for name in names), seed]))  # noqa: S311
    return float(f"{loss + noise.gauss(0.0, 0.01):.6f}")


class Task:
    """One training repository with its study, and the place of everything a test reads from it.

    With a `target` for notifications, an Apprise address, its night is eventful.
    """

    def __init__(
        self,
        folder: Path,
        *,
        slots: int = 1,
        seconds: float = 0.0,
        runs: int = 30,
        gated: bool = False,
        target: str | None = None,
    ) -> None:
        self.folder = folder.resolve()
        self.root = self.folder / "repository"
        self.notes = self.folder / "executions"
        self.temporary = self.folder / "tmp"
        self.output = self.folder / "output"
        self.gate = self.folder / "gate"
        self.cut = self.folder / "cut.json"
        """When the machine is to die; see `deadly_runner`."""
        self.temporary.mkdir(parents=True)
        self.target = target
        data = study_data()
        parameters = data["parameters"] | {"seconds": seconds} | ({"hang": "no"} if target else {})
        backend = data["backend"] | {"slots": slots}
        budget: dict[str, Any] = {"runs": runs} | ({"ask_above_cost_usd": SOFT_LIMIT_USD} if target else {})
        more = EVENTFUL if target else {}
        self.file = make_repository(self.root, backend=backend, parameters=parameters, budget=budget, **more)
        (self.root / "params.json").write_text(json.dumps(parameters, indent=2) + "\n")
        self.paths = StudyPaths(self.root, data["study"])
        before = NOTE.format(notes=str(self.notes), mark=MARK)
        if gated:
            before += GATE.format(gate=str(self.gate), mark=MARK, logs=str(self.paths.logs))
        if target:
            before += EVENTS
        (self.root / "train.py").write_text(before + TRAIN)
        self.head = commit_all(self.root, "note executions")

    @property
    def environment(self) -> dict[str, str]:
        # A folder of its own: what a killed lab leaves among the system's temporary files is left over, too.
        own = {"TMPDIR": str(self.temporary), "PYTHONWARNINGS": "default"}
        return own | ({"TORTURE_TARGET": self.target} if self.target else {})

    def asked(self) -> str | None:
        """The question for whose answer its lab has ended, if that is why it has."""
        if not self.paths.ledger.exists():
            return None
        with Ledger.open(self.paths.ledger) as ledger:
            if not ledger.has_study() or ledger.study_row().status is not StudyStatus.WAITING:
                return None
            return next(question.id for question in ledger.questions(open_only=True) if question.deadline is None)

    def executions(self) -> list[str]:
        """The job folder of every execution, dry runs too, in the order they began."""
        return self.notes.read_text().splitlines() if self.notes.exists() else []

    def start(self, *words: str) -> subprocess.Popen[str]:
        """`nightlab run` as a person starts it, a process of its own."""
        with self.output.open("a") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "nightlab", *(words or ("run", str(self.file)))],
                cwd=self.root,
                env=os.environ | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                text=True,
                start_new_session=True,
            )

    def said(self) -> str:
        """All that its labs have printed so far."""
        return self.output.read_text(errors="replace") if self.output.exists() else ""


class Nursery:
    """Forks labs from a process that has loaded nightlab already; see `bootstrap`."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(BOOTSTRAP)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _t: TracebackType | None) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def start(
        self, task: Task, fault: Fault | None = None, *words: str, counts: Path | None = None
    ) -> psutil.Process | None:
        """Start a lab (or another command, of these words), which must have ended before the next is started; None when
        it has ended already."""
        order = {
            "arguments": words or ["run", str(task.file)],
            "folder": str(task.root),
            "output": str(task.output),
            "environment": task.environment,
            "gate": str(task.gate),
            "fault": fault,
            "counts": str(counts) if counts else None,
            "runner": str(DEADLY_RUNNER) if task.cut.exists() else None,
        }
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return _process(int(self.process.stdout.readline()))

    def wait(self, lab: psutil.Process | None) -> int:
        """The exit status of the lab that was started last, negative for a signal."""
        assert self.process.stdout
        deadline = time.monotonic() + LONGEST_SECONDS
        while lab is not None and _is_alive(lab):
            if time.monotonic() > deadline:
                lab.kill()
                self.process.stdout.readline()
                return HUNG
            time.sleep(0.005)
        return int(self.process.stdout.readline())

    def run(self, task: Task, fault: Fault | None = None, *words: str, counts: Path | None = None) -> int:
        """One lab, or another command, from its start to its end; returns its exit status, negative for a signal."""
        return self.wait(self.start(task, fault, *words, counts=counts))

    def proceed(self, task: Task, fault: Fault | None = None, *, counts: Path | None = None) -> int:
        """Labs one after the other, and a person who answers `yes` to what they ask, until one is killed or fails, or
        the night is over; every command is open to the fault."""
        while True:
            status = self.run(task, fault, counts=counts)
            if status or (asked := task.asked()) is None:
                return status
            answer = ("answer", asked, "yes", "--by", "me", "--study", str(task.file))
            if status := self.run(task, fault, *answer, counts=counts):
                return status


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def family(task: Task) -> list[psutil.Process]:
    """Every process that belongs to the task's labs or jobs: by its job's mark, its words or its folder."""
    return [process for process in psutil.process_iter() if process.pid != os.getpid() and _belongs(process, task)]


def _belongs(process: psutil.Process, task: Task) -> bool:
    place = str(task.folder)
    try:
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return (
            process.environ().get("TMPDIR") == str(task.temporary)
            or place in " ".join(process.cmdline())
            or process.cwd().startswith(place)
        )
    except (psutil.Error, OSError):
        return False


def kill_family(processes: Iterable[psutil.Process]) -> int:
    """SIGKILL to all of them at once, as a power cut does; returns how many there were."""
    stopped = []
    # First none may go on: a lab that sees its job die would write that down.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
                stopped.append(process.pid)
    return len(set(stopped))
