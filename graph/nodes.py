"""The supervisor's steps. Each is short, idempotent, and asks the ledger what is due; agents do the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from nightlab.agents.analysis import analysis_agent, write_analysis_report
from nightlab.agents.context import Lab
from nightlab.agents.evaluation import cancel, evaluation_agent, observe_jobs
from nightlab.agents.history import history_of
from nightlab.agents.review import conclude_experiment, review_agent, settled_experiments
from nightlab.agents.training import free_slots, training_agent
from nightlab.graph.budget import experiments_left, past_deadline, runs_left
from nightlab.graph.questions import PLAN, plan_question
from nightlab.graph.state import LabState
from nightlab.knowledge.records import JobState, RunState
from nightlab.search.engine import propose
from nightlab.worktrees.names import branch_name

__all__ = [
    "ask",
    "conclude",
    "evaluate",
    "learn",
    "observe",
    "plan",
    "reconcile",
    "refill",
    "review",
    "submit",
    "understand",
    "wait",
]

Update = dict[str, Any]

LOOKAHEAD = 1
"""Runs planned and prepared beyond the free slots, so that a slot is refilled the moment a job ends."""
WAIT_SECONDS = 30.0
"""Longest sleep between two turns of the loop; a job's end or a request to stop cuts it short."""
SLICE_SECONDS = 0.5
"""How long a request to stop may go unnoticed."""
PRUNE_EVERY = 16
"""Turns of the loop between two prunings of the checkpoints."""
ATTEMPTS = 2
"""How often a run whose job was lost with its machine is started."""


def _keys(lab: Lab, state: RunState) -> list[str]:
    return [run.key for run in lab.ledger.runs(states=(state,))]


def reconcile(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Roll forward what a killed lab left half done: worktrees, and submissions whose result was never recorded."""
    lab = runtime.context
    lab.worktrees.heal()
    for job in lab.ledger.jobs(states=(JobState.INTENDED,)):
        native_id = lab.backend.find(job.key, Path(job.directory))
        if native_id is not None:
            lab.ledger.adopt(job.key, native_id)
    return {"phase": state.get("phase", "understand"), "steps": state.get("steps", 0)}


def observe(state: LabState, runtime: Runtime[Lab]) -> Update:
    lab = runtime.context
    if observe_jobs(lab):
        lab.on_change()
    if past_deadline(lab):
        _end_overdue(lab)
    return {}


def _end_overdue(lab: Lab) -> None:
    """The budget's last moment: what has not started is cancelled, what still runs is ended."""
    jobs = {job.key: Path(job.directory) for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
    cut_short = set(lab.backend.cancel(jobs)) if jobs else set()
    observe_jobs(lab, cancelled=cut_short)
    for run in lab.ledger.runs(states=(RunState.PLANNED,)):
        cancel(lab, run)


def refill(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Put runs that are already prepared into the slots that have just become free."""
    lab = runtime.context
    keys = _keys(lab, RunState.PLANNED)
    if keys and free_slots(lab) and not lab.stop_requested():
        training_agent.invoke({"keys": keys}, context=lab)
    return {}


def evaluate(state: LabState, runtime: Runtime[Lab]) -> Update:
    keys = _keys(runtime.context, RunState.FINISHED)
    if keys:
        evaluation_agent.invoke({"keys": keys}, context=runtime.context)
    return {}


def review(state: LabState, runtime: Runtime[Lab]) -> Update:
    keys = _keys(runtime.context, RunState.MEASURED)
    if keys:
        review_agent.invoke({"keys": keys}, context=runtime.context)
    return {}


def understand(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Once the baseline has its first believed value: diagnosis and design."""
    lab = runtime.context
    baseline = [run for run in lab.ledger.runs(number=0) if run.state is RunState.REVIEWED]
    if lab.ledger.study_row().design is None and baseline:
        analysis_agent.invoke({"symptoms": []}, context=lab)
        return {"phase": "verify"}
    return {"phase": state["phase"]}


def ask(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Nothing but the interrupt may stand before the answer: this node is run again from its top on resume."""
    lab = runtime.context
    answer = interrupt(plan_question(lab).model_dump(mode="json"))
    lab.ledger.answer(PLAN, str(answer["answer"]), by=str(answer["by"]))
    return {}


def plan(state: LabState, runtime: Runtime[Lab]) -> Update:
    lab = runtime.context
    if lab.stop_requested():
        return {}
    _retry_lost(lab)
    waiting = len(_keys(lab, RunState.PLANNED))
    room = len(free_slots(lab)) + LOOKAHEAD - waiting
    if room <= 0:
        return {}
    history = history_of(lab.ledger, runs_left=runs_left(lab), experiments_left=experiments_left(lab))
    for proposal in propose(lab.study, history, lab.study.search.seed)[:room]:
        with lab.ledger.transaction():
            run = lab.ledger.plan(
                proposal,
                scenario=lab.study.scenario,
                method=lab.study.method,
                base_model=lab.study.base_model,
                base_commit=lab.base_commit,
                branch_for=lambda number, variable: branch_name(number, lab.study.scenario, lab.study.method, variable),
            )
            lab.ledger.add_event("planned", proposal.reason, run.number)
    return {}


def _retry_lost(lab: Lab) -> None:
    """A run lost with its machine says nothing about its configuration: start it again."""
    for run in lab.ledger.runs(states=(RunState.FAILED,)):
        if run.cause == "lost" and run.attempt < ATTEMPTS and runs_left(lab) > 0:
            lab.ledger.retry(run.key)


def submit(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Prepare and submit what was planned; what finds no slot is prepared for the next one."""
    lab = runtime.context
    keys = _keys(lab, RunState.PLANNED)
    if keys and not lab.stop_requested():
        training_agent.invoke({"keys": keys}, context=lab)
    return {}


def learn(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Verdict, lesson and result card of every experiment that has become complete."""
    lab = runtime.context
    baseline = [run for run in lab.ledger.runs(number=0) if run.state is RunState.REVIEWED]
    # Before the noise is known nothing can be judged; the experiments keep until it is.
    if len(baseline) >= lab.study.search.baseline_replicates:
        for experiment in settled_experiments(lab):
            conclude_experiment(lab, experiment, runs_left=runs_left(lab))
            lab.on_change()
    steps = state.get("steps", 0) + 1
    if steps % PRUNE_EVERY == 0:
        lab.prune_checkpoints()
    return {"steps": steps}


def wait(state: LabState, runtime: Runtime[Lab]) -> Update:
    lab = runtime.context
    jobs = {job.key: Path(job.directory) for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
    slept = 0.0
    while jobs and slept < WAIT_SECONDS and not lab.stop_requested() and not past_deadline(lab):
        if lab.backend.wait(jobs, SLICE_SECONDS):
            break
        slept += SLICE_SECONDS
    return {}


def conclude(state: LabState, runtime: Runtime[Lab]) -> Update:
    """The night is over: judge everything once more with all that is known, and close the books."""
    lab = runtime.context
    for experiment in lab.ledger.experiments():
        conclude_experiment(lab, experiment, runs_left=0)
    write_analysis_report(lab)
    lab.worktrees.remove_all()
    if lab.ledger.study_row().finished_at is None:
        lab.ledger.update_study(finished_at=lab.now(), phase="done")
        lab.ledger.add_event("finished", "every verdict is in")
    lab.write_reports()
    return {"phase": "done"}
