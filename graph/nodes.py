"""The supervisor's steps. Each is short, idempotent, and asks the ledger what is due; agents do the work."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from langgraph.runtime import Runtime
from langgraph.types import interrupt

from nightlab.agents.analysis import analysis_agent, write_analysis_report
from nightlab.agents.comparison import keep_comparison
from nightlab.agents.context import Lab
from nightlab.agents.evaluation import cancel_unstarted, evaluation_agent, observe_jobs
from nightlab.agents.failures import retries_due, retry, waiting
from nightlab.agents.history import history_of
from nightlab.agents.model_calls import settle_calls_of_the_dead
from nightlab.agents.recovery import write_study
from nightlab.agents.repair import repairs_due
from nightlab.agents.review import conclude_experiment, review_agent, settled_experiments
from nightlab.agents.saturation import data_factors
from nightlab.agents.stress import adopt_stresses, cancel_stresses, observe_stresses, running_stresses, submit_stresses
from nightlab.agents.training import adopt_started, due, free_slots, training_agent
from nightlab.errors import GitError
from nightlab.graph.advising import is_seeking_advice, seek_advice
from nightlab.graph.budget import history_now, reserve, run_seconds, runs_left
from nightlab.graph.decisions import ask_at_the_end, best_kept, breaker_stops, spending_stops
from nightlab.graph.disk import watch_disk
from nightlab.graph.mending import mend
from nightlab.graph.notices import tell_best, tell_end
from nightlab.graph.proposals import settle_proposals
from nightlab.graph.questions import (
    answer_model,
    ask_plan,
    decides_the_end,
    holding,
    is_held,
    news_of,
    next_to_ask,
    settle_overdue,
)
from nightlab.graph.repairing import repair_failed
from nightlab.graph.reviewing import await_reviews, is_reviewing, pairs_due, reviewed, start_reviews, without_questioned
from nightlab.graph.state import LabState
from nightlab.graph.stressing import (
    is_stressing,
    is_under_stress,
    start_stress,
    stress_verdict,
    stressed,
    without_broken,
)
from nightlab.knowledge.records import JobState, Phase, Proposal, RunState
from nightlab.search.belief import judge_all
from nightlab.search.confirmation import exploration_left
from nightlab.search.engine import lookahead, propose
from nightlab.search.history import History
from nightlab.search.levels import held_back
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

WAIT_SECONDS = 30.0
"""Longest sleep between two turns of the loop; a job's end or a request to stop cuts it short."""
PATIENCE_SECONDS = 300.0
"""How long slots may stand idle for one answer of a model, where runs are shorter than that."""
SLICE_SECONDS = 0.5
"""How long a request to stop may go unnoticed."""
PRUNE_EVERY = 16
"""Turns of the loop between two prunings of the checkpoints."""


def _keys(lab: Lab, state: RunState) -> list[str]:
    return [run.key for run in lab.ledger.runs(states=(state,))]


