"""What must be true of a night that was killed and taken up again; each breach is named with its kind."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from nightlab.configs.paths import JobPaths
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read as read_lessons
from nightlab.knowledge.records import (
    Experiment,
    Job,
    JobState,
    Lesson,
    Question,
    Run,
    RunState,
    StudyStatus,
    Verdict,
    VerdictKind,
)
from nightlab.knowledge.restoring import salvage
from tests.task import git
from tests.torture.nights import Task, family, response

__all__ = ["Breach", "Night", "compare", "examine", "unchanged"]

LAST_PROCESSES_SECONDS = 15.0


class Breach(NamedTuple):
    kind: str
    """`lost`, `doubled`, `left over` or `wrong`."""
    what: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}"


@dataclass(frozen=True)
class Night:
    """All that a finished night has left: records, branches, files."""

    task: Task
    status: StudyStatus
    experiments: dict[int, Experiment]
    runs: list[Run]
    jobs: dict[str, Job]
    values: dict[str, float]
    verdicts: dict[int, list[Verdict]]
    events: Counter[tuple[str, int | None, str]]
    questions: list[Question]
    told: dict[str, datetime]
    """Notices that the ledger says were delivered, with their times."""
    reserved_runs: int
    settled_runs: int
    wall_seconds: float
    lessons: tuple[Lesson, ...]
    lesson_lines: int
    history: dict[str, list[str]]
    """Branch → the trees of its commits, newest first."""
    cards: dict[str, str | None]
    """Branch → its result card."""
    executions: list[str]
    """The job folder of every training command that ran, dry runs too."""
    files: set[str]
    """Everything in the runtime folder, process ids left out."""

    @classmethod
    def of(cls, task: Task) -> Night:
        with Ledger.open(task.paths.ledger) as ledger:
            experiments = {experiment.number: experiment for experiment in ledger.experiments()}
            totals = ledger.spend_totals()
            metric = ledger.study_row().study.objective.metric
            lessons = read_lessons(task.paths.lessons)
            assert not lessons.skipped and not lessons.torn
            return cls(
                task=task,
                status=ledger.study_row().status,
                experiments=experiments,
                runs=ledger.runs(),
                jobs={job.key: job for job in ledger.jobs()},
                values={observation.key: observation.values[metric] for observation in ledger.observations()},
                verdicts={number: ledger.verdict_history(number) for number in experiments},
                events=Counter((event.kind, event.number, event.text) for event in ledger.events()),
                questions=ledger.questions(),
                told=dict(salvage(task.paths.ledger).told),
                reserved_runs=totals.runs,
                settled_runs=totals.settled_runs,
                wall_seconds=totals.wall_seconds,
                lessons=lessons.lessons,
                lesson_lines=len(_lines(task.paths.lessons)),
                history={branch: _trees(task, branch) for branch in _branches(task)},
                cards={e.branch: _card(task, e.branch) for e in experiments.values()},
                executions=task.executions(),
                files=_files(task),
            )


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _branches(task: Task) -> list[str]:
    return [name for name in git(task.root, "branch", "--format=%(refname:short)").splitlines() if name != "main"]


def _trees(task: Task, branch: str) -> list[str]:
    return git(task.root, "log", "--format=%T", f"main..{branch}").splitlines()


def _card(task: Task, branch: str) -> str | None:
    names = git(task.root, "ls-tree", "--name-only", branch).splitlines()
    return git(task.root, "show", f"{branch}:RESULT.json") if "RESULT.json" in names else None


def _files(task: Task) -> set[str]:
    runtime = task.paths.runtime
    return {str(path.relative_to(runtime)) for path in runtime.rglob("*")}


def examine(night: Night) -> list[Breach]:
    """What is wrong with a night taken for itself."""
    checks = (
        _records,
        _budget,
        _executions,
        _story,
        _lessons,
        _branches_and_cards,
        _checkout,
        _leftovers,
        _processes,
    )
    return [breach for check in checks for breach in check(night)]


def _records(night: Night) -> Iterator[Breach]:
    if night.status is not StudyStatus.FINISHED:
        yield Breach("lost", f"the study is {night.status}, not finished")
    ends = (RunState.REVIEWED, RunState.FAILED)
    for run in night.runs:
        if run.state not in ends:
            yield Breach("lost", f"run {run.key} is {run.state}")
        if run.state is RunState.REVIEWED:
            expected = response(night.experiments[run.number].parameters, run.seed)
            if night.values.get(run.key) != expected:
                yield Breach("wrong", f"run {run.key} has value {night.values.get(run.key)}, not {expected}")
        if run.state is RunState.FAILED and run.cause != "lost" and not _crashes(night, run):
            yield Breach("wrong", f"run {run.key} failed: {run.cause}, {run.detail}")
    for experiment in night.experiments.values():
        if experiment.number and not night.verdicts[experiment.number]:
            yield Breach("lost", f"experiment {experiment.number:02d} has no verdict")
    for key, job in night.jobs.items():
        if job.state not in (JobState.ENDED, JobState.LOST):
            yield Breach("left over", f"job {key} is {job.state}")


def _crashes(night: Night, run: Run) -> bool:
    parameters = night.experiments[run.number].parameters
    return parameters["crash"] != "no" or parameters.get("hang") == "yes"


def _budget(night: Night) -> Iterator[Breach]:
    if night.reserved_runs != len(night.runs):
        yield Breach("wrong", f"the budget counts {night.reserved_runs} runs, there are {len(night.runs)}")
    if night.settled_runs != len(night.runs):
        yield Breach("wrong", f"{night.settled_runs} of {len(night.runs)} runs are settled")
    of_jobs = sum(job.wall_seconds or 0.0 for job in night.jobs.values())
    if abs(of_jobs - night.wall_seconds) > 1e-6:
        yield Breach("wrong", f"{night.wall_seconds} s are booked, the jobs took {of_jobs} s")


def _executions(night: Night) -> Iterator[Breach]:
    """Every training command ran once a run; dry runs apart, whose folder is not among the study's logs."""
    logs = str(night.task.paths.logs)
    executed = Counter(line for line in night.executions if line.startswith(logs))
    for run in night.runs:
        times = executed.pop(str(_directory(night, run)), 0)
        if times > 1:
            yield Breach("doubled", f"run {run.key} was executed {times} times")
        if not times and run.cause != "lost":
            yield Breach("lost", f"run {run.key} was never executed")
    for stranger in executed:
        yield Breach("doubled", f"{stranger} was executed for no run")


