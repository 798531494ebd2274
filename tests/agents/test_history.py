"""The ledger as the search sees it: attempts, cancelled, rejected, lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from nightlab.agents.design import Design, write_design
from nightlab.agents.history import history_of
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.ledger import Configuration, Ledger
from nightlab.knowledge.records import Job, Observation, Phase, Proposal, Run, RunState
from nightlab.search.history import RankedFactor
from tests.task import study_data

SETTING = {"scenario": "toy", "method": "pretrain", "base_model": "none", "base_commit": "c" * 40}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        ledger.save_study(Study.model_validate(study_data()), base_commit="c" * 40)
        yield ledger


def plan(ledger: Ledger, changed: dict[str, Scalar], seed: int = 0, *, retry: bool = False) -> Run:
    proposal = Proposal(
        parameters={**study_data()["parameters"], **changed},
        changed=changed,
        variable="x",
        phase=Phase.SCREEN,
        seed=seed,
        reason="r",
    )
    return ledger.plan(proposal, branch_for=lambda number, _: f"experiment-{number:02d}", retry=retry, **SETTING)


def submit(ledger: Ledger, run: Run) -> None:
    ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory="d", worktree="w"))
    ledger.adopt(run.key, "1")


def measure(ledger: Ledger, run: Run, value: float, state: RunState = RunState.REVIEWED) -> None:
    submit(ledger, run)
    ledger.update_run(run.key, state=RunState.FINISHED)
    ledger.record_observation(Observation(key=run.key, values={"val_loss": value}))
    ledger.update_run(run.key, state=RunState.MEASURED)
    if state is not RunState.MEASURED:
        ledger.update_run(run.key, state=state)


def lose(ledger: Ledger, run: Run) -> None:
    submit(ledger, run)
    # As `agents.failures.fail` records it: the first loss is tried again, the second is not.
    step = "retry" if run.attempt == 1 else "give_up"
    ledger.update_run(run.key, state=RunState.FAILED, cause="lost", next_step=step)


def states(ledger: Ledger) -> list[tuple[int, int, str, float | None]]:
    return [(t.number, t.seed, t.state, t.usable) for t in history_of(ledger).trials]


def test_a_run_is_pending_until_review_believes_it(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    assert states(ledger) == [(1, 0, "pending", None)]
    measure(ledger, run, 1.5, RunState.MEASURED)
    assert states(ledger) == [(1, 0, "pending", None)]
    ledger.update_run(run.key, state=RunState.REVIEWED)
    assert states(ledger) == [(1, 0, "measured", 1.5)]


def test_a_rejected_value_is_there_but_not_usable(ledger: Ledger) -> None:
    measure(ledger, plan(ledger, {"lr": 0.01}), 0.1, RunState.REJECTED)
    (trial,) = history_of(ledger).trials
    assert trial.value == 0.1 and not trial.valid and trial.usable is None


def test_a_failure_counts_once_and_stays(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    submit(ledger, run)
    ledger.update_run(run.key, state=RunState.FAILED, cause="exit-status")
    assert states(ledger) == [(1, 0, "failed", None)]


def test_a_cancelled_run_says_nothing_until_its_next_attempt(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    ledger.update_run(run.key, state=RunState.CANCELLED)
    assert states(ledger) == []
    again = plan(ledger, {"lr": 0.01}, retry=True)
    assert (again.attempt, states(ledger)) == (2, [(1, 0, "pending", None)])


def test_a_lost_run_is_counted_by_its_next_attempt_only(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    lose(ledger, run)
    assert states(ledger) == []
    again = ledger.retry(run.key)
    assert states(ledger) == [(1, 0, "pending", None)]
    measure(ledger, again, 1.8)
    assert states(ledger) == [(1, 0, "measured", 1.8)]


def test_a_run_lost_twice_has_failed(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    lose(ledger, run)
    lose(ledger, ledger.retry(run.key))
    assert states(ledger) == [(1, 0, "failed", None)]


def test_losses_are_counted_for_each_seed(ledger: Ledger) -> None:
    lose(ledger, plan(ledger, {"lr": 0.01}, seed=0))
    lose(ledger, plan(ledger, {"lr": 0.01}, seed=1))
    assert states(ledger) == []


def test_a_lost_attempt_that_was_then_cancelled_says_nothing(ledger: Ledger) -> None:
    run = plan(ledger, {"lr": 0.01})
    lose(ledger, run)
    ledger.update_run(ledger.retry(run.key).key, state=RunState.CANCELLED)
    assert states(ledger) == []


def test_trials_stand_in_the_order_they_were_planned(ledger: Ledger) -> None:
    for level in (0.01, 0.1, 0.5):
        plan(ledger, {"lr": level})
    plan(ledger, {"lr": 0.01}, seed=1)
    assert [(t.number, t.seed) for t in history_of(ledger).trials] == [(1, 0), (2, 0), (3, 0), (1, 1)]


def test_what_is_known_already_is_not_read_again_and_what_is_new_is(ledger: Ledger) -> None:
    plan(ledger, {"lr": 0.01})
    known: dict[int, Configuration] = {}
    first = history_of(ledger, known=known)
    plan(ledger, {"width": 64})
    second = history_of(ledger, known=known)
    assert sorted(known) == [1, 2]
    assert first.trials == second.trials[:1]
    assert second == history_of(ledger)


def test_the_budget_is_handed_on_and_without_a_design_there_are_no_factors(ledger: Ledger) -> None:
    history = history_of(ledger, runs_left=7, experiments_left=3)
    assert (history.runs_left, history.experiments_left, history.factors) == (7, 3, ())


def test_the_design_comes_back_as_it_was_written(ledger: Ledger) -> None:
    factors = (
        RankedFactor("lr", (0.01, 0.1), True, log=True, chances=(0.6, 0.4), requires={"color": "red"}),
        RankedFactor("recipe", ("fast",), False, also=({"width": 64, "color": "blue"},)),
    )
    ledger.update_study(design=write_design(Design(factors, ({"lr": 0.1, "width": 64},))))
    history = history_of(ledger)
    assert (history.factors, history.forbidden) == (factors, ({"lr": 0.1, "width": 64},))


def test_a_ledger_from_before_there_were_constraints_is_read(ledger: Ledger) -> None:
    ledger.update_study(design=[{"name": "lr", "levels": [0.01], "ordered": True, "requires": {}, "reason": "tier 1"}])
    history = history_of(ledger)
    assert (history.factors, history.forbidden) == ((RankedFactor("lr", (0.01,), True, reason="tier 1"),), ())
