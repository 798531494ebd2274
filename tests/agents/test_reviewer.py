"""The independent reviewer: what it is shown, what its answers are worth, and what they may do to a verdict."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import Fault, ScriptedModel
from nightlab.agents.claims import shown_of
from nightlab.agents.context import Lab
from nightlab.agents.opinions import after_review
from nightlab.agents.prompts import Prompt
from nightlab.agents.reviewer import CHECKS, CheckSaid, ReviewSaid, begin_review, checked_items, is_claim, review
from nightlab.errors import LedgerError
from nightlab.graph.reviewing import pairs_due
from nightlab.knowledge.records import (
    Effect,
    Phase,
    Review,
    ReviewItem,
    ReviewState,
    Verdict,
    VerdictKind,
)
from nightlab.search.belief import judge
from nightlab.search.history import History, Trial
from tests.agents.lab import opened, planned
from tests.graph.review_night import SHOWN, Reviewer, item, make_review_repository, review_answer

NOBODY = "http://127.0.0.1:9/v1"
EFFECT = Effect(delta=0.2, low=0.15, high=0.25, runs=3, baseline_runs=3, paired=True, unit="nats")
WIN = Verdict(
    number=1, kind=VerdictKind.KEEP, effect=EFFECT, basis=Phase.CONFIRM, label="confirmed", reason="+0.2 nats"
)


def said(check: str, answer: str, evidence: str, reason: str = "so it is") -> CheckSaid:
    return CheckSaid.model_validate(item(check, answer, evidence, reason))


@pytest.mark.parametrize(
    "evidence",
    [
        SHOWN,
        "  gains above\n 0 are better ",
        "`x = load(train + val)`",
        "+    x = load(train + val)",
        'say("hello")',
    ],
)
def test_a_quotation_counts_however_it_is_laid_out(evidence: str) -> None:
    shown = (
        f'Metric; {SHOWN}.\nThe code: "-    x = load(train)\\n+    x = load(train + val)\\n+    say(\\"hello\\")\\n"'
    )
    (found,) = [one for one in checked_items([said("leakage", "failed", evidence)], shown) if one.check == "leakage"]
    assert found.answer == "failed"


@pytest.mark.parametrize("evidence", ["", "is", "- -- -", "val rows are trained on", SHOWN + " always"])
@pytest.mark.parametrize("answer", ["passed", "failed"])
def test_what_was_not_shown_proves_nothing(answer: str, evidence: str) -> None:
    (found, *_) = checked_items([said("leakage", answer, evidence)], f"Metric; {SHOWN}.")
    assert (found.check, found.answer) == ("leakage", "unclear") and "not in what it was shown" in found.reason


def test_the_whole_checklist_is_there_once_each() -> None:
    twice = [said("leakage", "failed", SHOWN), said("leakage", "passed", SHOWN)]
    found = checked_items(twice, SHOWN)
    assert tuple(one.check for one in found) == CHECKS
    assert [one.answer for one in found] == ["failed", *["unclear"] * 4]


def test_words_of_a_model_are_one_line_without_links() -> None:
    (found, *_) = checked_items([said("leakage", "unclear", SHOWN, "see\n[this](http://x.y) \x1b[31mnow")], SHOWN)
    assert "\n" not in found.reason and "\x1b" not in found.reason and "://" not in found.reason


def trials(*values: float, extra: float | None = None) -> tuple[Trial, ...]:
    """A baseline at 1.0 and an experiment at `values`, found on seeds 0 and 1, confirmed on 1000 and up."""
    found = []
    for number, of in ((0, (1.0,) * len(values)), (1, values)):
        changed: dict[str, Any] = {"lr": 0.01} if number else {}
        seeds = [0, 1, *range(1000, 1000 + len(values) - 2)]
        phases = [Phase.SCREEN, Phase.SCREEN, *[Phase.CONFIRM] * (len(values) - 2)]
        for seed, phase, value in zip(seeds, phases, of, strict=True):
            wobble = 0.004 if seed % 2 else -0.004
            found.append(Trial(number, {"lr": 0.01}, changed, seed, phase, "measured", value + wobble))
        if extra is not None:
            found.append(
                Trial(number, {"lr": 0.01}, changed, 1900, Phase.CONFIRM, "measured", extra if number else 1.0)
            )
    return tuple(found)


def answered(**changes: Any) -> Review:
    base = Review(key="review/01/confirm", number=1, basis="confirm", state=ReviewState.ANSWERED, model="m")
    return base.model_copy(update=changes)


@pytest.fixture
def lab(tmp_path: Path) -> Any:
    with opened(make_review_repository(tmp_path / "repo", NOBODY)) as lab:
        planned(lab, {"lr": 0.01})
        yield lab


def recorded(lab: Lab, review: Review) -> None:
    lab.ledger.begin_review(review)


def test_a_review_never_raises_a_verdict(lab: Lab) -> None:
    recorded(lab, answered(items=[ReviewItem(check=name, answer="passed") for name in CHECKS]))
    for kind, label in (("discard", "worse"), ("inconclusive", "not confirmed"), ("rejected", "rejected")):
        verdict = WIN.model_copy(update={"kind": VerdictKind(kind), "label": label})
        assert after_review(lab, verdict, History()) is verdict
    assert after_review(lab, WIN, History()) is WIN


def test_the_pair_it_asked_for_can_only_lower(lab: Lab) -> None:
    good = History(trials=trials(0.8, 0.8, 0.8, 0.8, 0.8))
    win = judge(lab.study, good, 1)
    assert win is not None and win.kind is VerdictKind.KEEP
    recorded(lab, answered(another_run=True, pair_seed=1900))
    assert after_review(lab, win, good) is win, "its pair is not in yet"
    same = History(trials=trials(0.8, 0.8, 0.8, 0.8, 0.8, extra=0.8))
    assert after_review(lab, win, same) is win
    worse = History(trials=trials(0.8, 0.8, 0.8, 0.8, 0.8, extra=1.6))
    lowered = after_review(lab, win, worse)
    assert (lowered.kind, lowered.label) == (VerdictKind.INCONCLUSIVE, "not confirmed")
    assert "the pair that the reviewer asked for" in lowered.reason


def test_a_pair_is_planned_once_and_not_without_a_budget(lab: Lab) -> None:
    recorded(lab, answered(another_run=True))
    planned(lab, {})
    assert pairs_due(lab, History(runs_left=1)) == []
    (held,) = lab.ledger.reviews()
    assert (held.pair_seed, "no room" in held.note) == (None, True)
    assert pairs_due(lab, History(runs_left=9)) == [], "asked for at most once"


def test_cut_off_in_the_middle_the_missing_budget_is_told_once(lab: Lab) -> None:
    recorded(lab, answered(another_run=True))
    planned(lab, {})
    # As a kill between the two writes.
    with closing(sqlite3.connect(lab.paths.ledger)) as raw:
        raw.execute("CREATE TRIGGER cut BEFORE UPDATE ON reviews BEGIN SELECT RAISE(ABORT, 'cut off'); END")
        with pytest.raises(LedgerError, match="cut off"):
            pairs_due(lab, History(runs_left=1))
        raw.execute("DROP TRIGGER cut")
    assert pairs_due(lab, History(runs_left=1)) == []
    assert sum(event.kind == "review" for event in lab.ledger.events()) == 1


def test_only_confirmed_wins_are_reviewed_unless_the_study_says_otherwise(lab: Lab) -> None:
    promising = WIN.model_copy(update={"kind": VerdictKind.INCONCLUSIVE, "label": "promising"})
    assert is_claim(lab, WIN) and not is_claim(lab, promising)
    for setting, win, other in (("promising", True, True), ("nothing", False, False)):
        brain = lab.study.brain.model_copy(update={"review": setting})
        lab.study = lab.study.model_copy(update={"brain": brain})
        assert (is_claim(lab, WIN), is_claim(lab, promising)) == (win, other)
    lab.models = None
    assert not is_claim(lab, WIN)


def test_it_is_shown_no_reason_and_no_name_of_the_change(lab: Lab) -> None:
    shown = shown_of(lab, lab.ledger.experiment(1), WIN)
    assert '"lr": 0.001 in the baseline, 0.01 in the experiment' in shown
    assert "to see" not in shown and "experiment-01" not in shown


def test_another_model_is_told_from_the_one_that_proposed(tmp_path: Path) -> None:
    with ScriptedModel(Reviewer(review_answer())) as one, ScriptedModel(Reviewer(review_answer()), model="b") as two:
        brain = {
            "kind": "llm",
            "endpoints": [{"model": "scripted", "base_url": one.base_url}],
            "reviewers": [{"model": "b", "base_url": two.base_url}],
        }
        with opened(make_review_repository(tmp_path / "repo", NOBODY, brain=brain)) as lab:
            planned(lab, {"lr": 0.01})
            ended = review(lab, begin_review(lab, lab.ledger.experiment(1), WIN))
            assert (ended.model, ended.independent, one.requests) == ("b", True, [])


def test_an_answer_that_came_before_a_kill_is_not_asked_for_again(tmp_path: Path) -> None:
    reviewer = Reviewer(review_answer())
    with ScriptedModel(reviewer) as server:
        file = make_review_repository(tmp_path / "repo", server.base_url)
        with opened(file) as lab:
            planned(lab, {"lr": 0.01})
            begun = begin_review(lab, lab.ledger.experiment(1), WIN)
            assert lab.models is not None and begun.asked is not None
            prompt = Prompt(**{name: begun.asked[name] for name in ("name", "version", "system", "user")})
            # The call is settled; what follows from it is not written.
            lab.models.reviewer.structured(lab, ReviewSaid, prompt, purpose="review", key=begun.key)
        with opened(file) as lab:
            (left,) = lab.ledger.reviews(asking_only=True)
            assert review(lab, left).state is ReviewState.ANSWERED
            assert review(lab, left).state is ReviewState.ANSWERED, "done again, nothing changes"
            assert sum(event.kind == "review" for event in lab.ledger.events()) == 1
    assert len(reviewer.asked) == 1


def test_where_no_model_answers_the_win_stands_with_a_note(tmp_path: Path) -> None:
    with (
        ScriptedModel(Reviewer(Fault("status", 401, "no such key"))) as server,
        opened(make_review_repository(tmp_path / "repo", server.base_url)) as lab,
    ):
        planned(lab, {"lr": 0.01})
        ended = review(lab, begin_review(lab, lab.ledger.experiment(1), WIN))
        assert ended.state is ReviewState.UNANSWERED and "no such key" in ended.note
        assert after_review(lab, WIN, History()) is WIN
        assert any("nobody reviewed the claim" in event.text for event in lab.ledger.events())


def test_a_stop_while_the_reviewer_is_busy_leaves_the_claim_to_be_reviewed(tmp_path: Path) -> None:
    with (
        ScriptedModel(Reviewer(Fault("status", 429, "slow down"))) as server,
        opened(make_review_repository(tmp_path / "repo", server.base_url)) as lab,
    ):
        planned(lab, {"lr": 0.01})
        begun = begin_review(lab, lab.ledger.experiment(1), WIN)
        lab.stop_requested = lambda: len(server.requests) > 0
        assert lab.aside.start(lambda: review(lab, begun)) and lab.aside.wait(60)
        lab.aside.take()
        assert lab.ledger.reviews(asking_only=True) == [begun]
