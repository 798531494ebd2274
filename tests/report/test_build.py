"""What the report says of a night, from its records."""

from __future__ import annotations

import inspect
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from nightlab.knowledge.records import Effect, Phase, RunState, VerdictKind
from nightlab.knowledge.stress import Stress, StressState
from nightlab.report.build import influence_of
from nightlab.report.charts import draw_timeline
from nightlab.search import belief
from nightlab.search.belief import describe
from tests.report import night as nights
from tests.report.night import Night, make_study


def test_a_win_is_told_with_interval_seeds_and_true_sign() -> None:
    report = nights.won().report()
    assert report.winner is not None
    assert report.winner.number == 18
    assert report.summary.tone == "won"
    assert report.summary.title == "Won: val_bpb 2.87 → 2.55 bits/byte"
    assert "−0.32 bits/byte" in report.summary.detail
    assert "95 % interval −0.35 … −0.29, 3 fresh seeds; lower is better." in report.summary.detail
    assert report.headline.startswith("Won: val_bpb")
    sure = " ".join(report.certainty)
    assert "seeds that had no part in finding it (101, 102 and 103)" in sure
    assert "standard deviation of 6 baseline runs" in sure


def test_a_win_of_a_maximized_metric_goes_up() -> None:
    objective = {"metric": "accuracy", "direction": "maximize", "unit": "", "min_effect": 0.02}
    report = nights.won(Night(make_study(objective=objective))).report()
    assert report.summary.title == "Won: accuracy 2.87 → 3.19"
    assert "+0.29 … +0.35" in report.summary.detail
    assert "higher is better" in report.summary.detail


def test_the_winners_value_is_that_of_the_fresh_seeds_alone() -> None:
    night = nights.won()
    row = night.report().experiments[18]
    fresh = [night.observations[run.key].values["val_bpb"] for run in night.runs if run.number == 18 and run.seed > 100]
    assert row.mean == pytest.approx(sum(fresh) / 3)
    assert row.runs == 4


def test_several_winners_are_ranked_by_effect() -> None:
    night = nights.won()
    nights.confirm(night, 2, 0.24)
    report = night.report()
    assert report.winner is not None
    assert report.winner.number == 18
    assert [row.number for row in report.other_winners] == [2]


def test_without_a_win_the_best_candidate_is_named_but_not_believed() -> None:
    report = nights.screened().report()
    assert report.winner is None
    assert report.candidate is not None
    assert report.candidate.number == 2
    assert report.summary.title == "No confirmed improvement"
    assert "experiment 02 (learning_rate = 0.01)" in report.summary.detail
    assert any("not believed yet" in line for line in report.certainty)


def test_a_win_that_review_rejected_is_neither_winner_nor_candidate_nor_in_a_mean() -> None:
    night = nights.baseline_only()
    number = night.experiment({"width": 512}, Phase.SCREEN, "width-512")
    night.run(number, 0, Phase.SCREEN, 1.0, state=RunState.REJECTED, latency_ms=55)
    night.judge(number, VerdictKind.REJECTED, "rejected", "latency_ms 55 is above 40", None)
    report = night.report()
    assert report.winner is None
    assert report.candidate is None
    assert report.experiments[1].mean is None
    assert report.experiments[1].breaches == ("latency_ms 55 is above 40",)


@pytest.mark.parametrize(
    ("night", "title"),
    [
        (Night(), "Nothing has been run yet"),
        (nights.baseline_only(), "No experiment beyond the baseline"),
        (nights.all_failed(), "No run was measured"),
    ],
)
def test_nights_with_little_in_them(night: Night, title: str) -> None:
    report = night.report()
    assert report.summary.title == title
    assert report.winner is None
    assert report.baseline_failed is (title == "No run was measured")


def test_running_and_stopped_studies_say_so() -> None:
    running = nights.screened().report(status="running", finished_at=None)
    assert running.summary.status == "Still running"
    assert running.summary.title == "No confirmed improvement yet"
    stopped = nights.won().report(status="stopped", stop_reason="asked by a person")
    assert stopped.summary.status == "Stopped early: asked by a person"
    assert stopped.summary.tone == "won"
    assert stopped.advice[0].command == "nightlab run"


def test_reasons_lose_the_figures_that_stand_beside_them_in_the_other_sign() -> None:
    row = nights.screened().report().experiments[1]
    assert row.reason == "from 1 run against 3 of the baseline: promising"


def test_factors_are_grouped_by_what_is_believed_of_them() -> None:
    groups = {group.label: group.factors for group in nights.won().report().factors}
    assert groups["in the winner"] == ("learning_rate", "width", "activation")
    assert groups["without effect"] == ("weight_decay", "log_every")
    assert groups["not tried"] == ("warmup",)


def test_what_the_winner_does_not_need_is_told_apart() -> None:
    night = nights.won()
    idle = [replace(one, label="without effect") if one.factor == "width" else one for one in night.factor_effects]
    groups = {group.label: group.factors for group in night.report(factor_effects=idle).factors}
    assert groups["in the winner"] == ("learning_rate", "activation")
    assert groups["in the winner, without effect"] == ("width",)


