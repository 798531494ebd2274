"""`kill -9` in the middle of a night: what is finished stays, nothing is done twice, the end is the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import StudyBusyError
from nightlab.graph.opening import locate
from nightlab.graph.process import hold_study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import Lesson, RunState, StudyStatus, VerdictKind
from nightlab.night import run_night
from tests.agents.lab import new_lab
from tests.task import git, make_repository, study_data


def twice(file: Path) -> list[object]:
    """Everything of the story that was told, learnt or committed again without anything new in it."""
    found: list[object] = []
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        told = Counter((e.kind, e.number, e.text) for e in ledger.events() if e.kind in ("submitted", "measured"))
        found += [event for event, times in told.items() if times > 1]
        experiments = ledger.experiments()
    by_branch: dict[str, list[Lesson]] = {}
    for lesson in read(locate(load_study(file)).paths.lessons).lessons:
        by_branch.setdefault(lesson.evidence["branch"], []).append(lesson)
    for lessons in by_branch.values():
        found += [late for early, late in pairwise(lessons) if (early.label, early.effect) == (late.label, late.effect)]
    for experiment in experiments:
        commits = git(file.parent, "rev-list", f"main..{experiment.branch}").split()
        found += [commit for commit in commits if not git(file.parent, "diff", "--name-only", f"{commit}^", commit)]
        facts = [facts_of(file.parent, commit) for commit in commits]
        found += [commit for commit, now, then in zip(commits, facts, facts[1:], strict=False) if now == then]
    return found


def facts_of(root: Path, commit: str) -> object:
    """What the result card in a commit tells: how each run ended, and what is believed on how many of them."""
    if "RESULT.json" not in git(root, "ls-tree", "--name-only", commit).split():
        return commit
    card = json.loads(git(root, "show", f"{commit}:RESULT.json"))
    verdict, effect = card["verdict"] or {}, (card["verdict"] or {}).get("effect") or {}
    belief = [verdict.get(name) for name in ("kind", "label", "basis")]
    belief += [effect.get(name) for name in ("runs", "paired", "confidence")]
    return [[one["run"][name] for name in ("seed", "attempt", "state")] for one in card["runs"]], belief


def test_killed_around_its_commits_the_night_ends_as_if_nothing_had_happened(
    tmp_path: Path,
) -> None:
    # What is tried next depends on what is known, and a lab that was dead meanwhile knows more: nights differ.
    small = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_candidates": 1}
    changes = {"backend": study_data()["backend"] | {"slots": 1}, "search": small, "budget": {"runs": 14}}
    study, counter = make_repository(tmp_path / "rough", **changes), tmp_path / "count"

    environment = {**os.environ, "RUN_COUNTER": str(counter)}
    command = [sys.executable, "-m", "tests.graph.killing", str(study), "9"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 12, "killed often enough to mean something"

    paths = locate(load_study(study)).paths
    with Ledger.open(paths.ledger) as ledger:
        runs, jobs, verdicts = ledger.runs(), ledger.jobs(), ledger.verdicts()
        assert ledger.study_row().status is StudyStatus.FINISHED
        tried = {experiment.branch for experiment in ledger.experiments() if experiment.changed}
        card_commits = {e.branch: e.card_commit for e in ledger.experiments()}
    assert {run.state for run in runs} <= {RunState.REVIEWED, RunState.FAILED} and len(runs) <= 14
    assert VerdictKind.KEEP in {verdict.kind for verdict in verdicts.values()}
    assert sorted(job.key for job in jobs) == sorted(run.key for run in runs), "nothing lost"
    assert twice(study) == []
    good = sum(run.state is RunState.REVIEWED for run in runs)
    # A preflight killed before the study began is made again; no run is.
    assert 1 <= len(counter.read_text().splitlines()) - good <= 4
    assert {lesson.evidence["branch"] for lesson in read(paths.lessons).lessons} == tried
    heads = git(study.parent, "for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/experiment-*")
    assert dict(line.split() for line in heads.splitlines()) == card_commits
    assert paths.final_report_html.exists()
    assert git(study.parent, "status", "--porcelain") == ""
    assert len(git(study.parent, "worktree", "list").splitlines()) == 1


def test_a_second_lab_is_refused(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab, hold_study(lab.paths):
        with pytest.raises(StudyBusyError, match=f"is being run by process {os.getpid()} already"):
            run_night(lab.study_file, say=lambda _: None)
        assert lab.ledger.runs() == []
