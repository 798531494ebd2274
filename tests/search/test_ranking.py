from __future__ import annotations

import pytest

from nightlab.configs.sizes import Sizes
from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.level_priors import LevelPrior
from nightlab.knowledge.records import Lesson, VerdictKind, utc_now
from nightlab.search.chances import catalog_chance, nearest_to, posterior_chance
from nightlab.search.levels import baseline_setting, changed_from, is_at, is_forbidden, setting
from nightlab.search.ranking import rank_factors
from nightlab.search.scaling import law_values, step_law_batch_tokens, step_law_learning_rate
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
    assert ranked[0].chances == pytest.approx((2 / 3, 0.5, 0.5, 1 / 3))
    assert ranked[1].chances == ()
    assert ranked[2].chances == pytest.approx((1 / 3, 1 / 3))
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


BUNDLED = make_study(
    {"scheduler": "linear", "warmup": 0.0, "lr": 0.01},
    {
        "recipe": Factor(
            settings={
                "same": {"scheduler": "linear"},
                "cosine": {"scheduler": "cosine"},
                "long_cosine": {"scheduler": "cosine", "warmup": 0.1},
                "again": {"warmup": 0.1, "scheduler": "cosine"},
            }
        ),
        "lr": Factor(range=(0.001, 0.1), scale="log", requires={"recipe": "long_cosine"}),
    },
)


def test_a_bundle_is_one_factor_whose_levels_set_several_parameters() -> None:
    recipe, lr = rank_factors(BUNDLED, BUNDLED.space, tiers={}, priors={})
    assert (recipe.name, recipe.levels, recipe.ordered, recipe.chances) == (
        "recipe",
        ("cosine", "long_cosine"),
        False,
        (),
    )
    assert recipe.also == ({"scheduler": "cosine", "warmup": 0.0}, {"scheduler": "cosine", "warmup": 0.1})
    assert lr.requires == {"scheduler": "cosine", "warmup": 0.1}
    assert setting(BUNDLED, recipe, "long_cosine") == recipe.also[1] and setting(BUNDLED, lr, 0.001) == {"lr": 0.001}
    assert baseline_setting(BUNDLED, recipe) == {"scheduler": "linear", "warmup": 0.0}
    with pytest.raises(ValueError, match="recipe has no level 'none'"):
        setting(BUNDLED, recipe, "none")


def test_a_configuration_is_at_a_level_only_with_all_it_sets() -> None:
    recipe, _ = rank_factors(BUNDLED, BUNDLED.space, tiers={}, priors={})
    moved = {**BUNDLED.parameters, **setting(BUNDLED, recipe, "cosine")}
    assert is_at(BUNDLED, recipe, "cosine", moved) and is_at(BUNDLED, recipe, None, BUNDLED.parameters)
    assert not is_at(BUNDLED, recipe, "long_cosine", moved) and not is_at(BUNDLED, recipe, None, moved)
    assert changed_from(BUNDLED, moved) == {"scheduler": "cosine"}
    assert is_forbidden([{"lr": 1.0}, {"scheduler": "cosine", "warmup": 0}], moved)
    assert not is_forbidden([{"scheduler": "cosine", "warmup": 0.1}], moved)


def test_a_lesson_on_a_bundle_moves_its_setting() -> None:
    told = [lesson("", "", VerdictKind.KEEP, parameters={"scheduler": "cosine", "warmup": 0.1})]
    recipe = rank_factors(BUNDLED, BUNDLED.space, tiers={}, priors={}, lessons=told)[0]
    assert recipe.levels == ("long_cosine", "cosine") and recipe.chances == pytest.approx((2 / 3, 0.6)), (
        "a part of it too"
    )


def test_a_bundle_with_a_locked_parameter_is_left_out() -> None:
    study = BUNDLED.model_copy(update={"locked": ["warmup"]})
    assert [one.name for one in rank_factors(study, study.space, tiers={}, priors={})] == ["lr"]


def test_lessons_of_another_scenario_count_weakly() -> None:
    elsewhere = lesson("act", "gelu", VerdictKind.KEEP, scenario="other")
    ranked = rank_factors(STUDY, SPACE, tiers={}, priors={}, lessons=[elsewhere])
    act = next(factor for factor in ranked if factor.name == "act")
    assert act.levels == ("gelu", "relu") and act.chances == pytest.approx((1.25 / 2.25, 0.5))