def test_effects_without_a_value_are_left_out_and_ranked() -> None:
    report = nights.won().report()
    assert [row.title for row in report.effects[:2]] == ["learning_rate = 0.01", "learning_rate = 0.003"]
    assert all(row.factor != "warmup" for row in report.effects)
    assert {row.influence for row in report.effects} == {"promising", "no effect", "hurt", "unknown"}


@pytest.mark.parametrize(
    ("low", "high", "influence"),
    [
        (0.03, 0.05, "helped"),
        (-0.05, -0.03, "hurt"),
        (-0.01, 0.015, "no effect"),
        (-0.01, 0.05, "unknown"),
        (None, None, "unknown"),
    ],
)
def test_influence_by_the_interval(low: float | None, high: float | None, influence: str) -> None:
    assert influence_of(Effect(delta=0.0, low=low, high=high, runs=1, baseline_runs=3), 0.02) == influence


def test_failures_are_grouped_by_cause_with_the_last_line() -> None:
    night = nights.screened()
    night.run(1, 9, Phase.SCREEN, None, cause="timeout")
    night.run(2, 9, Phase.SCREEN, None, cause="timeout")
    groups = {group.cause: group for group in night.report().failures}
    assert groups["timeout"].runs == 2
    assert groups["timeout"].experiments == (1, 2)
    assert groups["exit-status"].example == "MemoryError: batch 128"


def test_spend_stands_beside_the_budget() -> None:
    night = nights.won()
    spend = {line.name: line for line in night.report().spend}
    assert spend["runs"].used == str(len(night.runs))
    assert spend["runs"].allowed == "48"
    assert spend["experiments"].used == "18"
    assert spend["wall-clock time"].allowed == "5 min"


def test_utilisation_counts_overlapping_jobs_once() -> None:
    night = nights.baseline_only()
    whole = night.report().timeline
    assert whole.utilisation is not None
    assert 0.5 < whole.utilisation < 1
    night.jobs.append(night.jobs[0])
    assert night.report().timeline.utilisation == pytest.approx(whole.utilisation)


def test_a_job_still_running_reaches_to_now() -> None:
    night = nights.baseline_only()
    night.jobs[-1] = night.jobs[-1].model_copy(update={"ended_at": None})
    timeline = night.report(status="running", finished_at=None).timeline
    assert any(bar.outcome == "running" for bar in timeline.bars)


@pytest.mark.parametrize(
    ("likely", "told"),
    [
        ("+0.17", "not tested on fresh seeds"),
        ("+0.15", "not tested on fresh seeds; among all that was tried, a gain of 0.15 is likely to be left of it"),
        ("-0.01", "not tested on fresh seeds; among all that was tried, a loss of 0.01 is likely to be left of it"),
    ],
)
def test_what_is_likely_to_be_left_of_a_gain_has_no_sign_of_its_own(likely: str, told: str) -> None:
    night = nights.screened()
    number, held = next((n, v) for n, v in night.verdicts.items() if v.label == "promising" and v.effect)
    assert held.effect is not None
    effect = held.effect.model_copy(update={"delta": 0.17})
    left = f"; among all that was tried, {likely} is likely to be left of it"
    reason = f"{describe(effect)}: not tested on fresh seeds{left}"
    night.verdicts[number] = held.model_copy(update={"effect": effect, "reason": reason})
    row = next(row for row in night.report().experiments if row.number == number)
    assert row.reason == told
    assert left.partition(likely)[::2] == left_of_belief().partition("{likely:+.3g}")[::2]


def left_of_belief() -> str:
    """The words as `search.belief` writes them."""
    source = inspect.getsource(belief)
    return next(part for part in source.split('"') if part.startswith("; among all"))


def test_stress_checks_hold_their_slots() -> None:
    night = nights.baseline_only()
    alone = night.report()
    last = max(job.ended_at for job in night.jobs if job.ended_at)
    check: dict[str, Any] = {"number": 1, "check": "serving", "run": "r", "state": StressState.MEASURED}
    ended: dict[str, Any] = {"wall_seconds": 4.0, "ended_at": last + timedelta(seconds=5)}
    stresses = [Stress(key="a", repeat=0, slot=0, **check, **ended), Stress(key="b", repeat=1, slot=1, **check)]
    timeline = night.report(stresses=stresses).timeline
    (bar,) = [bar for bar in timeline.bars if bar.kind == "stress"]
    assert bar.slot == 0 and bar.end_seconds - bar.start_seconds == pytest.approx(4.0)
    assert timeline.span_seconds == pytest.approx(alone.timeline.span_seconds + 5)
    chart = draw_timeline(night.report(stresses=stresses), 8.0)
    assert chart is not None and "--phase-stress" in chart
    assert "--phase-stress" not in str(draw_timeline(alone, 8.0))


def test_setup_tells_what_was_locked_and_frozen() -> None:
    setup = nights.won().report().setup
    assert setup.locked == ("base model",)
    assert setup.frozen == ("prepare.py", "data/heldout.bin")
    assert setup.guardrails == ("latency_ms ≤ 40",)
    assert setup.base_commit.startswith("97c4bb3")


def test_lines_for_the_terminal() -> None:
    line = nights.won().report().rows[18]
    assert (line.effect, line.interval, line.verdict, line.runs) == ("−0.32", "−0.35 … −0.29", "confirmed", 4)
    assert line.as_dict()["effect"] == pytest.approx(0.32, abs=0.02)
