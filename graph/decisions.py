"""The lab's decisions that are a person's: spending more, failures that repeat, the base model, the winner."""

from __future__ import annotations

from nightlab.agents.breaker import trips
from nightlab.agents.code_space import accepted, ideas_in
from nightlab.agents.context import Lab
from nightlab.agents.opinions import QUESTIONED, STAND
from nightlab.errors import GitError
from nightlab.graph.budget import passed_limits, spend_id, spending_refusal
from nightlab.graph.questions import PLANNING, factor_block, raise_question
from nightlab.graph.stressing import stress_verdict
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Experiment, ExperimentState, Question, Verdict, VerdictKind
from nightlab.search.simplicity import Standing, simplest_first
from nightlab.search.stress import BROKEN
from nightlab.tools.failures.breaker import Trip
from nightlab.tools.notify.messages import breaker_tripped
from nightlab.worktrees.git import Git
from nightlab.worktrees.names import slug

__all__ = [
    "KEEP",
    "PROMOTE",
    "answered_failure",
    "ask_at_the_end",
    "best_kept",
    "breaker_stops",
    "carry_out",
    "failure_question",
    "spend_question",
    "spending_stops",
    "winner_branch",
]

GO_ON, LEAVE_OUT, STOP = "go-on", "leave-out", "stop"
KEEP, CHANGE = "keep", "change"
LEAVE, PROMOTE = "leave", "promote"
SUPERSEDED = "nightlab: superseded"


def spend_question(
    lab: Lab, what: str, used: float, limit: float, *, blocks: frozenset[str] = frozenset({PLANNING})
) -> Question:
    """Whether more than `limit` of `what` (e.g. `gpu-hours`) may be spent; a higher limit is a new question."""
    return raise_question(
        lab,
        lab.study.approvals.spend,
        "spend",
        spend_id(what, limit),
        f"{used:g} of the {limit:g} {what} are used. Spend more?",
        options=["no", "yes"],
        default="no",
        blocks=blocks,
    )


def spending_stops(lab: Lab) -> bool:
    """Ask once a soft limit of the budget is passed; True where the answer is no."""
    for what, used, limit in passed_limits(lab):
        spend_question(lab, what, used, limit)
    return spending_refusal(lab) is not None


def failure_question(lab: Lab, trip: Trip) -> Question:
    """What to do about runs that fail the same way; one question a factor and cause, whose answer holds."""
    log = lab.paths.experiment_logs(trip.numbers[-1]) if trip.numbers else lab.paths.logs
    question = raise_question(
        lab,
        lab.study.approvals.repeated_failure,
        "repeated-failure",
        _failure_id(trip),
        f"{trip}. Go on all the same?",
        options=[STOP, GO_ON] if trip.factor is None else [LEAVE_OUT, GO_ON, STOP],
        default=STOP if trip.factor is None else LEAVE_OUT,
        evidence=str(log),
        blocks=frozenset({PLANNING if trip.factor is None else factor_block(trip.factor)}),
    )
    lab.notify(breaker_tripped(lab.study.study, trip.cause, trip.failures, log=log, occasion=question.id))
    return question


def answered_failure(lab: Lab, trip: Trip) -> str | None:
    """`leave-out`, `go-on` or `stop`; None before there is an answer."""
    asked = lab.ledger.question(_failure_id(trip))
    return asked.answer if asked else None


def breaker_stops(lab: Lab) -> tuple[frozenset[str], bool]:
    """The factors the breaker leaves out now, and whether it ends the study; asks about each trip once.

    A trip without an answer yet blocks what it is about: one of the whole study blocks planning until it is answered.
    """
    factors, ends = set(), False
    for trip in trips(lab):
        failure_question(lab, trip)
        answer = answered_failure(lab, trip)
        ends = ends or answer == STOP
        if trip.factor is not None and answer != GO_ON:
            factors.add(trip.factor)
    return frozenset(factors), ends


def _failure_id(trip: Trip) -> str:
    return f"failure-{slug(trip.factor or 'study')}-{slug(trip.cause)}"


def best_kept(lab: Lab) -> tuple[Experiment, Verdict] | None:
    """The confirmed experiment with the largest effect; of equal ones the one with the least code."""
    kept = [
        verdict for verdict in lab.ledger.verdicts().values() if verdict.kind is VerdictKind.KEEP and verdict.effect
    ]
    if not kept:
        return None
    ideas, of = accepted(lab.ledger), {one.number: lab.ledger.experiment(one.number) for one in kept}
    standings = [
        Standing(one.number, one.effect.delta, sum(idea.lines for idea in ideas_in(of[one.number], ideas)))
        for one in kept
        if one.effect
    ]
    best = simplest_first(standings, lab.study.objective.min_effect)[0].number
    return of[best], next(one for one in kept if one.number == best)


