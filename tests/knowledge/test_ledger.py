"""What a person can rely on: identity of experiments and runs, legal moves, nothing recorded twice or contradicted."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from nightlab.configs.study import Scalar, Study
from nightlab.errors import LedgerError
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import (
    Effect,
    ExperimentState,
    Job,
    JobState,
    Observation,
    Phase,
    Question,
    Run,
    RunState,
    StudyStatus,
    Verdict,
    VerdictKind,
    configuration_key,
)

Plan = Callable[..., Run]


def job(run: Run, *, slot: int = 0) -> Job:
    return Job(key=run.key, backend="local", slot=slot, directory=f"logs/{run.key}", worktree="tree")


def verdict(number: int, kind: VerdictKind, *, label: str = "promising") -> Verdict:
    effect = Effect(delta=0.02, low=0.01, high=0.03, unit="bits/byte", runs=1, baseline_runs=3)
    return Verdict(number=number, kind=kind, effect=effect, basis=Phase.SCREEN, label=label, reason="beyond the noise")


def walk(ledger: Ledger, run: Run, *states: RunState) -> Run:
    for state in states:
        run = ledger.update_run(run.key, state=state)
    return run


def test_the_study_comes_back_as_it_was_saved(ledger: Ledger, study: Study) -> None:
    row = ledger.study_row()
    assert (row.study, row.name, row.base_commit, row.status) == (study, "night", "c0ffee", StudyStatus.NEW)
    assert (row.design, row.deadline, row.frozen_hashes) == (None, None, {})


def test_a_study_is_saved_once_and_another_is_refused(ledger: Ledger, study: Study) -> None:
    ledger.update_study(status=StudyStatus.RUNNING)
    assert ledger.save_study(study, base_commit="c0ffee").status is StudyStatus.RUNNING
    with pytest.raises(LedgerError, match="holds the study night from commit c0ffee"):
        ledger.save_study(study, base_commit="decade")
    with pytest.raises(LedgerError, match="another name"):
        ledger.save_study(study.model_copy(update={"goal": "other"}), base_commit="c0ffee")


def test_the_study_is_changed_on_purpose(ledger: Ledger, study: Study) -> None:
    wider = study.model_copy(update={"goal": "lower loss"})
    design = [{"name": "lr", "levels": [0.003, 0.01], "ordered": True}]
    ledger.update_study(study=wider, design=design, frozen_hashes={"prepare.py": "ab12"}, phase="verify")
    row = ledger.study_row()
    assert (row.study, row.design, row.frozen_hashes, row.phase) == (wider, design, {"prepare.py": "ab12"}, "verify")


def test_before_the_study_is_saved_nothing_can_be_planned_or_read(path: Path) -> None:
    with Ledger.open(path) as empty:
        with pytest.raises(LedgerError, match="holds no study yet"):
            empty.study_row()
        with pytest.raises(LedgerError, match="holds no study yet"):
            empty.update_study(phase="verify")


def test_times_come_back_aware_and_in_utc(ledger: Ledger) -> None:
    summer = datetime(2026, 7, 1, 7, 30, tzinfo=timezone(timedelta(hours=2)))
    deadline = ledger.update_study(deadline=summer).deadline
    read = ledger.study_row().deadline
    assert deadline == read == summer
    assert read is not None and read.tzinfo is UTC and read.hour == 5
    with pytest.raises(LedgerError, match="deadline"):
        ledger.update_study(deadline=datetime(2026, 7, 1))  # noqa: DTZ001


def test_the_baseline_is_number_0_and_others_count_up(ledger: Ledger, plan: Plan) -> None:
    assert [plan(lr).number for lr in (0.003, 0.001, 0.01)] == [1, 0, 2]
    assert [e.variable for e in ledger.experiments()] == ["baseline", "lr-0-003", "lr-0-01"]
    assert ledger.experiment(2).branch == "experiment-02-pydoc-pretrain-lr-0-01"


def test_the_same_configuration_and_seed_is_the_same_run(ledger: Ledger, plan: Plan) -> None:
    first = plan(0.003, seed=1)
    assert first.key == "night/01/1/1"
    assert plan(0.003, seed=1) == first
    assert plan(0.003, seed=2, phase=Phase.CONFIRM).key == "night/01/1/2"
    assert ledger.experiment(1).phase is Phase.SCREEN
    assert [run.phase for run in ledger.runs(1)] == [Phase.SCREEN, Phase.CONFIRM]
    assert ledger.spend_totals().runs == 2


def test_a_changed_baseline_is_refused_and_nothing_is_written(ledger: Ledger, plan: Plan) -> None:
    plan()
    with pytest.raises(LedgerError, match="baseline's parameters differ"):
        plan(width=128)
    assert len(ledger.experiments()) == len(ledger.runs()) == 1


def test_planning_is_all_or_nothing(ledger: Ledger, plan: Plan) -> None:
    def no_branch(number: int, variable: str) -> str:
        raise ValueError(f"no name for {number} {variable}")

    with pytest.raises(ValueError, match="no name for 1"):
        plan(0.003, branch_for=no_branch)
    plan(0.003)
    with pytest.raises(LedgerError, match="UNIQUE constraint failed"):
        plan(0.01, branch_for=lambda *_: ledger.experiment(1).branch)
    assert (len(ledger.experiments()), len(ledger.runs()), ledger.spend_totals().runs) == (1, 1, 1)


@pytest.mark.parametrize("end", [RunState.FAILED, RunState.CANCELLED])
def test_only_what_failed_or_was_cancelled_gets_a_next_attempt(ledger: Ledger, plan: Plan, end: RunState) -> None:
    first = plan(0.003)
    assert plan(0.003, retry=True) == first == ledger.retry(first.key)
    ended = walk(ledger, first, end)
    assert plan(0.003) == ended
    second = plan(0.003, retry=True)
    assert (second.key, second.attempt, second.state) == ("night/01/2/0", 2, RunState.PLANNED)
    assert plan(0.003, retry=True) == second == ledger.retry(first.key)
    assert walk(ledger, second, end) == plan(0.003)
    assert ledger.retry(second.key).attempt == 3
    assert ledger.spend_totals().runs == 3


def test_configurations_are_told_apart_by_value() -> None:
    assert configuration_key({"a": 1, "b": 2.5}) == configuration_key({"b": 2.5, "a": 1.0})
    distinct: list[dict[str, Scalar]] = [{"a": 1}, {"a": True}, {"a": "1"}, {"a": 1.5}, {"b": 1}, {}]
    assert len({configuration_key(p) for p in distinct}) == len(distinct)


def test_runs_are_listed_as_planned_and_by_state(ledger: Ledger, plan: Plan) -> None:
    b, a, again = plan(0.01, seed=7), plan(0.003), plan(0.01, seed=3)
    walk(ledger, a, RunState.SUBMITTED)
    assert [run.key for run in ledger.runs()] == [b.key, a.key, again.key]
    assert [run.key for run in ledger.runs(states=[RunState.PLANNED])] == [b.key, again.key]
    assert [run.key for run in ledger.runs(1, states=(RunState.SUBMITTED, RunState.PLANNED))] == [b.key, again.key]
    ledger.update_experiment(2, state=ExperimentState.PREPARED)
    assert [e.number for e in ledger.experiments(states=[ExperimentState.PREPARED])] == [2]


def test_what_is_not_there_is_named(ledger: Ledger) -> None:
    for ask, what in (
        (lambda: ledger.experiment(7), "no experiment 07"),
        (lambda: ledger.run("night/07/1/0"), "no run night/07/1/0"),
        (lambda: ledger.retry("night/07/1/0"), "no run night/07/1/0"),
        (lambda: ledger.update_job("night/07/1/0", slot=1), "no job night/07/1/0"),
        (lambda: ledger.answer("plan", "yes", by="me"), "no question plan"),
    ):
        with pytest.raises(LedgerError, match=what):
            ask()
    assert [ledger.job("x"), ledger.observation("x"), ledger.question("x")] == [None] * 3


@pytest.mark.parametrize(
    ("states", "illegal"),
    [
        ([], RunState.MEASURED),
        ([RunState.SUBMITTED, RunState.FINISHED], RunState.SUBMITTED),
        ([RunState.SUBMITTED, RunState.FINISHED], RunState.REVIEWED),
        ([RunState.SUBMITTED, RunState.FINISHED, RunState.MEASURED], RunState.FAILED),
        ([RunState.FAILED], RunState.SUBMITTED),
    ],
)
def test_illegal_moves_of_a_run_change_nothing(
    ledger: Ledger, plan: Plan, states: list[RunState], illegal: RunState
) -> None:
    run = walk(ledger, plan(0.003), *states)
    with pytest.raises(LedgerError, match=f"{illegal} cannot follow {run.state}"):
        ledger.update_run(run.key, state=illegal, cause="x")
    assert ledger.run(run.key) == run == ledger.update_run(run.key, state=run.state)


@pytest.mark.parametrize(
    ("states", "illegal"),
    [
        ([], ExperimentState.KEPT),
        ([], ExperimentState.RUNNING),
        ([ExperimentState.PREPARED], ExperimentState.PLANNED),
        ([ExperimentState.FAILED], ExperimentState.KEPT),
    ],
)
def test_illegal_moves_of_an_experiment_change_nothing(
    ledger: Ledger, plan: Plan, states: list[ExperimentState], illegal: ExperimentState
) -> None:
    plan(0.003)
    for state in states:
        ledger.update_experiment(1, state=state)
    with pytest.raises(LedgerError, match=f"{illegal} cannot follow"):
        ledger.update_experiment(1, state=illegal)
    assert ledger.experiment(1).state == (states or [ExperimentState.PLANNED])[-1]


def test_further_seeds_follow_a_verdict(ledger: Ledger, plan: Plan) -> None:
    plan(0.003)
    way = ["prepared", "running", "reviewed", "kept", "prepared", "running", "discarded", "failed", "prepared"]
    for state in way:
        ledger.update_experiment(1, state=ExperimentState(state))
    assert ledger.experiment(1).state is ExperimentState.PREPARED


def test_identity_and_unknown_fields_cannot_be_changed(ledger: Ledger, plan: Plan) -> None:
    run = plan(0.003)
    with pytest.raises(LedgerError, match="seed cannot be changed"):
        ledger.update_run(run.key, seed=5)
    with pytest.raises(LedgerError, match=r"colour: Extra inputs"):
        ledger.update_run(run.key, colour="red")
    with pytest.raises(LedgerError, match="state: Input should be"):
        ledger.update_run(run.key, state="asleep")
    with pytest.raises(LedgerError, match="name cannot be changed"):
        ledger.update_study(name="other")


def test_one_branch_belongs_to_one_experiment(ledger: Ledger, plan: Plan) -> None:
    plan(0.003)
    plan(0.01)
    with pytest.raises(LedgerError, match=r"UNIQUE constraint failed: experiments\.branch"):
        ledger.update_experiment(2, branch=ledger.experiment(1).branch)


def test_a_job_is_intended_once(ledger: Ledger, plan: Plan) -> None:
    run = plan(0.003)
    assert ledger.intend_job(job(run, slot=0)).slot == 0
    assert ledger.intend_job(job(run, slot=1)).slot == 1
    ledger.adopt(run.key, "4711")
    held = ledger.intend_job(job(run, slot=3))
    assert (held.slot, held.native_id, held.state) == (1, "4711", JobState.RUNNING)
    assert ledger.jobs() == [held]


def test_a_job_needs_a_run(ledger: Ledger, plan: Plan) -> None:
    run = plan(0.003)
    with pytest.raises(LedgerError, match="FOREIGN KEY constraint failed"):
        ledger.intend_job(job(run).model_copy(update={"key": "night/09/1/0"}))


def test_adopting_a_job_moves_run_and_experiment(ledger: Ledger, plan: Plan) -> None:
    run = plan(0.003)
    ledger.update_experiment(1, state=ExperimentState.PREPARED)
    ledger.intend_job(job(run))
    for _ in range(2):
        ledger.adopt(run.key, "4711")
    assert ledger.run(run.key).state is RunState.SUBMITTED
    assert ledger.experiment(1).state is ExperimentState.RUNNING


def test_jobs_are_listed_by_state_and_experiment(ledger: Ledger, plan: Plan) -> None:
    first, second = plan(0.01), plan(0.003)
    for run in (second, first):
        ledger.intend_job(job(run))
    ended = ledger.update_job(first.key, state=JobState.ENDED, exit_code=-9, wall_seconds=1.5, peak_memory_bytes=2**40)
    assert ledger.jobs(states=[JobState.ENDED]) == [ended]
    assert [j.key for j in ledger.jobs()] == [first.key, second.key]
    assert [j.key for j in ledger.jobs(2)] == [second.key]


def test_a_run_is_measured_once(ledger: Ledger, plan: Plan) -> None:
    run = plan(0.003)
    seen = Observation(key=run.key, values={"val_bpb": 2.5, "mb": 10.0}, sources={"val_bpb": "stdout.log"})
    ledger.record_observation(seen)
    ledger.record_observation(seen.model_copy(update={"read_at": datetime.now(UTC)}))
    with pytest.raises(LedgerError, match="measured as"):
        ledger.record_observation(seen.model_copy(update={"values": {"val_bpb": 2.4}}))
    assert ledger.observation(run.key) == seen
    assert ledger.observations() == [seen]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_value_that_is_not_finite_is_refused(ledger: Ledger, plan: Plan, value: float) -> None:
    run = plan(0.003)
    with pytest.raises(LedgerError, match="not finite: val_bpb"):
        ledger.record_observation(Observation(key=run.key, values={"val_bpb": value}))
    assert ledger.observations() == []


def test_measured_runs_join_experiment_run_and_objective(ledger: Ledger, plan: Plan) -> None:
    runs = [plan(0.003), plan(), plan(0.003, seed=1)]
    ledger.record_observation(Observation(key=runs[0].key, values={"val_bpb": 2.5, "mb": 1.0}))
    ledger.record_observation(Observation(key=runs[1].key, values={"mb": 1.0}))
    rows = ledger.measured_runs()
    assert [(e.number, r.key, v) for e, r, v in rows] == [
        (1, runs[0].key, 2.5),
        (0, runs[1].key, None),
        (1, runs[2].key, None),
    ]


def test_verdicts_keep_their_history(ledger: Ledger, plan: Plan) -> None:
    for lr in (0.003, 0.01):
        plan(lr)
    first, second = verdict(1, VerdictKind.INCONCLUSIVE), verdict(1, VerdictKind.KEEP)
    other = verdict(2, VerdictKind.DISCARD).model_copy(update={"effect": None})
    for one in (first, other, second, second.model_copy(update={"decided_at": datetime.now(UTC)})):
        ledger.record_verdict(one)
    assert ledger.verdicts() == {1: second, 2: other}
    assert ledger.verdict_history(1) == [first, second]


def test_a_question_is_asked_and_answered_once(ledger: Ledger) -> None:
    question = Question(
        id="plan", study="night", kind="approve-plan", text="Go on?", options=["yes", "no"], default="no"
    )
    assert ledger.ask(question) == question
    assert ledger.questions(open_only=True) == [question]
    with pytest.raises(LedgerError, match="'maybe' is not among yes, no"):
        ledger.answer("plan", "maybe", by="me")
    answered = ledger.answer("plan", "yes", by="me")
    assert (answered.answer, answered.answered_by) == ("yes", "me")
    assert ledger.answer("plan", "yes", by="you") == answered == ledger.ask(question) == ledger.question("plan")
    with pytest.raises(LedgerError, match="was answered 'yes' by me"):
        ledger.answer("plan", "no", by="you")
    assert (ledger.questions(open_only=True), ledger.questions()) == ([], [answered])


def test_spend_is_reserved_then_settled(ledger: Ledger, plan: Plan) -> None:
    runs = [plan(0.003, seed=seed) for seed in range(3)]
    for _ in range(2):
        ledger.settle(runs[0].key, wall_seconds=60.0, gpu_hours=0.5)
    ledger.settle(runs[1].key, wall_seconds=0.0, runs=0)
    totals = ledger.spend_totals()
    assert (totals.runs, totals.settled_runs, totals.wall_seconds, totals.gpu_hours) == (2, 1, 60.0, 0.5)


def test_events_are_read_from_where_one_left_off(ledger: Ledger, plan: Plan) -> None:
    plan(0.003)
    ledger.add_event("design", "2 factors")
    ledger.add_event("planned", "try it – größer", 1)
    first, second = ledger.events()
    assert (first.kind, second.text, second.number) == ("design", "try it – größer", 1)
    assert ledger.events(after=first.id) == [second]
    assert ledger.events(after=second.id) == []
    assert first.time.tzinfo is UTC


def test_several_writes_can_be_one_transaction(ledger: Ledger, plan: Plan) -> None:
    def end(run: Run, *, state: RunState) -> None:
        with ledger.transaction():
            ledger.settle(run.key, wall_seconds=5.0)
            ledger.add_event("ended", "…", run.number)
            assert len(ledger.events()) == 1
            ledger.update_run(run.key, state=state)

    run = plan(0.003)
    with pytest.raises(LedgerError, match="cannot follow"):
        end(run, state=RunState.REVIEWED)
    assert (ledger.events(), ledger.spend_totals().wall_seconds) == ([], 0.0)
    end(run, state=RunState.FAILED)
    assert (len(ledger.events()), ledger.run(run.key).state) == (1, RunState.FAILED)
