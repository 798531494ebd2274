"""A plateau is what the runs show, and nothing else; then each untried value of the data is a move of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.engine import propose
from nightlab.search.history import History, Trial
from nightlab.search.ranking import rank_factors
from nightlab.search.saturation import SYMPTOM, Plateau, data_first, data_moves, plateau
from tests.search.simulate import make_study

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "act": "tanh", "ema": False, "mix": "all", "share": 1.0, "clip": 1.0}
SPACE = {
    "lr": Factor(levels=[0.5, 2.0, 4.0], scale="log"),
    "act": Factor(levels=["relu", "gelu"]),
    "ema": Factor(levels=[True]),
    "mix": Factor(levels=["clean", "small"]),
    "share": Factor(levels=[0.5]),
    "clip": Factor(levels=[0.1]),
}
STUDY = make_study(PARAMETERS, SPACE, min_effect=0.1)
FACTORS = rank_factors(STUDY, STUDY.space, tiers={"lr": 1, "act": 1, "ema": 2, "clip": 5}, priors={})
DATA = frozenset({"mix", "share"})
BASELINE = (1.0, 1.05, 0.95)
TRIED: list[tuple[dict[str, Scalar], float | None]] = [
    ({"lr": 0.5}, 1.0),
    ({"lr": 2.0}, 1.02),
    ({"act": "relu"}, 0.98),
    ({"act": "gelu"}, 1.01),
    ({"ema": True}, 1.0),
]

Told = Sequence[tuple[Mapping[str, Scalar], float | None]]


def history(told: Told, baseline: Sequence[float] = BASELINE, **changes: Any) -> History:
    trials = [Trial(0, PARAMETERS, {}, seed, Phase.BASELINE, "measured", value) for seed, value in enumerate(baseline)]
    for number, (changed, value) in enumerate(told, start=1):
        state: Literal["failed", "measured"] = "failed" if value is None else "measured"
        trials.append(Trial(number, {**PARAMETERS, **changed}, dict(changed), 0, Phase.SCREEN, state, value))
    return History(FACTORS, tuple(trials), data=DATA, **changes)


def found(told: Told, baseline: Sequence[float] = BASELINE) -> Plateau | None:
    return plateau(STUDY, history(told, baseline))


def test_tried_and_without_gain_is_a_plateau() -> None:
    """The metric is minimised: the best of the last three gained 0.02, and 0.1 is the least worth having.

    `clip` is of a late tier and was never tried: the data come before it.
    """
    told = found(TRIED)
    assert told is not None
    assert told.best_gain == pytest.approx(0.02)
    assert told.threshold > 0.1 and told.changes == 3


@pytest.mark.parametrize(
    "told",
    [
        TRIED[:-1],
        [*TRIED[:-1], ({"ema": True}, 0.5)],
        [*TRIED, ({"lr": 4.0}, 0.4)],
    ],
    ids=["a factor was never tried", "the last one gains", "a later one gains"],
)
def test_else_it_is_none(told: Told) -> None:
    assert found(told) is None


def test_a_gain_further_back_is_the_line_to_beat() -> None:
    early: list[tuple[dict[str, Scalar], float | None]] = [({"lr": 2.0}, 0.5), ({"lr": 0.5}, 1.2), *TRIED[2:]]
    assert found(early) is not None, "nothing came after it"
    assert found([*early, ({"lr": 2.0, "ema": True}, 0.1)]) is None, "but this did"
    others: list[dict[str, Scalar]] = [{"act": "relu"}, {"act": "gelu"}, {"ema": True}]
    beside: list[tuple[dict[str, Scalar], float | None]] = [*early]
    beside += [({"lr": 2.0, **changed}, 0.51) for changed in others]
    assert found(beside) is not None


def test_what_failed_was_tried() -> None:
    failed: list[tuple[dict[str, Scalar], float | None]] = [*TRIED[:1], ({"lr": 4.0}, None), *TRIED[2:]]
    assert found(failed) is not None


def test_changes_of_the_data_are_no_tuning() -> None:
    assert found([*TRIED, ({"mix": "clean"}, 0.2)]) is not None
    tuned = history([*TRIED[:4], ({"mix": "clean"}, 1.0)])
    assert plateau(STUDY, tuned) is None


def test_without_noise_nothing_is_known() -> None:
    assert found(TRIED, baseline=(1.0,)) is None


def test_in_noise_alone_it_is_found_and_a_large_late_gain_hides_it() -> None:
    """Of 200 nights without effects most show it, of as many with a late gain of six deviations few."""
    random, flat, late = np.random.default_rng(0), 0, 0
    for _ in range(200):
        values = random.normal(1.0, 0.2, len(TRIED) + 4)
        told = [(changed, float(value)) for (changed, _), value in zip(TRIED, values[4:], strict=False)]
        baseline = [float(value) for value in values[:4]]
        flat += found(told, baseline) is not None
        late += found([*told[:-1], (told[-1][0], told[-1][1] - 1.2)], baseline) is not None
    assert flat > 150
    assert late < 30


def test_the_moves_are_the_untried_values_beside_the_incumbent() -> None:
    told = history([({"lr": 2.0}, 0.5), *TRIED[2:], ({"mix": "small"}, 1.1)])
    moves = data_moves(STUDY, told)
    assert [one.changed for one in moves] == [{"lr": 2.0, "mix": "clean"}, {"lr": 2.0, "share": 0.5}]
    assert moves[0].parameters == {**PARAMETERS, "lr": 2.0, "mix": "clean"}
    assert moves[0].phase is Phase.SCREEN and moves[0].variable == "mix-clean"
    assert moves[0].reason.startswith("single change: mix all → clean, beside lr 2.0 (the data, against plateau")
    assert data_moves(STUDY, told) == moves
    forbidden = replace(told, forbidden=({"lr": 2.0, "share": 0.5},))
    assert [one.changed for one in data_moves(STUDY, forbidden)] == [{"lr": 2.0, "mix": "clean"}]
    combining = replace(told, trials=(*told.trials, replace(told.trials[-1], phase=Phase.COMBINE, seed=1)))
    assert data_moves(STUDY, combining)[0].phase is Phase.REFINE
    assert data_moves(STUDY, history([], baseline=())) == []


def test_a_value_beside_another_of_the_same_factor_is_told_against_that() -> None:
    told = history([({"mix": "small"}, 0.2), ({"mix": "small", "lr": 2.0}, 0.21), *TRIED])
    move = data_moves(STUDY, replace(told, data=frozenset({"mix"})))[0]
    assert move.changed == {"mix": "clean"}
    assert move.reason.startswith("single change: mix small → clean (the data")


def test_the_data_come_before_what_explores_and_never_more_than_there_were() -> None:
    told = history(TRIED, runs_left=20)
    move, *more = data_moves(STUDY, told)
    other = move.model_copy(update={"changed": {"clip": 0.1}, "parameters": {**PARAMETERS, "clip": 0.1}})
    baseline = move.model_copy(update={"changed": {}, "phase": Phase.BASELINE})
    confirm = other.model_copy(update={"phase": Phase.CONFIRM})
    assert data_first(STUDY, told, [other]) == [move]
    assert data_first(STUDY, told, [baseline, confirm]) == [baseline, confirm]
    assert data_first(STUDY, told, [baseline, *[other] * 4]) == [baseline, move, *more, other]
    assert data_first(STUDY, told, []) == []
    repeat = move.model_copy(update={"changed": {"lr": 2.0}, "seed": 1})
    assert data_first(STUDY, replace(told, experiments_left=1), [other, repeat]) == [move, repeat], "one new, no more"
    trial = replace(told.trials[-1], phase=Phase.CONFIRM, number=99)
    confirming = replace(told, trials=(*told.trials, trial))
    assert data_first(STUDY, confirming, [other]) == [other], "the finalists stand"
    assert data_first(STUDY, replace(told, data=frozenset()), [other]) == [other]


def test_a_saturated_search_proposes_the_data() -> None:
    told = history(TRIED, runs_left=20)
    assert propose(STUDY, told, 0)[:2] == data_moves(STUDY, told)[:2]
    tuned = propose(STUDY, replace(told, data=frozenset()), 0)
    assert tuned and all(SYMPTOM not in one.reason for one in tuned)
