"""What may still be planned: by count, by configurations, by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.configs.study import Budget, Study
from nightlab.graph.budget import UNLIMITED, deadline_of, history_now, runs_left
from nightlab.knowledge.records import ExperimentState, Job, JobState, Run, RunState
from tests.agents.lab import new_lab, planned
from tests.task import study_data

START = datetime(2026, 11, 29, 22, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def opened_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with new_lab(tmp_path_factory.mktemp("budget")) as lab:
        for seed in range(3):
            end(lab, planned(lab, {}, seed), 600.0)
        end(lab, planned(lab, {"lr": 0.01}), 600.0)
        yield lab


def end(lab: Lab, run: Run, wall_seconds: float, *, exit_code: int = 0) -> None:
    if lab.ledger.experiment(run.number).state is ExperimentState.PLANNED:
        lab.ledger.update_experiment(run.number, state=ExperimentState.PREPARED, commit=lab.base_commit)
    lab.ledger.intend_job(Job(key=run.key, backend="local", slot=0, directory="d", worktree="w"))
    lab.ledger.adopt(run.key, "1")
    lab.ledger.update_job(run.key, state=JobState.ENDED, exit_code=exit_code, wall_seconds=wall_seconds)
    lab.ledger.update_run(run.key, state=RunState.FINISHED)


def lab_with(lab: Lab, hours: float | None = None, **budget: Any) -> Lab:
    """The lab with another budget, and the deadline so many hours from now."""
    study = Study.model_validate(study_data(budget=budget))
    now = lab.now()
    deadline = None if hours is None else now + timedelta(hours=hours)
    return replace(lab, study=study, deadline=deadline, now=lambda: now)


def test_runs_are_counted_from_the_moment_they_are_planned(opened_lab: Lab) -> None:
    assert runs_left(lab_with(opened_lab, runs=10)) == 6
    assert runs_left(lab_with(opened_lab, runs=4)) == 0
    assert runs_left(lab_with(opened_lab, runs=2)) == 0, "never below nothing"
    assert runs_left(lab_with(opened_lab, experiments=5)) == UNLIMITED


def test_configurations_are_counted_without_the_baseline(opened_lab: Lab) -> None:
    assert history_now(lab_with(opened_lab, experiments=5)).experiments_left == 4
    assert history_now(lab_with(opened_lab, experiments=1)).experiments_left == 0
    assert history_now(lab_with(opened_lab, runs=9)).experiments_left is None


def test_the_clock_allows_what_the_slots_can_finish_at_the_pace_so_far(opened_lab: Lab) -> None:
    # Ten minutes a run, two slots: two hours less the time for the report leave eleven each.
    assert runs_left(lab_with(opened_lab, hours=2, duration="9h")) == 22
    assert runs_left(lab_with(opened_lab, hours=2, duration="9h", runs=10)) == 6
    assert runs_left(lab_with(opened_lab, hours=0.1, duration="9h")) == 0
    assert runs_left(lab_with(opened_lab, hours=-1, duration="9h")) == 0


def test_a_passed_deadline_is_overdue_and_none_never(opened_lab: Lab) -> None:
    assert lab_with(opened_lab, hours=0, duration="9h").is_overdue
    assert not lab_with(opened_lab, hours=0.01, duration="9h").is_overdue
    assert not lab_with(opened_lab, runs=3).is_overdue


def test_failures_say_nothing_of_the_pace_and_what_is_planned_is_taken_off(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        assert runs_left(lab_with(lab, hours=2, duration="9h")) == UNLIMITED, "before the first end nobody knows"
        end(lab, planned(lab, {}, 0), 600.0)
        for seed in (1, 2, 3):
            end(lab, planned(lab, {}, seed), 1.0, exit_code=1)
        assert runs_left(lab_with(lab, hours=2, duration="9h")) == 22
        planned(lab, {"lr": 0.01})
        assert runs_left(lab_with(lab, hours=2, duration="9h")) == 21


def test_what_was_cancelled_is_given_back(tmp_path: Path) -> None:
    with new_lab(tmp_path) as lab:
        run = planned(lab, {"lr": 0.01})
        assert history_now(lab_with(lab, experiments=5)).experiments_left == 4
        lab.ledger.update_run(run.key, state=RunState.CANCELLED)
        assert history_now(lab_with(lab, experiments=5)).experiments_left == 5


def test_the_deadline_is_the_earlier_of_duration_and_clock() -> None:
    def deadline(now: datetime, **budget: Any) -> datetime | None:
        return deadline_of(Budget.model_validate(budget), START, now)

    assert deadline(START, runs=3) is None
    assert deadline(START, duration="9h") == START + timedelta(hours=9)
    assert deadline(START, until="2026-11-30T07:30:00+00:00") == START + timedelta(hours=9.5)
    assert deadline(START, duration="9h", until="2026-11-30T07:30:00+00:00") == START + timedelta(hours=9)


def test_a_clock_time_is_the_next_one_from_now_and_a_duration_counts_from_the_start() -> None:
    clock = (START + timedelta(hours=9)).astimezone().strftime("%H:%M")
    evening, morning = START, START + timedelta(hours=11)
    budget = Budget.model_validate({"until": clock})
    assert deadline_of(budget, START, evening) == START + timedelta(hours=9)
    assert deadline_of(budget, START, morning) == START + timedelta(hours=33), "gone on with the next morning"
    assert deadline_of(Budget.model_validate({"duration": "9h"}), START, morning) == START + timedelta(hours=9)
