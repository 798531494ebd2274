"""What may still be planned: by count, by configurations, by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.context import Lab
from nightlab.configs.loading import load_study
from nightlab.configs.study import Budget, Study
from nightlab.graph.budget import deadline_of, history_now, reserve, runs_left
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import (
    ExperimentState,
    Job,
    JobState,
    Run,
    RunState,
    StudyStatus,
    VerdictKind,
    utc_now,
)
from nightlab.night import run_night
from nightlab.search.spending import UNLIMITED
from nightlab.status import snapshot_of
from tests.agents.lab import new_lab, planned
from tests.task import make_repository, study_data

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
    assert deadline(START, until="23:30 UTC") == START + timedelta(hours=1.5)
    assert deadline(START, until="07:30 Asia/Shanghai") == START + timedelta(hours=1.5)
    assert deadline(START, until="2026-11-30T07:30:00+00:00") == START + timedelta(hours=9.5)
    assert deadline(START, duration="9h", until="2026-11-30T07:30:00+00:00") == START + timedelta(hours=9)


def test_a_clock_time_is_the_next_one_from_now_and_a_duration_counts_from_the_start() -> None:
    clock = (START + timedelta(hours=9)).astimezone().strftime("%H:%M")
    evening, morning = START, START + timedelta(hours=11)
    budget = Budget.model_validate({"until": clock})
    assert deadline_of(budget, START, evening) == START + timedelta(hours=9)
    assert deadline_of(budget, START, morning) == START + timedelta(hours=33), "gone on with the next morning"
    assert deadline_of(Budget.model_validate({"duration": "9h"}), START, morning) == START + timedelta(hours=9)


def test_money_is_reserved_when_a_run_is_planned_and_settled_when_it_ends(tmp_path: Path) -> None:
    prices, budget = {"slot_hour_usd": 6.0, "run_usd": 0.5}, {"cost_usd": 10.0}
    with new_lab(tmp_path, prices=prices, budget=budget) as lab:
        first, second = planned(lab, {}, 0), planned(lab, {}, 1)
        reserve(lab, first)
        end(lab, first, 600.0)
        lab.ledger.settle(first.key, wall_seconds=600.0, cost_usd=1.5)
        reserve(lab, second)
        assert lab.ledger.spend_totals().cost_usd == 1.5
        # 10 less 1.50 used and 1.50 reserved, at 1.50 a run.
        assert runs_left(lab) == 4
        held = lab.ledger.settle(second.key, wall_seconds=None)
        assert held.cost_usd == held.reserved_cost_usd == 1.5, "lost with its machine: what was reserved is spent"
        lab.ledger.reserve(second.key, gpu_hours=9.0, cost_usd=9.0)
        assert lab.ledger.spend_totals().cost_usd == 3.0, "the books of what has ended are closed"


def test_a_night_ends_within_its_money_and_says_so(tmp_path: Path) -> None:
    """Twelve runs' worth: the finalist is confirmed on all fresh seeds, and nothing is overspent."""
    said: list[str] = []
    file = make_repository(tmp_path / "repo", budget={"cost_usd": 6.2}, prices={"run_usd": 0.5, "slot_hour_usd": 0.01})
    assert run_night(file, say=said.append).status is StudyStatus.FINISHED
    loaded = load_study(file)
    place = locate(loaded)
    assert any(line.startswith("plan: 10 to 12 runs, ") and "US dollars (budget 6.20)" in line for line in said)
    with Ledger.open(place.paths.ledger) as ledger:
        assert ledger.spend_totals().runs == 12 and 6.0 < ledger.spend_totals().cost_usd <= 6.2
        (kept,) = [v for v in ledger.verdicts().values() if v.kind is VerdictKind.KEEP]
        assert kept.effect and kept.effect.runs == 3
        lines = {line.resource: line for line in snapshot_of(ledger, loaded.study, utc_now()).budget}
    assert lines["cost_usd"].limit == 6.2 and lines["cost_usd"].reserved == 0
    assert lines["cost_usd"].forecast == lines["cost_usd"].used > 6
    assert r"| money | \$6.0" in place.paths.final_report_md.read_text()


def test_above_a_soft_limit_going_on_is_a_question_and_no_ends_the_night(tmp_path: Path) -> None:
    changes = {
        "prices": {"run_usd": 1.0},
        "budget": {"runs": 30, "ask_above_cost_usd": 5.0},
        "approvals": {"spend": "auto"},
    }
    file = make_repository(tmp_path / "repo", **changes)
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        (question,) = [q for q in ledger.questions() if q.kind == "spend"]
        assert (question.answer, question.answered_by) == ("no", "nightlab: auto")
        assert 5 <= len(ledger.runs()) <= 9, "what was in flight is all that came on top"
