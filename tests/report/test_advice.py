"""What to try next follows from verdicts and effects."""

from __future__ import annotations

import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.report.advice import next_level, seeds_needed
from nightlab.report.model import StudyReport
from tests.report import night as nights
from tests.report.night import FactorEffect, Night, make_study


def titles(report: StudyReport) -> str:
    return " | ".join(advice.title for advice in report.advice)


def whys(report: StudyReport) -> str:
    return " | ".join(advice.why for advice in report.advice)


@pytest.mark.parametrize(
    ("factor", "baseline", "best", "beyond"),
    [
        (Factor(levels=[0.003, 0.01], scale="log"), 0.001, 0.01, 0.03),
        (Factor(levels=[256, 512]), 128, 512, 1024),
        (Factor(levels=[0.1, 0.2]), 0.0, 0.2, 0.3),
        (Factor(levels=[16, 32]), 8, 8, 4),
        (Factor(range=(1.0, 5.0)), 2.0, 5.0, 8.0),
        (Factor(levels=[256, 512]), 128, 256, None),
        (Factor(levels=[0.1, 0.2]), 0.0, 0.0, None),
        (Factor(levels=["relu", "gelu"]), "tanh", "gelu", None),
        (Factor(levels=[1, 2], categorical=True), 0, 2, None),
        (Factor(levels=[True]), False, True, None),
    ],
)
def test_the_value_beyond_the_edge(factor: Factor, baseline: Scalar, best: Scalar, beyond: Scalar | None) -> None:
    assert next_level(factor, baseline, best) == beyond


def test_more_noise_and_narrower_intervals_need_more_seeds() -> None:
    base = seeds_needed(0.01, 0.02, 0.95)
    assert seeds_needed(0.02, 0.02, 0.95) > base
    assert seeds_needed(0.01, 0.01, 0.95) > base
    assert seeds_needed(0.0001, 1.0, 0.95) == 2


def test_a_winner_at_the_edge_widens_the_space() -> None:
    report = nights.won().report()
    assert "Widen the space" in titles(report)
    assert "learning_rate beyond 0.01, for example 0.03" in whys(report)
    assert "width beyond" not in whys(report)
    assert "Start the next study from the winner" in titles(report)


def test_a_candidate_is_to_be_confirmed_with_a_number_of_runs() -> None:
    report = nights.screened().report()
    assert report.advice[0].title == "Confirm experiment 02 (learning_rate = 0.01)"
    assert "3 fresh seeds" in report.advice[0].why
    assert "6 runs" in report.advice[0].why


def test_an_unclear_factor_gets_seeds_and_an_untried_one_its_turn() -> None:
    report = nights.screened().report()
    assert "context = 16" in whys(report)
    assert "Never tried: warmup" in whys(report)


def test_noise_too_large_for_seeds_is_said() -> None:
    night = Night(make_study(space={"width": {"levels": [256]}}))
    night.experiment({}, Phase.BASELINE, "baseline")
    for seed, value in enumerate((2.0, 3.0, 4.0)):
        night.run(0, seed, Phase.BASELINE, value)
    number = night.experiment({"width": 256}, Phase.SCREEN, "width-256")
    night.run(number, 0, Phase.SCREEN, 2.9)
    night.factor_effects.append(FactorEffect("width", 256, night.effect(0.05, 3.0), "unknown"))
    assert "Measure with less noise" in titles(night.report())


def test_a_gain_behind_a_guardrail_is_a_persons_decision() -> None:
    report = nights.screened().report()
    assert "Decide whether experiment 04 is worth its price" in titles(report)
    assert "latency_ms 55 is above 40" in whys(report)


def test_what_looked_good_alone_goes_on_top_of_the_winner() -> None:
    night = nights.screened()
    nights.confirm(night, 2, 0.24)
    assert "activation = gelu" in whys(night.report())
    assert "on top of the winner" in titles(night.report())


def test_failures_come_first_when_many() -> None:
    report = nights.all_failed().report()
    assert [advice.title for advice in report.advice] == ["Mend “exit-status” first"]
    assert report.advice[0].command == "nightlab logs 00"


def test_when_nothing_works_the_data_and_the_base_model_are_next() -> None:
    night = nights.baseline_only()
    for value in (10, 200):
        number = night.experiment({"log_every": value}, Phase.SCREEN, f"log-every-{value}")
        night.run(number, 0, Phase.SCREEN, 2.872)
        night.judge(number, VerdictKind.DISCARD, "without effect", "inside", night.effect(0.0, 0.01))
    number = night.experiment({"batch": 32}, Phase.SCREEN, "batch-32")
    night.run(number, 0, Phase.SCREEN, 2.95)
    night.judge(number, VerdictKind.DISCARD, "worse", "worse", night.effect(-0.08, 0.01))
    report = night.report()
    assert "Turn to the data" in titles(report)
    assert "byte-mlp is locked" in whys(report)


def test_never_more_than_six_and_none_for_an_empty_study() -> None:
    assert len(nights.long_night(30).report(status="stopped").advice) <= 6
    assert Night().report().advice == ()
