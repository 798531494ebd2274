"""The review agent: audits each measured run, and states what the lab believes of each experiment.

Audit comes first and knows nothing of the verdict; verdicts are computed by `search.belief` from audited runs only.
"""

from __future__ import annotations

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.audit import audit
from nightlab.agents.cards import result_files
from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.knowledge.lessons import append, make_lesson, read
from nightlab.knowledge.records import Experiment, ExperimentState, Run, RunState, Verdict, VerdictKind
from nightlab.search.belief import judge

__all__ = ["ReviewState", "conclude_experiment", "review_agent", "settled_experiments"]

ENDED = (RunState.REVIEWED, RunState.REJECTED, RunState.FAILED, RunState.CANCELLED)

STATE_OF = {
    VerdictKind.KEEP: ExperimentState.KEPT,
    VerdictKind.DISCARD: ExperimentState.DISCARDED,
    VerdictKind.INCONCLUSIVE: ExperimentState.INCONCLUSIVE,
    VerdictKind.REJECTED: ExperimentState.REJECTED,
    VerdictKind.FAILED: ExperimentState.FAILED,
    VerdictKind.PRUNED: ExperimentState.DISCARDED,
}


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
    reasons = audit(lab, experiment, job, observation)
    if reasons:
        with lab.ledger.transaction():
            lab.ledger.update_run(run.key, state=RunState.REJECTED, cause="review", detail="; ".join(reasons))
            lab.ledger.add_event("rejected", "; ".join(reasons), run.number)
    else:
        lab.ledger.update_run(run.key, state=RunState.REVIEWED)


def settled_experiments(lab: Lab) -> list[Experiment]:
    """Experiments whose runs have all ended and that are not concluded since."""
    pending = {run.number for run in lab.ledger.runs() if run.state not in ENDED}
    open_states = (ExperimentState.PLANNED, ExperimentState.PREPARED, ExperimentState.RUNNING)
    return [e for e in lab.ledger.experiments() if e.number not in pending and e.state in open_states]


def conclude_experiment(lab: Lab, experiment: Experiment, *, runs_left: int) -> Verdict | None:
    """Judge one experiment; where that says something new, write lesson and result card; take its trees away.

    `runs_left` says whether a finalist may still get fresh seeds: nothing is kept before it has them. Repeating it
    changes nothing. Returns the verdict, None for the baseline.
    """
    runs = lab.ledger.runs(experiment.number)
    if all(run.state is RunState.CANCELLED for run in runs):
        lab.ledger.update_experiment(experiment.number, state=ExperimentState.CANCELLED)
        lab.worktrees.remove_experiment(experiment.number)
        return None
    verdict = judge(lab.study, history_of(lab.ledger, runs_left=runs_left), experiment.number)
    before = lab.ledger.verdicts().get(experiment.number)
    if verdict and not _same(before, verdict):
        with lab.ledger.transaction():
            lab.ledger.record_verdict(verdict)
            text = f"{experiment.variable}: {verdict.kind}, {verdict.label}"
            lab.ledger.add_event("verdict", text, experiment.number)
        before = verdict
    if before:
        write_lesson(lab, experiment, before)
    write_card(lab, experiment, before)
    with lab.ledger.transaction():
        # A verdict is reached through review; of a failed experiment there was nothing to review.
        if before is None or before.kind is not VerdictKind.FAILED:
            lab.ledger.update_experiment(experiment.number, state=ExperimentState.REVIEWED)
        if before is not None:
            lab.ledger.update_experiment(experiment.number, state=STATE_OF[before.kind])
    return before


def _same(before: Verdict | None, now: Verdict) -> bool:
    """Whether nothing worth writing down has changed: intervals breathe as the noise estimate grows, beliefs do not."""
    if before is None:
        return False
    runs = [v.effect and (v.effect.runs, v.effect.paired, v.effect.confidence) for v in (before, now)]
    return (before.kind, before.label, before.basis) == (now.kind, now.label, now.basis) and runs[0] == runs[1]


def write_lesson(lab: Lab, experiment: Experiment, verdict: Verdict) -> None:
    """Append the experiment's lesson; a lesson that says something else than the last one supersedes it."""
    earlier = [
        lesson
        for lesson in read(lab.lessons_path).lessons
        if lesson.study == lab.study.study and lesson.evidence.get("commit") == experiment.commit
    ]
    failed = [run for run in lab.ledger.runs(number=experiment.number) if run.state is RunState.FAILED]
    lesson = make_lesson(
        lab.study,
        experiment,
        verdict,
        cause=failed[-1].cause if verdict.kind is VerdictKind.FAILED and failed else None,
        supersedes=[lesson.id for lesson in earlier[-1:]],
        now=lab.now(),
    )
    if not (earlier and (earlier[-1].verdict, earlier[-1].effect) == (lesson.verdict, lesson.effect)):
        append(lab.lessons_path, lesson)


def write_card(lab: Lab, experiment: Experiment, verdict: Verdict | None) -> None:
    if experiment.commit is None:
        return
    runs = lab.ledger.runs(number=experiment.number)
    entries = [(run, lab.ledger.job(run.key), lab.ledger.observation(run.key)) for run in runs]
    tree = lab.worktrees.ensure_branch_tree(
        experiment.number, experiment.branch, experiment.base_commit, experiment.commit
    )
    subject = f"experiment {experiment.number:02d}: {verdict.kind if verdict else 'measured'}"
    body = verdict.reason if verdict else "The yardstick of the study."
    files = result_files(lab.study, experiment, entries, verdict)
    commit = lab.worktrees.commit_files(tree, files, f"{subject}\n\n{body}")
    if commit != experiment.card_commit:
        lab.ledger.update_experiment(experiment.number, card_commit=commit)
    lab.worktrees.remove_experiment(experiment.number)


review_agent = (
    StateGraph(ReviewState, context_schema=Lab)
    .add_node("audit", _audit)
    .add_edge(START, "audit")
    .add_edge("audit", END)
    .compile()
)
