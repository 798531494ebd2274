"""What branches and job folders tell of a study whose ledger is lost: every experiment, every run that was started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from nightlab.agents.cards import CARD, CONFIGURATION, Entry
from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.errors import GitError
from nightlab.knowledge.records import Experiment, Idea, Job, Observation, Run, RunState, StudyRow, Verdict
from nightlab.worktrees.git import Git
from nightlab.worktrees.names import BRANCH_PREFIX
from nightlab.worktrees.trees import TRAILER

__all__ = [
    "ENDED",
    "Branch",
    "Submission",
    "ended_on_card",
    "read_branches",
    "read_study",
    "read_submissions",
    "without_branch",
    "write_study",
    "write_submission",
]

ENDED = frozenset({RunState.REVIEWED, RunState.REJECTED, RunState.FAILED, RunState.PRUNED, RunState.CANCELLED})
"""Ends of a run; every other state is on the way to one."""


class Submission(BaseModel):
    """`run.json`: a run as it was when its job was about to start."""

    experiment: Experiment
    run: Run
    job: Job


@dataclass(frozen=True)
class Branch:
    """One experiment as its branch tells it."""

    experiment: Experiment
    """With the commits; its state is for the reader to find out."""
    entries: tuple[Entry, ...] = ()
    """The runs of its result card; their jobs lack folder and tree."""
    verdict: Verdict | None = None
    ideas: tuple[Idea, ...] = ()
    """The code ideas it applies."""


def write_study(paths: StudyPaths, row: StudyRow) -> None:
    """Keep the study's row beside the ledger: no branch tells it."""
    write_atomically(paths.card, row.model_dump_json(indent=2) + "\n")


def read_study(paths: StudyPaths) -> StudyRow | None:
    """The study's row as it was kept last; None where there is none to be read."""
    try:
        return StudyRow.model_validate_json(paths.card.read_bytes())
    except (OSError, ValidationError):
        return None


def write_submission(experiment: Experiment, run: Run, job: Job) -> None:
    """Put beside the job what the ledger knows of it."""
    submission = Submission(experiment=experiment, run=run, job=job)
    write_atomically(JobPaths(Path(job.directory)).run, submission.model_dump_json(indent=2) + "\n")


def read_submissions(paths: StudyPaths) -> Iterator[tuple[JobPaths, Submission | None]]:
    """Every job folder with its submission: None where it cannot be read, or nothing was ever submitted in it."""
    for folder in paths.jobs:
        try:
            submission = Submission.model_validate_json(folder.run.read_bytes())
        except (OSError, ValidationError):
            yield folder, None
        else:
            # The repository may have moved since.
            job = submission.job.model_copy(update={"directory": str(folder.directory)})
            yield folder, submission.model_copy(update={"job": job})


def read_branches(git: Git, study: str) -> Iterator[tuple[str, Branch | None]]:
    """Every branch of the study's experiments by name; None for one that cannot be read."""
    for name, tip in sorted(git.branches(BRANCH_PREFIX).items()):
        configuration = _json(git, tip, CONFIGURATION)
        if configuration is not None and configuration.get("study") == study:
            try:
                yield name, _branch(git, name, tip, study, configuration)
            except (GitError, ValidationError, KeyError, TypeError):
                yield name, None


def without_branch(paths: StudyPaths, experiment: Experiment) -> Branch:
    """An experiment whose branch was deleted, from the copy of its result card; without one it is as it was started."""
    try:
        card = json.loads(paths.result_card(experiment.number).read_bytes())
        return _with_card(experiment, card if card["commit"] == experiment.commit else None)
    except (OSError, ValueError, KeyError, TypeError):
        return Branch(experiment)


def ended_on_card(git: Git, commit: str) -> set[str]:
    """Keys of the runs that the result card in `commit` says have ended; empty without a card."""
    card = _json(git, commit, CARD) or {}
    runs = [entry["run"] for entry in card.get("runs", ()) if isinstance(entry, dict) and "run" in entry]
    return {str(run.get("key")) for run in runs if run.get("state") in ENDED}


def _branch(git: Git, name: str, tip: str, study: str, configuration: dict[str, Any]) -> Branch:
    commits = _commits(git, configuration["base_commit"], tip, study)
    if not commits:
        raise GitError(f"branch {name}: none of its commits carries the mark of {study}")
    last = commits[-1]
    # The last one without a result: an idea may have been amended after its first run failed.
    first = next((one for one in reversed(commits) if _json(git, one, CARD) is None), commits[0])
    # Only what the lab committed counts: somebody may have worked on the branch since.
    own = _json(git, first, CONFIGURATION) or {}
    fields = {key: own[key] for key in Experiment.model_fields if key in own}
    card = _json(git, last, CARD)
    experiment = Experiment.model_validate(
        fields | {"number": own["experiment"], "branch": name, "commit": first, "card_commit": last if card else None}
    )
    ideas = tuple(Idea.model_validate(idea) for idea in own.get("ideas", ()))
    return replace(_with_card(experiment, card), ideas=ideas)


def _with_card(experiment: Experiment, card: dict[str, Any] | None) -> Branch:
    if card is None:
        return Branch(experiment)
    verdict = Verdict.model_validate(card["verdict"]) if card["verdict"] else None
    return Branch(experiment, tuple(_entry(entry) for entry in card["runs"]), verdict)


def _commits(git: Git, base: str, tip: str, study: str) -> list[str]:
    """The study's own commits on the branch, oldest first."""
    form = f"--format=%H %(trailers:key={TRAILER},valueonly,separator=%x2C)"
    rows = git.line("log", "--reverse", form, f"{base}..{tip}").splitlines()
    return [commit for commit, _, owner in (row.partition(" ") for row in rows) if owner == study]


def _entry(entry: dict[str, Any]) -> Entry:
    job = entry["job"]
    return (
        Run.model_validate(entry["run"]),
        Job.model_validate(job | {"directory": "", "worktree": ""}) if job else None,
        Observation.model_validate(entry["observation"]) if entry["observation"] else None,
    )


def _json(git: Git, commit: str, path: str) -> dict[str, Any] | None:
    """A JSON object that `commit` holds at `path`; None where there is none."""
    try:
        content = json.loads(git.show_file(commit, path))
    except (GitError, ValueError):
        return None
    return content if isinstance(content, dict) else None