def reconcile(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Roll forward what a killed lab left half done: worktrees, and submissions whose result was never recorded."""
    lab = runtime.context
    lab.worktrees.heal()
    adopt_started(lab)
    adopt_stresses(lab)
    settle_calls_of_the_dead(lab)
    row = lab.ledger.study_row()
    phase = "understand" if row.design is None else "verify"
    if row.phase != phase:
        lab.ledger.update_study(phase=phase)
    return {"phase": phase, "steps": state.get("steps", 0), "exhausted": False}


def observe(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Record which jobs have ended; what was lost with its machine is planned again."""
    lab = runtime.context
    lab.aside.take()
    watch_disk(lab)
    settle_overdue(lab)
    # From here on the turn decides by what is known now: what changes meanwhile cuts its wait short.
    lab.heard = news_of(lab)
    stress_ended = observe_stresses(lab)
    ended = observe_jobs(lab)
    if lab.is_overdue:
        _end_overdue(lab)
    _retry_failed(lab)
    if ended or stress_ended:
        lab.on_change()
    return {}


def _end_overdue(lab: Lab) -> None:
    """The budget's last moment: what has not started is cancelled, what still runs is ended."""
    if jobs := _running(lab):
        lab.backend.cancel(jobs)
        observe_jobs(lab)
    for run in lab.ledger.runs(states=(RunState.PLANNED,)):
        cancel_unstarted(lab, run)
    if lab.study.stress:
        cancel_stresses(lab, "the wall-clock budget ran out")


def _retry_failed(lab: Lab) -> None:
    """Start again, within the budget, what failed for a reason that another attempt may not meet, or is mended."""
    mend(lab)
    repair_failed(lab)
    for run in retries_due(lab):
        if runs_left(lab) > 0:
            with lab.ledger.transaction():
                reserve(lab, retry(lab, run))


def refill(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Put runs that are already prepared into the slots that have just become free."""
    return submit(state, runtime)


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
        # No slot waits for a model: what it says is taken up when it comes.
        analysis_agent.invoke({"symptoms": [], "by_rules": lab.models is not None}, context=lab)
        write_study(lab.paths, lab.ledger.study_row())
    seek_advice(lab)
    ask_plan(lab)
    settle_proposals(lab)
    return {"phase": "verify"} if lab.ledger.study_row().design is not None else {}


def ask(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Wait for a person, outside of any process.

    Nothing that has an effect may stand before the interrupt: this node is run again from its top on resume. An answer
    that is not among the options is refused there, and can be given again.
    """
    lab = runtime.context
    question = lab.ledger.question(state["asking"])
    if question is None or question.answer is not None:
        return {}
    given = interrupt(question.model_dump(mode="json"), response_schema=answer_model(question))
    with lab.ledger.transaction():
        lab.ledger.answer(question.id, given.answer, by=given.by)
        lab.ledger.add_event("answered", f"{question.id}: {given.answer}, by {given.by}")
    return {}


def plan(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Plan what the free slots can take, and a little more; nothing left to try says that the search is over."""
    lab = runtime.context
    if lab.stop_requested():
        return {}
    # Before anything is proposed: a run to be retried says nothing, and would be proposed again without its remedy.
    _retry_failed(lab)
    is_over = decides_the_end(lab)
    if not is_over:
        _look_for_ideas(lab)
    room = len(free_slots(lab)) + lookahead(lab.study) - len(_keys(lab, RunState.PLANNED))
    if room <= 0:
        return {"exhausted": False}
    if is_over:
        return _plan_last(lab, pairs_due(lab, history_now(lab)), room)
    pairs = pairs_due(lab, history_now(lab))
    proposals = [*pairs, *_proposals(lab, history_now(lab))]
    if proposals:
        # Only where there is something left to try is there something to ask.
        left_out, breaks = breaker_stops(lab)
        if spending_stops(lab):
            return _plan_last(lab, [], room)
        if breaks:
            return _plan_last(lab, pairs, room)
        if is_held(lab):
            return {"exhausted": False}
        if left_out:
            proposals = [*pairs, *_proposals(lab, history_now(lab), left_out)]
    _take_up(lab, proposals, room)
    if proposals or (_is_expecting(lab) and _may_explore(lab)):
        return {"exhausted": False}
    is_advised = is_seeking_advice(lab) and lab.aside.busy_seconds < _patience(lab)
    is_waiting = is_advised or bool(lab.models and repairs_due(lab))
    return {"exhausted": not _is_settling(lab, history_now(lab)) and not is_waiting}


def _plan_last(lab: Lab, pairs: list[Proposal], room: int) -> Update:
    """A person has ended the search: nothing new is tried, but what is claimed by now still goes through its checks."""
    _take_up(lab, pairs, room)
    return {"exhausted": not pairs and not _is_settling(lab, _last_history(lab))}


def _is_settling(lab: Lab, history: History) -> bool:
    """Whether a claim waits for its review or its stress checks; both are begun here where they are due."""
    is_reviewed = is_reviewing(lab, history)
    return is_stressing(lab, history) or is_reviewed


def _last_history(lab: Lab) -> History:
    """Everything without runs left, whatever the budget would allow: none is to come that could change a verdict."""
    return history_of(lab.ledger, known=lab.configurations)


def _take_up(lab: Lab, proposals: list[Proposal], room: int) -> None:
    """Plan the first of the proposals, within the budget's reservation."""
    for proposal in proposals[: room if lab.has_room else 0]:
        with lab.ledger.transaction():
            run = lab.ledger.plan(
                proposal,
                scenario=lab.study.scenario,
                method=lab.study.method,
                base_model=lab.study.base_model,
                base_commit=lab.base_commit,
                branch_for=partial(_free_branch, lab),
                # Only what was cancelled or lost is proposed again: it says nothing.
                retry=True,
            )
            reserve(lab, run)
            lab.ledger.add_event("planned", proposal.reason, run.number)


def _look_for_ideas(lab: Lab) -> None:
    """Take up the ideas that have come, and have further ones asked for while there is budget to try them."""
    if lab.ideas is None or not lab.study.code.mutable:
        return
    lab.ideas.take(lab)
    # Also while the baseline runs: a slot that is free after it must not wait for a model.
    if _may_explore(lab):
        lab.ideas.ask(lab)


def _may_explore(lab: Lab) -> bool:
    """Whether something new could still be tried: nothing is being confirmed yet, and the budget allows it."""
    history = history_now(lab)
    if any(trial.phase == Phase.CONFIRM and trial.changed for trial in history.trials):
        return False
    return exploration_left(lab.study, history) > 0 and history.experiments_left != 0


def _is_expecting(lab: Lab) -> bool:
    """Whether confirmation waits for an idea: for one that has come, and a while for one that a model thinks about."""
    if lab.ideas is None:
        return False
    return lab.ideas.has_news or (lab.ideas.is_thinking and lab.ideas.thinking_seconds < _patience(lab))


def _patience(lab: Lab) -> float:
    """How long slots may stand idle for one answer of a model, in seconds: at least as long as a run takes."""
    return max(PATIENCE_SECONDS, run_seconds(lab) or 0.0)


def _proposals(lab: Lab, history: History, left_out: frozenset[str] = frozenset()) -> list[Proposal]:
    """What may start now, nothing new of the factors that the breaker holds back among it."""
    history = without_questioned(lab, without_broken(lab, history))
    history = held_back(lab.study, history, left_out)
    history = replace(history, expecting=_is_expecting(lab), data=data_factors(lab, history))
    return propose(lab.study, history, lab.study.search.seed)


def _free_branch(lab: Lab, number: int, variable: str) -> str:
    """The experiment's branch; where another study has that one, its variable ends in this study's name."""
    study = lab.study
    for name in (variable, *(f"{variable}-{study.study}{mark}" for mark in ("", *(f"-{n}" for n in range(2, 100))))):
        branch = branch_name(number, study.scenario, study.method, name)
        if lab.worktrees.is_free(branch, lab.base_commit):
            return branch
    raise GitError(f"{lab.paths.root}: every branch name for {variable} is taken (delete or rename old branches)")


def submit(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Prepare and submit what was planned; what finds no slot is prepared for the next one."""
    lab = runtime.context
    if lab.stop_requested() or not lab.has_room or lab.is_paused:
        return {}
    if lab.study.stress:
        submit_stresses(lab)
    if keys := due(lab):
        training_agent.invoke({"keys": keys}, context=lab)
    return {}


def learn(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Verdict, lesson and result card of every experiment that has become complete."""
    lab = runtime.context
    # Before anything is concluded: of what waits for a person nothing is known yet.
    is_mended = mend(lab)
    baseline = [run for run in lab.ledger.runs(number=0) if run.state is RunState.REVIEWED]
    # Before the noise is known nothing can be judged; the experiments keep until it is.
    if len(baseline) >= lab.study.search.baseline_replicates:
        _conclude_settled(lab)
    steps = state.get("steps", 0) + 1
    if steps % PRUNE_EVERY == 0:
        lab.prune_checkpoints()
    lab.back_up()
    asked = next_to_ask(lab)
    update: Update = {"steps": steps, "asking": asked.id if asked else ""}
    # What was answered since the last planning may make a claim, which planning looks at before the end.
    return update | {"exhausted": False} if is_mended else update


def _conclude_settled(lab: Lab) -> None:
    """Conclude what is settled until a job ends: a free slot is worth more than a card, which the next turn writes."""
    held = waiting(lab)
    settled = [experiment for experiment in settled_experiments(lab) if experiment.number not in held]
    if not settled:
        return
    history = _last_history(lab) if decides_the_end(lab) else history_now(lab)
    verdicts = judge_all(lab.study, history)
    start_reviews(lab, verdicts, settled)
    start_stress(lab, verdicts, settled)
    jobs = _running(lab) | running_stresses(lab)
    for experiment in settled:
        verdict = verdicts.get(experiment.number)
        believed = stressed(lab, reviewed(lab, experiment, verdict, history))
        if (believed is None and verdict is not None) or is_under_stress(lab, experiment.number):
            # Its reviewer has yet to answer, or its stress checks to end.
            continue
        conclude_experiment(lab, experiment, believed)
        if jobs and lab.backend.wait(jobs, 0.0):
            break
    tell_best(lab)


def _running(lab: Lab) -> dict[str, Path]:
    return {job.key: Path(job.directory) for job in lab.ledger.jobs(states=(JobState.RUNNING,))}


def wait(state: LabState, runtime: Runtime[Lab]) -> Update:
    """Sleep until a job ends or is ended, a full disk has room, somebody stops or answers, or the time is over."""
    lab = runtime.context
    jobs, had_room = _running(lab) | running_stresses(lab), lab.has_room
    is_idle = not jobs and had_room and not lab.is_paused and not holding(lab)
    give_up = time.monotonic() + (SLICE_SECONDS if is_idle else WAIT_SECONDS)
    while time.monotonic() < give_up and not lab.stop_requested() and not lab.is_overdue:
        if _ended(lab, jobs):
            break
        if (lab.has_room and not had_room) or news_of(lab) != lab.heard or (lab.ideas and lab.ideas.has_news):
            break
        if lab.aside.has_news:
            break
        if lab.watch.look(lab, time.monotonic()) or lab.pruner.look(lab, time.monotonic()):
            break
    return {}


def _ended(lab: Lab, jobs: dict[str, Path]) -> bool:
    """Whether a job ends within a slice of time; without any, whether an idea comes."""
    if not jobs and lab.ideas is not None and lab.ideas.is_thinking:
        return lab.ideas.wait(SLICE_SECONDS)
    if not jobs and lab.aside.is_busy:
        return lab.aside.wait(SLICE_SECONDS)
    return lab.backend.wait(jobs, SLICE_SECONDS) and bool(jobs)


def _has_budget(lab: Lab) -> bool:
    history = history_now(lab)
    return history.runs_left > 0 and history.experiments_left != 0


def conclude(state: LabState, runtime: Runtime[Lab]) -> Update:
    """The night is over: judge everything once more with all that is known, and close the books."""
    lab = runtime.context
    if lab.ideas is not None:
        lab.ideas.close()
    history = _last_history(lab)
    verdicts = judge_all(lab.study, history)
    await_reviews(lab, verdicts)
    # The lab may stay for days after this, for answers: nothing is asked of a model any more.
    lab.aside.close()
    for experiment in lab.ledger.experiments():
        verdict = verdicts.get(experiment.number)
        believed = reviewed(lab, experiment, verdict, history) or verdict
        if believed is not None:
            # What was not measured until now stays so.
            believed = stress_verdict(lab.study, lab.ledger, believed)
        conclude_experiment(lab, experiment, believed)
    write_analysis_report(lab)
    if best := best_kept(lab):
        keep_comparison(lab, best[0].number)
    lab.worktrees.remove_all()
    tell_best(lab)
    ask_at_the_end(lab, exhausted=state.get("exhausted", False) and not lab.is_overdue and _has_budget(lab))
    if lab.ledger.study_row().finished_at is None:
        with lab.ledger.transaction():
            lab.ledger.update_study(finished_at=lab.now(), phase="done")
            lab.ledger.add_event("finished", "every verdict is in")
    # Also where a lab wrote the end down and was killed before it told anybody.
    tell_end(lab)
    lab.write_reports()
    return {"phase": "done"}
