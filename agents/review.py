"""The review agent: audits each measured run, and states what the lab believes of each experiment.

Audit comes first and knows nothing of the verdict; verdicts are computed by `search.belief` from audited runs only.
"""

from __future__ import annotations

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.audit import audit
from nightlab.agents.cards import CARD, result_files
from nightlab.agents.checkpoints import tidy_checkpoints
from nightlab.agents.code_space import accepted, code_of
from nightlab.agents.context import Lab
from nightlab.agents.fairness import fairness_notes
from nightlab.agents.history import LOST, history_of
from nightlab.configs.files import write_atomically
from nightlab.knowledge.lessons import append, make_lesson, read
from nightlab.knowledge.records import Experiment, ExperimentState, Lesson, Run, RunState, Verdict, VerdictKind
from nightlab.search.attribution import Move, move_of, verdict_on_move
from nightlab.search.low_runs import is_low

__all__ = ["PENDING", "ReviewState", "conclude_experiment", "review_agent", "settled_experiments"]

PENDING = (RunState.PLANNED, RunState.SUBMITTED, RunState.FINISHED, RunState.MEASURED)
OPEN = (ExperimentState.PLANNED, ExperimentState.PREPARED, ExperimentState.RUNNING, ExperimentState.MEASURED)

STATE_OF = {
    VerdictKind.KEEP: ExperimentState.KEPT,
    VerdictKind.DISCARD: ExperimentState.DISCARDED,
    VerdictKind.INCONCLUSIVE: ExperimentState.INCONCLUSIVE,
    VerdictKind.REJECTED: ExperimentState.REJECTED,
    VerdictKind.FAILED: ExperimentState.FAILED,
    VerdictKind.PRUNED: ExperimentState.DISCARDED,
}
CONCLUDED = frozenset({*STATE_OF.values(), ExperimentState.REVIEWED, ExperimentState.CANCELLED})
"""Lesson and card are written; `reviewed` is the baseline's end, which has no verdict."""


class ReviewState(TypedDict):
    keys: list[str]
    """Measured runs to audit."""


