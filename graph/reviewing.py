"""When claims are reviewed: beside the loop, before they are concluded, and within a bounded time at the end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

from nightlab.agents.context import Lab
from nightlab.agents.opinions import (
    HOLD,
    QUESTIONED,
    STAND,
    after_review,
    question_id,
    questioned_ideas,
    questioned_numbers,
)
from nightlab.agents.review import PENDING
from nightlab.agents.reviewer import begin_review, is_claim, review, unanswered
from nightlab.graph.questions import raise_question
from nightlab.knowledge.records import Experiment, Phase, Proposal, Review, ReviewState, RunState, Verdict, VerdictKind
from nightlab.search.belief import judge_all
from nightlab.search.confirmation import fresh_seeds
from nightlab.search.history import History, Trial

__all__ = ["NO_ROOM", "await_reviews", "is_reviewing", "pairs_due", "reviewed", "start_reviews", "without_questioned"]

END_SECONDS = 300.0
"""How long the end of the study waits for reviews."""
SLICE_SECONDS = 0.5
FEWEST_RUNS = 2
"""Of a pair."""
NO_ROOM = "the budget has no room for the pair of runs it asked for"
ENDED = (RunState.REVIEWED, RunState.REJECTED, RunState.FAILED, RunState.PRUNED)


def start_reviews(lab: Lab, verdicts: Mapping[int, Verdict], settled: list[Experiment]) -> None:
    """Write down what the reviewer is to be asked about the claims among `verdicts`, and have it asked."""
    if lab.models is None:
        return
    lab.aside.take()
    for experiment in settled:
        verdict = verdicts.get(experiment.number)
        if verdict is not None and is_claim(lab, verdict):
            begin_review(lab, experiment, verdict)
    asking = lab.ledger.reviews(asking_only=True)
    if asking:
        lab.aside.start(lambda: review(lab, asking[0]))


def is_reviewing(lab: Lab, history: History) -> bool:
    """Whether a review is to come that may change what is believed, or ask for a run."""
    if lab.models is None or lab.is_overdue:
        return False
    if not lab.ledger.runs(states=PENDING):
        # Nothing more is to come: what would be claimed at the end is a claim now.
        verdicts = judge_all(lab.study, replace(history, runs_left=0))
        start_reviews(lab, verdicts, [lab.ledger.experiment(number) for number in verdicts])
    return bool(lab.ledger.reviews(asking_only=True))


def reviewed(lab: Lab, experiment: Experiment, verdict: Verdict | None, history: History) -> Verdict | None:
    """The verdict to conclude with; None of a claim while its review, or the pair it asks for, is to come."""
    if verdict is None or not is_claim(lab, verdict):
        return verdict
    held = lab.ledger.review(experiment.number, verdict.basis)
    if held is not None and (held.state is ReviewState.ASKING or (pair_of(lab, held) and not lab.is_overdue)):
        return None
    after = after_review(lab, verdict, history)
    if after.label == QUESTIONED and verdict.kind is VerdictKind.KEEP:
        _ask(lab, experiment, after)
    return after


def _ask(lab: Lab, experiment: Experiment, verdict: Verdict) -> None:
    raise_question(
        lab,
        lab.study.approvals.review,
        "review",
        question_id(experiment.number),
        f"Experiment {experiment.number:02d} is confirmed by its numbers, but questioned: {verdict.reason}. "
        "Let it stand all the same?",
        options=[HOLD, STAND],
        default=HOLD,
        evidence=f"branch {experiment.branch}",
    )


def pair_of(lab: Lab, held: Review) -> list[int]:
    """Numbers of the experiments whose runs are still to come of the pair that a reviewer asked for."""
    if held.pair_seed is None:
        return [held.number, 0] if _wants_pair(held) else []
    return [number for number in (held.number, 0) if not _has_ended(lab, number, held.pair_seed)]


def _wants_pair(held: Review) -> bool:
    return held.state is ReviewState.ANSWERED and held.another_run and not held.accusations and not held.note


def _has_ended(lab: Lab, number: int, seed: int) -> bool:
    return any(run.seed == seed for run in lab.ledger.runs(number, states=ENDED))


def without_questioned(lab: Lab, history: History) -> History:
    """The history in which what a reviewer proved to be no gain is not to be tried again, nor built upon.

    That is the configuration it questioned, and every one with the code idea that its evidence points at.
    """
    numbers = questioned_numbers(lab.ledger)
    if not numbers:
        return history
    blamed = questioned_ideas(lab.ledger)
    trials = tuple(
        replace(one, valid=one.valid and one.number not in numbers and not _applies(one, blamed))
        for one in history.trials
    )
    return replace(history, trials=trials, factors=tuple(one for one in history.factors if one.name not in blamed))


def _applies(trial: Trial, ideas: frozenset[str]) -> bool:
    return any(trial.parameters.get(name) is True for name in ideas)


def pairs_due(lab: Lab, history: History) -> list[Proposal]:
    """The runs that reviewers asked for: one pair on a fresh seed for each claim, where the budget bears it."""
    proposals = []
    for held in lab.ledger.reviews():
        if _wants_pair(held) and held.pair_seed is None and held.basis == Phase.CONFIRM:
            held = _with_seed(lab, held, history)
        elif _wants_pair(held) and held.pair_seed is None:
            held = lab.ledger.update_review(held.key, note="only a confirmed win is worth another pair")
        if held.pair_seed is not None:
            planned = {t.number for t in history.trials if t.seed == held.pair_seed}
            proposals += [_proposal(lab, number, held) for number in (0, held.number) if number not in planned]
    return proposals


def _with_seed(lab: Lab, held: Review, history: History) -> Review:
    used = {trial.seed for trial in history.trials if trial.number == held.number}
    if history.runs_left < FEWEST_RUNS:
        with lab.ledger.transaction():
            lab.ledger.add_event("review", NO_ROOM, held.number)
            return lab.ledger.update_review(held.key, note=NO_ROOM)
    seeds = fresh_seeds(history, lab.study.search.seed, len(used) + 1)
    return lab.ledger.update_review(held.key, pair_seed=next(seed for seed in seeds if seed not in used))


def _proposal(lab: Lab, number: int, held: Review) -> Proposal:
    experiment = lab.ledger.experiment(number)
    return Proposal(
        parameters=experiment.parameters,
        changed=experiment.changed,
        variable=experiment.variable,
        technique=experiment.technique,
        phase=Phase.CONFIRM,
        seed=held.pair_seed or 0,
        reason=f"the reviewer of experiment {held.number:02d} asks for one more pair",
    )


def await_reviews(lab: Lab, verdicts: Mapping[int, Verdict]) -> None:
    """At the end of the study: have every claim reviewed that is not, for so long; what is left stands as computed."""
    if lab.models is None:
        return
    give_up = time.monotonic() + END_SECONDS
    claims = [lab.ledger.experiment(number) for number in verdicts]
    start_reviews(lab, verdicts, claims)
    while lab.ledger.reviews(asking_only=True) and time.monotonic() < give_up and not lab.stop_requested():
        lab.aside.wait(SLICE_SECONDS)
        start_reviews(lab, verdicts, [])
    for left in lab.ledger.reviews(asking_only=True):
        unanswered(lab, left, "the end of the study did not wait for it any longer")
