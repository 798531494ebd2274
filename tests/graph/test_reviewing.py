"""Nights whose wins an independent model reviews: what it may do to them, and what it may not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from bench.scripted_model import ScriptedModel
from nightlab.agents.context import Lab
from nightlab.configs.loading import load_study
from nightlab.graph.answering import record_answer
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import ExperimentState, Phase, ReviewState, StudyStatus, VerdictKind
from nightlab.night import run_night
from nightlab.worktrees.git import Git
from tests.graph.ending import LATE, end_search
from tests.graph.review_night import CHECKS, Reviewer, item, make_review_repository, review_answer
from tests.task import git


@contextmanager
def night(
    folder: Path, said: Any, watch: Callable[[Lab], None] | None = None, **changes: Any
) -> Iterator[tuple[Ledger, Reviewer, Path]]:
    reviewer = Reviewer(said)
    with ScriptedModel(reviewer) as server:
        file = make_review_repository(folder / "repo", server.base_url, **changes)
        assert run_night(file, say=lambda _: None, watch=watch).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        yield ledger, reviewer, file


def test_a_win_that_is_not_questioned_stands_and_the_report_says_who_looked(tmp_path: Path) -> None:
    with night(tmp_path, review_answer()) as (ledger, reviewer, file):
        verdict, (review,) = ledger.verdicts()[1], ledger.reviews()
        assert (verdict.kind, review.state) == (VerdictKind.KEEP, ReviewState.ANSWERED)
        assert [one.answer for one in review.items] == ["passed"] * len(CHECKS)
        # No other model is named: the report says so.
        assert not review.independent
        (text,) = reviewer.asked
        reasons = {run.reason for run in ledger.runs(1)} | {ledger.experiment(1).reason}
        assert not any(reason in text for reason in reasons)
        assert text.count("Run of the experiment, seed") == len(ledger.runs(1))
        card = git(file.parent, "show", f"{ledger.experiment(1).branch}:EXPERIMENT.md")
        report = locate(load_study(file)).paths.final_report_md.read_text()
    assert "What the reviewer said" in report and "the model that proposed it" in report
    assert "Review: scripted reviewed it" in card


def test_an_accusation_with_evidence_holds_the_win_back_and_asks(tmp_path: Path) -> None:
    accused = item("unfair comparison", "failed", '"lr": 0.001 in the baseline', "the baseline is badly tuned")
    with night(tmp_path, review_answer(accused)) as (ledger, _, file):
        verdict = ledger.verdicts()[1]
        assert (verdict.kind, verdict.label) == (VerdictKind.INCONCLUSIVE, "questioned by review")
        assert "badly tuned" in verdict.reason and verdict.effect is not None
        question = ledger.question("review-01")
        assert question is not None and (question.answer, question.default) == (None, "hold-back")
        # Somebody who has looked may let it stand, also after the end.
        record_answer(ledger, Git(file.parent), "review-01", "let-stand", by="me")
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP
        assert ledger.experiment(1).state is ExperimentState.KEPT


def test_it_may_ask_for_one_more_pair_once(tmp_path: Path) -> None:
    doubt = item("simpler explanation", "unclear")
    with night(tmp_path, review_answer(doubt, another_run=True)) as (ledger, reviewer, _):
        (review,) = ledger.reviews()
        assert review.pair_seed is not None and len(reviewer.asked) == 1
        for number in (0, 1):
            assert [run.seed for run in ledger.runs(number)].count(review.pair_seed) == 1
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP


def test_also_for_a_win_that_only_the_end_of_the_search_makes(tmp_path: Path) -> None:
    doubt = item("simpler explanation", "unclear")
    said = review_answer(doubt, another_run=True)
    with night(tmp_path, said, partial(end_search, confirmed=6), **LATE) as (ledger, reviewer, _):
        (review,) = ledger.reviews()
        assert review.pair_seed is not None and len(reviewer.asked) == 1
        for number in (0, 1):
            assert [run.seed for run in ledger.runs(number)].count(review.pair_seed) == 1
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP
        confirmed = [run for run in ledger.runs() if run.phase is Phase.CONFIRM]
        assert len(confirmed) == 8, "three pairs, and the reviewer's"
