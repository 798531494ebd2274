from __future__ import annotations

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Lesson, VerdictKind, utc_now
from nightlab.search.ranking import rank_factors
from tests.search.simulate import make_study

PARAMETERS: dict[str, Scalar] = {"lr": 0.01, "width": 64, "act": "tanh", "seed_words": False}
SPACE = {
    "act": Factor(levels=["relu", "gelu"]),
    "lr": Factor(levels=[0.0025, 0.005, 0.02, 0.04], scale="log"),
    "width": Factor(levels=[64, 128, 256]),
    "seed_words": Factor(levels=[True], tier=5),
}
STUDY = make_study(PARAMETERS, SPACE)


def lesson(name: str, value: Scalar, verdict: VerdictKind, **changes: object) -> Lesson:
    fields = {
        "id": f"{name}-{value}",
        "time": utc_now(),
        "study": "earlier",
        "scenario": "toy",
        "base_model": "none",
        "method": "pretrain",
        "parameters": {name: value},
        "metric": "loss",
        "verdict": verdict,
        "label": "x",
        "evidence": {},
    }
    return Lesson.model_validate({**fields, **changes})


def test_tier_first_then_prior_then_the_order_of_the_study() -> None:
    ranked = rank_factors(STUDY, SPACE, tiers={"lr": 1, "seed_words": 1}, priors={"width": 0.9})
    assert [factor.name for factor in ranked] == ["lr", "width", "act", "seed_words"]
    assert [factor.tier for factor in ranked] == [1, 3, 3, 5]


def test_the_nearest_values_come_first() -> None:
    ranked = {factor.name: factor for factor in rank_factors(STUDY, SPACE, tiers={}, priors={})}
    assert ranked["lr"].levels == (0.02, 0.005, 0.04, 0.0025)
    assert ranked["width"].levels == (128, 256)
    assert ranked["act"].levels == ("relu", "gelu")
    assert (ranked["lr"].ordered, ranked["lr"].log, ranked["act"].ordered) == (True, True, False)


def test_lessons_move_levels_and_factors() -> None:
    lessons = [
        lesson("lr", 0.005, VerdictKind.KEEP),
        lesson("lr", 0.02, VerdictKind.DISCARD),
        lesson("act", "relu", VerdictKind.FAILED),
        lesson("act", "gelu", VerdictKind.DISCARD),
    ]
    ranked = rank_factors(STUDY, SPACE, tiers={}, priors={}, lessons=lessons)
    assert [factor.name for factor in ranked] == ["lr", "width", "act", "seed_words"]
    assert ranked[0].levels == (0.005, 0.04, 0.0025, 0.02)
    assert "lessons confirmed 1" in ranked[0].reason


def test_lessons_of_another_method_or_superseded_do_not_count() -> None:
    old = lesson("act", "gelu", VerdictKind.KEEP)
    lessons = [
        lesson("lr", 0.005, VerdictKind.KEEP, method="dpo"),
        old,
        lesson("act", "gelu", VerdictKind.INCONCLUSIVE, id="newer", supersedes=[old.id]),
    ]
    ranked = rank_factors(STUDY, SPACE, tiers={}, priors={}, lessons=lessons)
    assert ranked == rank_factors(STUDY, SPACE, tiers={}, priors={})


def test_a_bad_combination_blames_no_single_value() -> None:
    both = lesson("act", "relu", VerdictKind.DISCARD, parameters={"act": "relu", "width": 128})
    ranked = rank_factors(STUDY, SPACE, tiers={}, priors={}, lessons=[both])
    assert ranked == rank_factors(STUDY, SPACE, tiers={}, priors={})


def test_locked_and_empty_factors_are_left_out() -> None:
    space = {**SPACE, "width": Factor(levels=[64])}
    study = STUDY.model_copy(update={"locked": ["act"]})
    assert {factor.name for factor in rank_factors(study, space, tiers={}, priors={})} == {"lr", "seed_words"}