def test_the_catalogs_usual_values_raise_chances_only_from_outside_them() -> None:
    usual = [0.001, 0.003]
    assert catalog_chance(0.002, 0.01, usual, 0.8, log=True) == pytest.approx(0.7)
    assert catalog_chance(0.002, 0.001, usual, 0.8, log=True) == 0.5
    assert catalog_chance(0.01, 0.002, usual, 0.8, log=True) == pytest.approx(0.3)
    assert catalog_chance(0.01, 0.03, usual, 0.8, log=True) == pytest.approx(0.62)
    assert catalog_chance(0.1, 0.03, usual, 0.8, log=True) == pytest.approx(0.3)
    assert catalog_chance(0.0005, 0.01, usual, 0.8, log=True) == 0.5
    assert catalog_chance(True, False, [True], 1.0) == 0.75
    assert catalog_chance("cosine", "linear", ["cosine", "linear"], 1.0) == 0.5
    assert catalog_chance("odd", "linear", ["cosine", "linear"], 1.0) == 0.25


def test_no_prior_is_certain_and_a_few_lessons_overrule_it() -> None:
    assert posterior_chance(0.75, LevelPrior(losses=2.0)) < 0.5
    assert posterior_chance(0.5, LevelPrior(wins=1000.0)) == 0.95
    assert posterior_chance(0.5, LevelPrior(losses=1000.0)) == 0.05


def test_usual_values_are_tried_first() -> None:
    ranked = rank_factors(STUDY, SPACE, tiers={}, priors={"lr": 0.6}, typical={"lr": [0.002, 0.006]})
    assert ranked[0].name == "lr" and ranked[0].levels == (0.005, 0.0025, 0.02, 0.04)
    assert ranked[0].chances == pytest.approx((0.65, 0.65, 0.35, 0.35))


def test_the_step_law_is_the_published_one() -> None:
    """Worked by hand for N = 268M and D = 80B tokens."""
    assert step_law_learning_rate(268e6, 8e10) == pytest.approx(0.00390, rel=0.01)
    assert step_law_batch_tokens(8e10) == pytest.approx(975_000, rel=0.01)


def test_the_level_nearest_to_the_scaling_law_is_tried_first() -> None:
    space = {
        "lr": Factor(range=(0.0005, 0.016), scale="log", technique="lr"),
        "effective_batch": Factor(levels=[64, 256, 512]),
    }
    study = make_study({"lr": 0.001, "effective_batch": 128}, space).model_copy(
        update={"sizes": Sizes(model_parameters=268e6, training_tokens=8e10, sequence_length=2048)}
    )
    assert law_values(study) == pytest.approx({"lr": 0.0039, "effective_batch": 476}, rel=0.01)
    lr, batch = rank_factors(study, study.space, tiers={}, priors={})
    assert lr.levels[0] == 0.004 and lr.chances == pytest.approx((0.85, *[0.5] * (len(lr.levels) - 1)))
    assert batch.levels[0] == 512 and "the scaling law says 4.8e+02" in batch.reason
    assert law_values(study.model_copy(update={"method": "sft-lora"})) == {}
    assert law_values(study.model_copy(update={"sizes": Sizes(model_parameters=268e6)})) == {}
    there = study.model_copy(update={"parameters": {"lr": 0.004, "effective_batch": 512}})
    assert not any(one.chances for one in rank_factors(there, there.space, tiers={}, priors={}))
    assert nearest_to(476, (64, 256), 512) is None


@pytest.mark.parametrize(
    ("factor", "levels", "ordered", "log"),
    [
        (Factor(range=(1, 6), integer=True, scale="log"), (2, 3, 6), True, True),
        (Factor(range=(0, 3), integer=True, steps=9), (2, 0, 3), True, False),
        (Factor(range=(0.1, 0.9)), (0.9, 0.5, 0.1), True, False),
        (Factor(levels=[4, 2]), (2, 4), True, False),
        (Factor(levels=[4, 2], categorical=True), (4, 2), False, False),
        (Factor(levels=["b", "a"]), ("b", "a"), False, False),
        (Factor(levels=[True]), (True,), False, False),
    ],
)
def test_every_kind_of_factor_arrives(factor: Factor, levels: tuple[Scalar, ...], ordered: bool, log: bool) -> None:
    baselines: dict[str, Scalar] = {"text": "x", "flag": False, "number": 1}
    baseline = baselines[_kind(factor)]
    study = make_study({"x": baseline}, {"x": factor})
    (ranked,) = rank_factors(study, study.space, tiers={}, priors={})
    assert (ranked.levels, ranked.ordered, ranked.log) == (levels, ordered, log)
    assert not factor.integer or all(type(level) is int for level in ranked.levels)


def _kind(factor: Factor) -> str:
    value = factor.values[0]
    return "text" if isinstance(value, str) else "flag" if isinstance(value, bool) else "number"