def _directory(night: Night, run: Run) -> Path:
    job = night.jobs.get(run.key)
    return Path(job.directory) if job else night.task.paths.job(run.number, run.seed, run.attempt).directory


def _story(night: Night) -> Iterator[Breach]:
    """Every event once: one submission and one end a run, one verdict event a verdict."""
    per_run = Counter(kind for kind, _, _ in night.events.elements())
    for kind, expected in {
        "started": 1,
        "planned": sum(run.attempt == 1 for run in night.runs),
        "finished": 1,
        "design": 1,
        "submitted": len(night.runs),
        "measured": len(night.values),
        "failed": sum(run.state is RunState.FAILED for run in night.runs),
        "verdict": sum(map(len, night.verdicts.values())),
    }.items():
        if per_run[kind] != expected:
            word = "doubled" if per_run[kind] > expected else "lost"
            yield Breach(word, f"{per_run[kind]} events {kind!r} instead of {expected}")
    for history in night.verdicts.values():
        told = [verdict.model_dump(exclude={"decided_at"}) for verdict in history]
        for before, after in pairwise(told):
            if before == after:
                yield Breach("doubled", f"verdict on experiment {before['number']:02d}: {before['label']}")


def _lessons(night: Night) -> Iterator[Breach]:
    if night.lesson_lines != len(night.lessons):
        yield Breach("doubled", f"{night.lesson_lines} lines of {len(night.lessons)} lessons")
    told: dict[str, list[Lesson]] = {}
    for lesson in night.lessons:
        told.setdefault(lesson.evidence["experiment"], []).append(lesson)
    for number, history in night.verdicts.items():
        lessons = told.pop(f"{number:02d}", [])
        if number and not lessons:
            yield Breach("lost", f"the lesson of experiment {number:02d}")
        # A move from an incumbent that is no win teaches what the moved variable did, which may be another verdict.
        whole = len(night.experiments[number].changed) <= 1 or history[-1].kind is VerdictKind.KEEP
        if whole and lessons and (lessons[-1].verdict, lessons[-1].label) != (history[-1].kind, history[-1].label):
            yield Breach("lost", f"the last lesson of experiment {number:02d} does not tell its verdict")
        for before, after in pairwise(lessons):
            if after.supersedes != [before.id]:
                yield Breach("doubled", f"lesson {after.id} of experiment {number:02d} supersedes none")
    for stranger in told:
        yield Breach("doubled", f"a lesson of experiment {stranger}, which there is not")


def _branches_and_cards(night: Night) -> Iterator[Breach]:
    branches = {e.branch for e in night.experiments.values() if e.commit}
    for missing in branches - night.history.keys():
        yield Breach("lost", f"branch {missing}")
    for stranger in night.history.keys() - branches:
        yield Breach("left over", f"branch {stranger}")
    for branch, trees in night.history.items():
        if len(set(trees)) != len(trees):
            yield Breach("doubled", f"a commit on {branch}")
    for experiment in night.experiments.values():
        yield from _card_breaches(night, experiment)


def _card_breaches(night: Night, experiment: Experiment) -> Iterator[Breach]:
    card = night.cards[experiment.branch]
    if card is None:
        yield Breach("lost", f"the result card of {experiment.branch}")
        return
    told = json.loads(card)
    runs = {run.key: run.state.value for run in night.runs if run.number == experiment.number}
    if {entry["run"]["key"]: entry["run"]["state"] for entry in told["runs"]} != runs:
        yield Breach("lost", f"the result card of {experiment.branch} does not tell all its runs")
    history = night.verdicts[experiment.number]
    kind = history[-1].kind.value if history else None
    if (told["verdict"] or {}).get("kind") != kind:
        yield Breach("wrong", f"the result card of {experiment.branch} does not tell its verdict {kind}")
    tip = git(night.task.root, "rev-parse", experiment.branch)
    if experiment.card_commit != tip:
        yield Breach("wrong", f"the ledger does not know the tip of {experiment.branch}")


