"""Every path the lab uses on disk; nowhere else is one joined."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["JobPaths", "StudyPaths", "has_jobs"]

RUNTIME = ".nightlab"
LOGS = "logs"
JOB_FOLDER = re.compile(r"seed--?\d+-attempt-\d+")


def has_jobs(folder: Path) -> bool:
    """Whether experiments have been run in this study's folder, whatever its ledger says."""
    return any((folder / LOGS).glob("experiment-*"))


@dataclass(frozen=True)
class JobPaths:
    """The folder of one job, written by the job's own runner so that it outlives the lab."""

    directory: Path

    @property
    def spec(self) -> Path:
        return self.directory / "job.json"

    @property
    def run(self) -> Path:
        """The run with its experiment and its job as they were at the submission; written by the lab."""
        return self.directory / "run.json"

    @property
    def lock(self) -> Path:
        """Held with flock for as long as the job's runner lives."""
        return self.directory / "lock"

    @property
    def started(self) -> Path:
        return self.directory / "started.json"

    @property
    def result(self) -> Path:
        """Written atomically once, when the job has ended."""
        return self.directory / "result.json"

    @property
    def ended_by(self) -> Path:
        """Written before the lab ends a running job: why."""
        return self.directory / "ended_by.json"

    @property
    def curve(self) -> Path:
        """What the job reported step by step, kept when it has ended: its tree may be gone when others are compared."""
        return self.directory / "curve.json"

    @property
    def scores(self) -> Path:
        """What the lab scored itself: each metric's value, number of examples, interval over them and slices."""
        return self.directory / "scores.json"

    @property
    def bad_cases(self) -> Path:
        """The worst examples of each such metric, JSON objects a line."""
        return self.directory / "bad_cases.jsonl"

    @property
    def findings(self) -> Path:
        """What the run's own files show to be wrong with it, JSON; absent where that is nothing."""
        return self.directory / "findings.json"

    @property
    def stdout(self) -> Path:
        return self.directory / "stdout.log"

    @property
    def stderr(self) -> Path:
        return self.directory / "stderr.log"

    @property
    def output(self) -> Path:
        """The run's own output folder, `{output_dir}` in a command."""
        return self.directory / "output"


@dataclass(frozen=True)
class StudyPaths:
    """Where a study lives: `root` is the training repository's top folder, `study` the study's name."""

    root: Path
    study: str

    @property
    def runtime(self) -> Path:
        """`.nightlab/`, ignored through `.git/info/exclude`."""
        return self.root / RUNTIME

    @property
    def folder(self) -> Path:
        return self.runtime / self.study

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger.sqlite"

    @property
    def backups(self) -> tuple[Path, Path]:
        """The latest two copies of the ledger, the newer one first."""
        folder = self.folder / "backups"
        return folder / "ledger.sqlite", folder / "ledger-before.sqlite"

    @property
    def recovered(self) -> Path:
        """Where a lost ledger is rebuilt before it takes its place."""
        return self.folder / "recovered" / "ledger.sqlite"

    @property
    def card(self) -> Path:
        """The study's own row, as the ledger holds it: what no branch tells when the ledger is lost."""
        return self.folder / "study.json"

    @property
    def reserve(self) -> Path:
        """Room kept for the last records of a lab whose disk is full."""
        return self.folder / "reserve"

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints.sqlite"

    @property
    def lock(self) -> Path:
        """Held by the one lab that runs this study."""
        return self.folder / "lab.lock"

    @property
    def lab_process(self) -> Path:
        """JSON of the running lab's process: pid and start time."""
        return self.folder / "lab.json"

    @property
    def answer_key(self) -> Path:
        """What signs the links by which questions are answered; for its owner alone."""
        return self.folder / "answer.key"

    @property
    def replies(self) -> Path:
        """How far the replies to questions have been read."""
        return self.folder / "replies.json"

    @property
    def logs(self) -> Path:
        return self.folder / LOGS

    @property
    def results_csv(self) -> Path:
        return self.folder / "experiment_results.csv"

    @property
    def results_tsv(self) -> Path:
        """The table in autoresearch's five columns, where the study or a person wants it."""
        return self.folder / "results.tsv"

    @property
    def analysis_report(self) -> Path:
        return self.folder / "analysis_report.md"

    @property
    def improve_guide(self) -> Path:
        return self.folder / "improve_guide.md"

    @property
    def final_report_md(self) -> Path:
        return self.folder / "final_report.md"

    @property
    def final_report_html(self) -> Path:
        return self.folder / "final_report.html"

    @property
    def lessons(self) -> Path:
        """The default lessons file, shared by all studies of the repository."""
        return self.runtime / "lessons.jsonl"

    @property
    def worktrees(self) -> Path:
        return self.runtime / "worktrees" / self.study

    @property
    def schema(self) -> Path:
        """The study file's JSON Schema, for editors."""
        return self.runtime / "study.schema.json"

    @property
    def git_lock(self) -> Path:
        """Held around every change of branches and worktrees, for all studies of the repository."""
        return self.runtime / "git.lock"

    @property
    def git_children_lock(self) -> Path:
        """Held by the git processes a lab started, so that the next one waits for those a killed lab left behind."""
        return self.runtime / "git.children.lock"

    def worktree(self, number: int, *, replica: str | None = None) -> Path:
        """The tree of an experiment; `replica` names a further tree of the same commit, e.g. `seed-2`."""
        return self.worktrees / (f"experiment-{number:02d}" + (f".{replica}" if replica else ""))

    def experiment_logs(self, number: int) -> Path:
        return self.logs / f"experiment-{number:02d}"

    def result_card(self, number: int) -> Path:
        """A copy of the experiment's result card: its branch may be deleted."""
        return self.experiment_logs(number) / "RESULT.json"

    def comparison(self, number: int) -> Path:
        """A winner beside the baseline, example by example, where the lab scored both."""
        return self.experiment_logs(number) / "comparison.json"

    def job(self, number: int, seed: int, attempt: int) -> JobPaths:
        return JobPaths(self.experiment_logs(number) / f"seed-{seed}-attempt-{attempt}")

    def stress(self, number: int, check: str, repeat: int, attempt: int) -> JobPaths:
        """The job of one attempt at one repeat of a stress check."""
        return JobPaths(self.experiment_logs(number) / f"stress-{check}-{repeat}-attempt-{attempt}")

    @property
    def jobs(self) -> list[JobPaths]:
        """The folders of all jobs, those that never started included; not what was set aside."""
        folders = sorted(self.logs.glob("experiment-*/seed-*-attempt-*"))
        return [JobPaths(folder) for folder in folders if JOB_FOLDER.fullmatch(folder.name)]

    @property
    def dry_run(self) -> JobPaths:
        return JobPaths(self.logs / "dry-run")
