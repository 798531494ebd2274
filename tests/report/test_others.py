"""The winner's other metrics: paired on the seeds of confirmation, and nothing else."""

from __future__ import annotations

import pytest
from scipy import stats

from nightlab.configs.study import Study
from nightlab.knowledge.records import Observation, Phase, Run, RunState
from nightlab.report.others import other_metrics
from tests.task import study_data

STUDY = Study.model_validate(study_data() | {"metrics": {"bleu": {}, "speed": {}}, "guardrails": []})


def measured(number: int, seed: int, *, phase: Phase = Phase.CONFIRM, **values: float) -> tuple[Run, Observation]:
    key = f"tiny/{number:02d}/1/{seed}"
    run = Run(key=key, study="tiny", number=number, seed=seed, phase=phase, reason="", state=RunState.REVIEWED)
    return run, Observation(key=key, values={STUDY.objective.metric: 1.0, **values})


def told(*seen: tuple[Run, Observation], winner: int | None = 4) -> dict[str, tuple[str, ...]]:
    runs, observations = [run for run, _ in seen], {run.key: one for run, one in seen}
    found = other_metrics(STUDY, winner, runs, observations)
    return {one.name: (one.baseline, one.winner, one.difference, one.interval, str(one.seeds)) for one in found}


def test_the_interval_is_students_over_the_differences_of_common_seeds() -> None:
    before, after = (10.0, 11.0, 13.0), (20.0, 22.0, 21.0)
    seen = [
        *(measured(0, seed, bleu=value) for seed, value in enumerate(before, 1000)),
        *(measured(4, seed, bleu=value) for seed, value in enumerate(after, 1000)),
        measured(4, 1003, bleu=99.0),
        measured(0, 0, phase=Phase.BASELINE, bleu=-99.0),
        measured(4, 0, phase=Phase.SCREEN, bleu=99.0),
    ]
    expected = stats.ttest_rel(after, before).confidence_interval(0.95)
    assert told(*seen) == {"bleu": ("11.33", "21", "+10", "+6 … +13", "3")}
    assert (expected.low, expected.high) == pytest.approx((5.87, 13.46), abs=0.01)


def test_one_seed_has_no_interval_and_equal_differences_none_of_any_width() -> None:
    assert told(measured(0, 1, bleu=1.0), measured(4, 1, bleu=3.0)) == {"bleu": ("1", "3", "+2.000", "–", "1")}
    # 66.5 − 66.3 and 66.7 − 66.5 differ by what binary fractions cannot say.
    pairs = [measured(n, seed, speed=value + seed / 5) for n, value in ((0, 66.1), (4, 66.3)) for seed in (1, 2)]
    assert told(*pairs) == {"speed": ("66.4", "66.6", "+0.20", "+0.20 … +0.20", "2")}


def test_without_a_winner_or_a_common_seed_there_is_nothing_to_tell() -> None:
    pair = measured(0, 1, bleu=1.0), measured(4, 2, bleu=3.0)
    assert told(*pair) == {} and told(*pair, winner=None) == {}
