"""Questions, pause and the winner's branch, as a person meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Question, RunState, VerdictKind, utc_now
from tests.face.calling import call
from tests.face.gated import GatedStudy, wait_until
from tests.task import commit_all, git, make_repository

SHORT = {
    "search": {"baseline_replicates": 2, "confirm_seeds": 3, "confirm_candidates": 1},
    "space": {"lr": {"levels": [0.01]}},
    "budget": {"runs": 12},
}


def ledger_of(file: Path) -> Ledger:
    return Ledger.open(locate(load_study(file)).paths.ledger)


@pytest.fixture
def ended(tmp_path: Path) -> Path:
    """A finished study with a confirmed winner that asks whether to promote it."""
    file = make_repository(tmp_path / "repo", approvals={"winner": "ask"}, **SHORT)
    assert call(file.parent, "run").status == 0
    with ledger_of(file) as ledger:
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP
    return file


def test_the_winner_gets_its_branch_when_a_person_says_so(ended: Path) -> None:
    root, checkout = ended.parent, git(ended.parent, "rev-parse", "--abbrev-ref", "HEAD", "HEAD")
    shown = call(root, "inbox").out
    assert "winner-01 (winner, asked" in shown and "nightlab answer winner-01 leave|promote" in shown
    assert "  waits     nothing\n  default   leave, but never by itself\n" in shown
    branch = "nightlab/tiny/winner"
    assert branch not in git(root, "branch", "--list", branch)
    done = call(root, "answer", "winner-01", "promote", "--by", "ada")
    assert done.status == 0 and f"winner-01: promote. Now {branch} is at experiment 01" in done.out
    with ledger_of(ended) as ledger:
        assert git(root, "rev-parse", branch) == ledger.experiment(1).card_commit
        question = ledger.question("winner-01")
        assert question is not None and (question.answer, question.answered_by) == ("promote", "ada")
        answered = [event.text for event in ledger.events() if event.kind == "answered"]
    assert call(root, "answer", "winner-01", "promote").out == done.out, "a second time changes nothing"
    assert answered == ["winner-01: promote, by ada"]
    assert git(root, "rev-parse", "--abbrev-ref", "HEAD", "HEAD") == checkout and not git(root, "diff", "HEAD")
    assert "No question is open." in call(root, "inbox").out
    assert "answered  promote, by ada" in call(root, "inbox", "--all").out


def test_a_branch_with_somebodys_work_is_not_moved(ended: Path) -> None:
    root, branch = ended.parent, "nightlab/tiny/winner"
    git(root, "checkout", "-q", "-b", branch)
    (root / "mine.txt").write_text("mine\n")
    mine = commit_all(root, "my own work")
    git(root, "checkout", "-q", "main")
    refused = call(root, "answer", "winner-01", "promote")
    assert refused.status == 2 and "holds commits of somebody else" in refused.err
    assert git(root, "rev-parse", branch) == mine
    git(root, "branch", "-q", "-m", branch, "mine")
    assert call(root, "answer", "winner-01", "promote").status == 0


def test_a_question_whose_deadline_has_passed_is_closed_when_it_is_looked_at(ended: Path) -> None:
    root, now = ended.parent, utc_now()
    question = Question(
        id="base-model",
        study="tiny",
        kind="base-model",
        text="Keep it?",
        options=["keep", "change"],
        default="keep",
        asked_at=now,
        deadline=now,
    )
    with ledger_of(ended) as ledger:
        ledger.ask(question)
    late = call(root, "answer", "base-model", "change")
    assert late.status == 2 and "was answered 'keep' by nightlab: deadline" in late.err
    shown = {entry["id"]: entry for entry in json.loads(call(root, "inbox", "--all", "--json").out)}
    assert shown["base-model"]["answered_by"] == "nightlab: deadline" and shown["winner-01"]["answer"] is None
    assert [entry["id"] for entry in json.loads(call(root, "inbox", "--json").out)] == ["winner-01"]
    for word in ("pause", "resume"):
        assert "the study is finished" in call(root, word).err


def test_pause_lets_jobs_end_and_resume_goes_on(tmp_path: Path) -> None:
    study = GatedStudy(tmp_path, **SHORT)
    with study.start() as lab:
        wait_until(lambda: study.busy_slots() == 2)
        paused = call(study.root, "pause")
        assert paused.out == "Paused: no new job is started before `nightlab resume`; running ones go on.\n"
        assert "Paused already" in call(study.root, "pause").out
        assert study.busy_slots() == 2 and study.status()["paused"] is True
        study.open()
        # Both were planned before; what the baseline's end would start is not.
        with ledger_of(study.file) as ledger:
            wait_until(lambda: sum(run.state is RunState.REVIEWED for run in ledger.runs()) == 2)
            wait_until(lambda: study.busy_slots() == 0)
            assert len(ledger.jobs()) == 2 and lab.poll() is None
        assert "paused: no new job is started; `nightlab resume` goes on" in call(study.root, "status").out
        assert call(study.root, "stop").status == 0
        assert lab.wait(60) == 0
    assert "(no lab is running it)" in call(study.root, "status").out
    with study.start() as lab:
        wait_until(lambda: study.status()["lab_pid"] is not None)
        assert call(study.root, "resume").out == "Resumed; the lab goes on.\n"
        out, _ = lab.communicate(timeout=120)
    assert "note: the study is paused" in out and "finished: every verdict is in" in out
    with ledger_of(study.file) as ledger:
        assert len(ledger.jobs()) > 2
        kinds = [event.kind for event in ledger.events() if event.kind in ("paused", "resumed")]
        assert kinds == ["paused", "resumed"]
    assert "finished" in call(study.root, "status").out
