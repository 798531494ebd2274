"""Failures that a person must mend before another attempt makes sense: asked about at the first one.

One question an experiment, cause and attempt, whatever the seed; it holds up the verdict on that experiment only.
"""

from __future__ import annotations

from nightlab.agents.context import Lab
from nightlab.agents.failures import has_remedy, waiting_runs
from nightlab.agents.review import PENDING
from nightlab.graph.budget import runs_left
from nightlab.graph.questions import experiment_block, raise_question
from nightlab.knowledge.records import Question, Run
from nightlab.tools.failures import NextStep

__all__ = ["CHANGED", "FAILURE", "GIVE_UP", "RETRY", "STOP", "mend"]

FAILURE = "failure"
"""Kind of these questions."""
RETRY, CHANGED, GIVE_UP, STOP = "retry", "retry-changed", "give-up", "stop"
SPENT = "nightlab: no budget for another attempt"

_STEPS = {
    RETRY: NextStep.RETRY,
    CHANGED: NextStep.RETRY_CHANGED,
    GIVE_UP: NextStep.GIVE_UP,
    # What it stops is the study; this run has failed.
    STOP: NextStep.GIVE_UP,
}
MAX_TOLD = 400


def mend(lab: Lab) -> bool:
    """Ask about every failure that is recorded as to be asked about, and carry out what was answered.

    Returns whether there was an answer.
    """
    runs = waiting_runs(lab)
    if not runs:
        return False
    is_spent = runs_left(lab) <= 0 and not lab.ledger.runs(states=PENDING)
    answers = [(run, _answer(lab, run, is_spent=is_spent)) for run in runs]
    answered = [(run, answer) for run, answer in answers if answer is not None]
    for run, answer in answered:
        lab.ledger.update_run(run.key, next_step=_STEPS[answer])
    return bool(answered)


def _answer(lab: Lab, run: Run, *, is_spent: bool) -> str | None:
    """What was answered, None while nobody has; at the end of the budget no answer could change anything."""
    if not is_spent:
        return _ask(lab, run).answer
    asked = lab.ledger.question(_id(run))
    if asked is not None and asked.answer is None:
        asked = lab.ledger.answer(asked.id, asked.default, by=SPENT)
    return GIVE_UP if asked is None else asked.answer


def _ask(lab: Lab, run: Run) -> Question:
    experiment = lab.ledger.experiment(run.number)
    return raise_question(
        lab,
        lab.study.approvals.repeated_failure,
        FAILURE,
        _id(run),
        f"Experiment {run.number:02d} ({experiment.variable}), seed {run.seed}, needs a person: {_told(run)} "
        "Try again once that is mended?",
        options=[GIVE_UP, RETRY, *([CHANGED] if has_remedy(lab, run) else []), STOP],
        default=GIVE_UP,
        evidence=str(lab.paths.experiment_logs(run.number)),
        blocks=frozenset({experiment_block(run.number)}),
    )


def _told(run: Run) -> str:
    text = " ".join(run.detail.split())
    return f"{run.cause}. {text if len(text) <= MAX_TOLD else text[: MAX_TOLD - 1] + '…'}"


def _id(run: Run) -> str:
    attempt = f"-{run.attempt}" if run.attempt > 1 else ""
    return f"failure-{run.number:02d}-{run.cause}{attempt}"
