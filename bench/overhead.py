"""What the lab itself costs: start-up, a turn of the supervisor, its checkpoints, idle slots.

`python -m bench.overhead` prints a table and writes it to `bench/results/overhead.md`. No network, a few minutes.
"""

from __future__ import annotations

import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from bench.ledgers import long_night
from nightlab.configs.loading import load_study
from nightlab.graph.budget import history_now
from nightlab.graph.driver import run_lab
from nightlab.graph.opening import locate, open_lab
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Job, JobState
from nightlab.night import run_night
from nightlab.report.timeline import build_timeline
from nightlab.search.engine import propose
from nightlab.tools.backends.base import JobSpec, JobStatus
from tests.task import make_repository, study_data

RESULTS = Path(__file__).with_name("results") / "overhead.md"
PACKAGES = ("langgraph", "langgraph-checkpoint-sqlite", "sqlalchemy", "pydantic", "gitpython")
SIZES = (50, 300, 1000)
TURNS = 200
Row = tuple[str, str]


class Clock:
    """Wall and CPU time since it was made; the second hardly depends on what else the machine does."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def milliseconds(self, times: int = 1) -> str:
        wall, cpu = (1000 * (now - then) / times for now, then in self._pairs())
        return f"{cpu:.0f} ms CPU, {wall:.0f} ms wall"

    def _pairs(self) -> tuple[tuple[float, float], ...]:
        return (time.perf_counter(), self.wall), (time.process_time(), self.cpu)


class BusyBackend:
    """Two slots whose jobs never end, so that a turn of the loop has nothing to do but look."""

    name = "busy"
    slots = 2

    def __init__(self) -> None:
        self.turns = 0
        self.began = Clock()

    def submit(self, spec: JobSpec) -> str:
        return spec.key

    def find(self, _key: str, _directory: Path) -> str | None:
        return None

    def poll(self, directories: Mapping[str, Path]) -> dict[str, JobStatus]:
        return {key: JobStatus(JobState.RUNNING) for key in directories}

    def wait(self, _directories: Mapping[str, Path], _seconds: float) -> bool:
        """Says at once that a job ended; counting starts with the second turn, when the slots are full."""
        self.turns += 1
        if self.turns == 1:
            self.began = Clock()
        return True

    def cancel(self, _directories: Mapping[str, Path]) -> list[str]:
        return []


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="nightlab-bench-") as folder:
        rows = [command_row(), *(row for size in SIZES for row in size_rows(Path(folder), size))]
        rows += [*start_rows(Path(folder)), *night_rows(Path(folder), 1.0), *night_rows(Path(folder), 5.0)]
    text = page(rows)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text)
    print(text)


def command_row() -> Row:
    bare = min(cpu_seconds([sys.executable, "-c", "pass"]) for _ in range(5))
    ours = min(cpu_seconds([sys.executable, "-m", "nightlab", "--help"]) for _ in range(5))
    return "`nightlab --help`, CPU beyond the bare interpreter", f"{ours - bare:.2f} s"


def size_rows(folder: Path, size: int) -> list[Row]:
    """A study of `size` experiments: its turns, its planning, its checkpoints."""
    loaded = load_study(long_night(folder / str(size), size))
    place, backend = locate(loaded), BusyBackend()
    with open_lab(place, loaded.study, stop_requested=lambda: backend.turns > TURNS) as lab:
        lab.backend = backend
        run_lab(lab)
        turn = backend.began.milliseconds(TURNS)
        seconds = best_of(lambda: propose(lab.study, history_now(lab), 0))
        reading = best_of(lambda: history_now(lab))
    kilobytes = sum(path.stat().st_size for path in place.paths.folder.glob("checkpoints.sqlite*")) / 1024
    return [
        (f"a turn with all slots busy, {size} experiments", turn),
        (f"planning anew, {size} experiments", f"{1000 * seconds:.0f} ms CPU, {1000 * reading:.0f} ms of it reading"),
        (f"checkpoints after {TURNS} turns, {size} experiments", f"{kilobytes:.0f} KiB"),
    ]


def start_rows(folder: Path) -> list[Row]:
    size = SIZES[-1]
    loaded = load_study(folder / str(size) / "study.yaml")
    place, backend = locate(loaded), BusyBackend()
    began = Clock()
    with open_lab(place, loaded.study, stop_requested=lambda: backend.turns > 0) as lab:
        lab.backend = backend
        run_lab(lab)
    opening = began.milliseconds()
    finished = long_night(folder / "finished", size, finished=True)
    again = min(cpu_seconds([sys.executable, "-m", "nightlab", "run", str(finished)]) for _ in range(3))
    return [
        (f"opening a study of {size} experiments, to the end of the first turn", opening),
        (f"`nightlab run` of a finished study of {size} experiments, CPU", f"{again:.1f} s"),
    ]


@dataclass(frozen=True)
class Night:
    jobs: list[Job]
    utilisation: float
    cpu_seconds: float


def night_rows(folder: Path, seconds: float) -> list[Row]:
    """A real night whose runs sleep for `seconds`: how much of the slots' time a job was on them."""
    parameters = study_data()["parameters"] | {"seconds": seconds}
    file = make_repository(folder / f"night-{seconds}", parameters=parameters, budget={"runs": 24})
    before = cpu_now()
    run_night(file, say=lambda _: None)
    used = cpu_now() - before
    study = load_study(file)
    with Ledger.open(locate(study).paths.ledger) as ledger:
        jobs = ledger.jobs()
        timeline = build_timeline(jobs, ledger.runs(), study.study.backend.slots, None)
    assert timeline.utilisation is not None
    gap = statistics.median(gaps(jobs))
    return [
        (f"slot utilisation, {len(jobs)} runs of {seconds:g} s on 2 slots", f"{100 * timeline.utilisation:.1f} %"),
        (f"median gap between two jobs of a slot, runs of {seconds:g} s", f"{1000 * gap:.0f} ms"),
        (f"CPU of the lab and its git processes a run, runs of {seconds:g} s", f"{used / len(jobs):.2f} s"),
    ]


def gaps(jobs: list[Job]) -> list[float]:
    """Seconds between the end of a job and the start of the next one on its slot."""
    found = []
    for slot in {job.slot for job in jobs}:
        ordered = sorted((job.started_at, job.ended_at) for job in jobs if job.slot == slot and job.started_at)
        found += [(later[0] - earlier[1]).total_seconds() for earlier, later in pairwise(ordered) if earlier[1]]
    return found


def cpu_seconds(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cpu_now() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def best_of(call: Callable[[], object], repeats: int = 5) -> float:
    """CPU seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        began = time.process_time()
        call()
        times.append(time.process_time() - began)
    return min(times)


def page(rows: list[Row]) -> str:
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    load = os.getloadavg()[1]
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores (load {load:.1f}), {platform.system()}"
    head = [
        "# What the lab itself costs",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {machine}; {packages}.",
        "Gaps and utilisation are wall time and grow with the machine's load; `make bench` measures again.",
        "",
        "| what | figure |",
        "|---|---|",
    ]
    return "\n".join([*head, *(f"| {what} | {figure} |" for what, figure in rows)]) + "\n"


if __name__ == "__main__":
    main()