def _checkout(night: Night) -> Iterator[Breach]:
    root = night.task.root
    if git(root, "status", "--porcelain") or git(root, "rev-parse", "--abbrev-ref", "HEAD") != "main":
        yield Breach("wrong", "the user's checkout was touched")
    if git(root, "rev-parse", "main") != night.task.head or git(root, "stash", "list"):
        yield Breach("wrong", "the user's branch or stash was touched")
    faults = [line for line in git(root, "fsck", "--strict").splitlines() if not line.startswith("dangling")]
    if faults:
        yield Breach("wrong", f"git fsck: {faults[0]}")


def _leftovers(night: Night) -> Iterator[Breach]:
    task = night.task
    for row in git(task.root, "worktree", "list").splitlines()[1:]:
        yield Breach("left over", f"worktree {row}")
    for folder in (task.paths.worktrees, task.root / ".git" / "worktrees", task.temporary):
        for path in folder.iterdir() if folder.is_dir() else ():
            yield Breach("left over", str(path))
    for lock in (task.root / ".git").rglob("*.lock"):
        yield Breach("left over", str(lock))
    for name in sorted(night.files):
        if name.endswith((".tmp", "lab.json", "-journal")):
            yield Breach("left over", name)
    for ref in git(task.root, "for-each-ref", "--format=%(refname)").splitlines():
        if not ref.startswith("refs/heads/"):
            yield Breach("left over", ref)
    for run in night.runs:
        if not JobPaths(_directory(night, run)).result.exists() and run.cause != "lost":
            yield Breach("lost", f"the result of {run.key}")


def _processes(night: Night) -> Iterator[Breach]:
    """The last git process of a killed lab may still be ending."""
    deadline = time.monotonic() + LAST_PROCESSES_SECONDS
    while (left := family(night.task)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for process in left:
        yield Breach("left over", f"process {process.pid}: {' '.join(process.cmdline())}")


def compare(night: Night, calm: Night) -> list[Breach]:
    """How a night differs from an undisturbed one with the same seed and one slot: it may not."""
    return list(_differences(night, calm))


def _differences(night: Night, calm: Night) -> Iterator[Breach]:
    for what, mine, theirs in (
        ("experiments", _experiments(night), _experiments(calm)),
        ("runs", _runs(night), _runs(calm)),
        ("verdicts", _verdicts(night), _verdicts(calm)),
        ("events", _events(night), _events(calm)),
        ("questions", _questions(night), _questions(calm)),
        ("lessons", _told(night), _told(calm)),
        ("commits", _commits(night), _commits(calm)),
        ("files", _names(night), _names(calm)),
    ):
        for missing in (theirs - mine).elements():
            yield Breach("lost", f"{what}: {missing}")
        for extra in (mine - theirs).elements():
            yield Breach("left over" if what == "files" else "doubled", f"{what}: {extra}")


def _experiments(night: Night) -> Counter[str]:
    return Counter(f"{e.number:02d} {e.branch} {_json(e.parameters)} {e.state}" for e in night.experiments.values())


def _runs(night: Night) -> Counter[str]:
    return Counter(f"{r.key} {r.phase} {r.state} {r.cause} {night.values.get(r.key)}" for r in night.runs)


def _verdicts(night: Night) -> Counter[str]:
    last = [history[-1] for history in night.verdicts.values() if history]
    return Counter(_json(verdict.model_dump(mode="json", exclude={"decided_at"})) for verdict in last)


def _events(night: Night) -> Counter[str]:
    # The base commit, in the first event, holds its own time.
    told = {event: times for event, times in night.events.items() if event[0] != "started"}
    return Counter({f"{kind} {number} {text}": times for (kind, number, text), times in told.items()})


def _questions(night: Night) -> Counter[str]:
    return Counter(f"{q.id} ({q.kind}): {q.text} {q.answer}, by {q.answered_by}" for q in night.questions)


def _commits(night: Night) -> Counter[str]:
    return Counter({branch: len(trees) for branch, trees in night.history.items()})


def _told(night: Night) -> Counter[str]:
    last = {lesson.evidence["experiment"]: lesson for lesson in night.lessons}
    return Counter(f"{n} {one.verdict} {one.label} {one.cause} {one.effect}" for n, one in last.items())


def _names(night: Night) -> Counter[str]:
    # SQLite keeps its journals while a reader is there.
    return Counter(name for name in night.files if not name.endswith(("-wal", "-shm")))


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, sort_keys=True)


def unchanged(before: Night, after: Night) -> list[Breach]:
    """A further `run` of a finished study changes nothing."""
    same = (
        before.runs == after.runs
        and before.experiments == after.experiments
        and before.events == after.events
        and before.verdicts == after.verdicts
        and before.lessons == after.lessons
        and before.history == after.history
        and before.executions == after.executions
    )
    return [] if same else [Breach("doubled", "a further run changed a finished study")]