def _audit(state: ReviewState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    for key in state["keys"]:
        run = lab.ledger.run(key)
        if run.state is RunState.MEASURED:
            audit_run(lab, run)
            lab.on_change()
    return {}


def audit_run(lab: Lab, run: Run) -> None:
    experiment = lab.ledger.experiment(run.number)
    job, observation = lab.ledger.job(run.key), lab.ledger.observation(run.key)
    assert job is not None and observation is not None, f"run {run.key} is measured without a job or an observation"
    reasons = audit(lab, experiment, job, observation, overrides=run.overrides)
    if reasons:
        with lab.ledger.transaction():
            lab.ledger.update_run(run.key, state=RunState.REJECTED, cause="review", detail="; ".join(reasons))
            lab.ledger.add_event("rejected", "; ".join(reasons), run.number)
    else:
        lab.ledger.update_run(run.key, state=RunState.REVIEWED)


def settled_experiments(lab: Lab) -> list[Experiment]:
    """Experiments whose runs have all ended and that are not concluded since."""
    opened = lab.ledger.experiments(states=OPEN)
    pending = {run.number for run in lab.ledger.runs(states=PENDING)} if opened else set()
    return [experiment for experiment in opened if experiment.number not in pending]


def conclude_experiment(lab: Lab, experiment: Experiment, verdict: Verdict | None) -> None:
    """Write down what `verdict` says new of an experiment: ledger, lesson, result card; take its trees away.

    The verdict is None for the baseline, and where no run says anything. Until lesson and card are written the
    experiment is `measured`, so that whoever was killed on the way does the rest; repeating it changes nothing.
    """
    held = lab.ledger.verdict(experiment.number)
    verdict = _with_detail(lab, verdict) if verdict is not None else None
    is_news = verdict is not None and not _same(held, verdict)
    if experiment.state in CONCLUDED and not is_news:
        return
    if verdict is not None and is_news:
        held = verdict
        _record(lab, experiment, verdict)
    if held is None and _says_nothing(lab, experiment):
        lab.worktrees.remove_experiment(experiment.number)
        lab.ledger.update_experiment(experiment.number, state=ExperimentState.CANCELLED)
        return
    move = _move(lab, experiment)
    if held is not None and not is_low(lab.study, experiment.changed):
        # A winner's lesson is of the whole.
        write_lesson(lab, experiment, held, move if held.kind is not VerdictKind.KEEP else None)
    card_commit = write_card(lab, experiment, held, move)
    tidy_checkpoints(lab, experiment, held)
    state = STATE_OF[held.kind] if held is not None else ExperimentState.REVIEWED
    note = "; ".join(fairness_notes(lab, experiment)) or experiment.note
    lab.ledger.update_experiment(experiment.number, card_commit=card_commit, state=state, note=note)
    lab.on_change()


def _with_detail(lab: Lab, verdict: Verdict) -> Verdict:
    """A pruned experiment's verdict with what its run had come to; the search knows only that it was behind."""
    if verdict.kind is not VerdictKind.PRUNED:
        return verdict
    pruned = lab.ledger.runs(verdict.number, states=(RunState.PRUNED,))
    return verdict.model_copy(update={"reason": pruned[-1].detail})


def _record(lab: Lab, experiment: Experiment, verdict: Verdict) -> None:
    with lab.ledger.transaction():
        lab.ledger.record_verdict(verdict)
        lab.ledger.add_event("verdict", f"{experiment.variable}: {verdict.kind}, {verdict.label}", experiment.number)
        # What was never prepared (no command could be made of it) can only fail.
        if experiment.commit is not None:
            lab.ledger.update_experiment(experiment.number, state=ExperimentState.MEASURED)


def _says_nothing(lab: Lab, experiment: Experiment) -> bool:
    """Whether every run was cancelled or lost: nothing was found out."""
    runs = lab.ledger.runs(experiment.number)
    return all(run.state is RunState.CANCELLED or run.cause == LOST for run in runs)


def _same(before: Verdict | None, now: Verdict) -> bool:
    """Whether nothing worth writing down has changed: intervals breathe as the noise estimate grows, beliefs do not."""
    if before is None:
        return False
    runs = [v.effect and (v.effect.runs, v.effect.paired, v.effect.confidence) for v in (before, now)]
    return (before.kind, before.label, before.basis) == (now.kind, now.label, now.basis) and runs[0] == runs[1]


def write_lesson(lab: Lab, experiment: Experiment, verdict: Verdict, move: Move | None = None) -> None:
    """Append the experiment's lesson; a lesson that says something else than the last one supersedes it.

    `move`: the one variable it is about, where more differs from the baseline.
    """
    told = [lesson for lesson in read(lab.lessons_path).lessons if _is_of(lesson, experiment)]
    failed = [run for run in lab.ledger.runs(number=experiment.number) if run.state is RunState.FAILED]
    lesson = make_lesson(
        lab.study,
        experiment.model_copy(update={"technique": move.technique}) if move else experiment,
        verdict_on_move(lab.study, verdict, move) if move else verdict,
        changed=move.changed if move else None,
        replaced=move.replaced if move else None,
        cause=failed[-1].cause if verdict.kind is VerdictKind.FAILED and failed else None,
        supersedes=[one.id for one in told[-1:]],
        now=lab.now(),
    )
    if not told or _content(told[-1]) != _content(lesson):
        append(lab.lessons_path, lesson, redact=lab.redactor.redact_data)


def _move(lab: Lab, experiment: Experiment) -> Move | None:
    """The one variable that was moved, where more differs from the baseline."""
    if len(experiment.changed) < 2:
        return None
    return move_of(lab.study, history_of(lab.ledger, known=lab.configurations), experiment.number, experiment.variable)


def _is_of(lesson: Lesson, experiment: Experiment) -> bool:
    evidence = f"{experiment.number:02d}", experiment.commit or ""
    told = lesson.evidence.get("experiment"), lesson.evidence.get("commit")
    return lesson.study == experiment.study and told == evidence


def _content(lesson: Lesson) -> object:
    return lesson.verdict, lesson.label, lesson.effect, lesson.cause


def write_card(lab: Lab, experiment: Experiment, verdict: Verdict | None, move: Move | None = None) -> str | None:
    """Commit the result card on the experiment's branch and take its trees away; returns the commit.

    None where the experiment has no branch, because it was never prepared.
    """
    if experiment.commit is None:
        return None
    runs = lab.ledger.runs(number=experiment.number)
    entries = [(run, lab.ledger.job(run.key), lab.ledger.observation(run.key)) for run in runs]
    tree = lab.worktrees.ensure_branch_tree(
        experiment.number, experiment.branch, experiment.base_commit, experiment.commit
    )
    subject = f"experiment {experiment.number:02d}: {verdict.kind if verdict else 'measured'}"
    body = verdict.reason if verdict else "The yardstick of the study."
    code = code_of(lab.git, experiment, accepted(lab.ledger))
    review = next((one for one in reversed(lab.ledger.reviews()) if one.number == experiment.number), None)
    files = result_files(
        lab.study, experiment, entries, verdict, lab.launcher, tree, lab.redactor, move, code=code, review=review
    )
    if turned := next((run.overrides for run in reversed(runs) if run.state is RunState.REVIEWED), None):
        # What is merged must be what ran: with the values a remedy turned.
        files |= lab.launcher.files({**experiment.parameters, **turned}, tree)
    commit = lab.worktrees.commit_files(tree, files, f"{subject}\n\n{body}")
    write_atomically(lab.paths.result_card(experiment.number), files[CARD])
    lab.worktrees.remove_experiment(experiment.number)
    return commit


review_agent = (
    StateGraph(ReviewState, context_schema=Lab)
    .add_node("audit", _audit)
    .add_edge(START, "audit")
    .add_edge("audit", END)
    .compile()
)