def ask_at_the_end(lab: Lab, *, exhausted: bool) -> None:
    """What the night leaves to a person; nothing waits for the answers.

    `exhausted`: the search found nothing more to try although the budget would allow it.
    """
    best = best_kept(lab)
    if best is not None:
        _ask_winner(lab, best[0])
    elif exhausted:
        _ask_base_model(lab)


def _ask_winner(lab: Lab, winner: Experiment) -> None:
    question_id = f"winner-{winner.number:02d}"
    for question in lab.ledger.questions(open_only=True):
        if question.kind == "winner" and question.id != question_id:
            lab.ledger.answer(question.id, question.default, by=SUPERSEDED)
    approval = lab.study.approvals.winner
    if approval.policy == "auto":
        return
    raise_question(
        lab,
        approval,
        "winner",
        question_id,
        f"Experiment {winner.number:02d} is confirmed. Set the branch {winner_branch(lab.study.study)} to it?",
        options=[LEAVE, PROMOTE],
        default=LEAVE,
        evidence=f"branch {winner.branch}",
    )


def _ask_base_model(lab: Lab) -> None:
    verdicts = [verdict for number, verdict in lab.ledger.verdicts().items() if number > 0]
    tried = [verdict for verdict in verdicts if verdict.effect is not None]
    approval = lab.study.approvals.base_model
    hopeful = any(
        (verdict.kind is VerdictKind.INCONCLUSIVE or verdict.label == BROKEN)
        and verdict.effect is not None
        and verdict.effect.delta >= lab.study.objective.min_effect
        for verdict in tried
    )
    # Where the breaker left something out, there is something left to try.
    if approval.policy == "auto" or not tried or hopeful or trips(lab):
        return
    count = "1 configuration was" if len(tried) == 1 else f"{len(tried)} configurations were"
    raise_question(
        lab,
        approval,
        "base-model",
        "base-model",
        f"Needs a decision: {count} measured, none is better than the baseline and nothing is left to "
        f"try. Keep the base model {lab.study.base_model}? (change: declare another in a new study)",
        options=[KEEP, CHANGE],
        default=KEEP,
        evidence=str(lab.paths.final_report_html),
    )


def _let_stand(ledger: Ledger, answered: Question) -> str | None:
    """The win as it was computed, without what its review took from it."""
    number = int(answered.id.rpartition("-")[2])
    held = ledger.verdict(number)
    if held is None or held.label != QUESTIONED:
        return None
    reason = f"{held.reason}; {answered.answered_by} let it stand"
    stands = held.model_copy(update={"kind": VerdictKind.KEEP, "label": "confirmed", "reason": reason})
    under_stress = stress_verdict(ledger.study_row().study, ledger, stands)
    if under_stress.kind is not VerdictKind.KEEP:
        return f"experiment {number:02d} stays held back all the same: {under_stress.reason}"
    with ledger.transaction():
        ledger.record_verdict(stands)
        ledger.update_experiment(number, state=ExperimentState.KEPT)
        ledger.add_event("verdict", f"experiment {number:02d} stands: {answered.answered_by} has looked at it", number)
    return f"experiment {number:02d} is a confirmed win again (`nightlab report` shows it)"


def winner_branch(study: str) -> str:
    """Where a promoted winner is found."""
    return f"nightlab/{study}/winner"


def carry_out(ledger: Ledger, git: Git, answered: Question) -> str | None:
    """Do at once what an answer asks for that no lab waits for; returns what was done, None for nothing.

    Doing it again changes nothing. Raises GitError where the branch holds somebody's own commits or is checked out.
    """
    if answered.kind == "review" and answered.answer == STAND:
        return _let_stand(ledger, answered)
    if answered.kind != "winner" or answered.answer != PROMOTE:
        return None
    winner = ledger.experiment(int(answered.id.rpartition("-")[2]))
    commit = winner.card_commit or winner.commit
    branch = winner_branch(answered.study)
    if commit is None:
        raise GitError(f"experiment {winner.number:02d} has no commit to set {branch} to")
    tip = git.branches(branch).get(branch)
    if tip == commit:
        return f"{branch} is at experiment {winner.number:02d} ({commit[:12]})"
    if tip is not None and not any(tip in (one.commit, one.card_commit) for one in ledger.experiments()):
        raise GitError(f"branch {branch}: holds commits of somebody else (rename or delete it, then answer again)")
    # Git itself refuses where the branch is checked out.
    git.output("branch", "--no-track", "--force", branch, commit)
    return f"{branch} is at experiment {winner.number:02d} ({commit[:12]})"
