"""What each level does, recovered from runs in any company: against made-up truths."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase, Verdict, VerdictKind
from nightlab.search.attribution import FactorEffect, factor_effects, interactions, move_of, moves_of, verdict_on_move
from nightlab.search.contrasts import direct_effect
from nightlab.search.history import History, RankedFactor, Trial
from nightlab.search.run_model import RunModel
from tests.search.simulate import make_study

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "width": 64, "act": "tanh", "ema": False, "warmup": 0, "schedule": "flat"}
FACTORS = (
    RankedFactor("lr", (2.0, 4.0), ordered=True, technique="lr-sweep"),
    RankedFactor("width", (128, 256), ordered=True),
    RankedFactor("act", ("relu",), ordered=False),
    RankedFactor("ema", (True,), ordered=False),
)
SPACE = {factor.name: Factor(levels=list(factor.levels)) for factor in FACTORS}
STUDY = make_study(PARAMETERS, SPACE, min_effect=0.5)
GAIN: dict[tuple[str, Scalar], float] = {
    ("lr", 2.0): 3.0,
    ("lr", 4.0): -4.0,
    ("width", 128): 2.0,
    ("width", 256): 2.5,
    ("act", "relu"): 0.0,
}
WALK: list[dict[str, Scalar]] = [
    {"lr": 2.0},
    {"lr": 4.0},
    {"lr": 2.0, "width": 128},
    {"lr": 2.0, "width": 256},
    {"lr": 2.0, "width": 256, "act": "relu"},
    {"lr": 2.0, "width": 256, "ema": True},
]
"""Single moves around a moving incumbent: from the third on nothing is alone."""

Means = Callable[[Mapping[str, Scalar]], float]


def added(changed: Mapping[str, Scalar]) -> float:
    return 10.0 - sum(GAIN.get(change, 0.0) for change in changed.items())


def together(changed: Mapping[str, Scalar]) -> float:
    """Width does its work twice where the learning rate is 2."""
    return added(changed) - 4.0 * (changed.get("lr") == 2.0 and changed.get("width") == 128)


def level(changed: Mapping[str, Scalar]) -> float:
    return 10.0


def history(
    configurations: list[dict[str, Scalar]],
    means: Means = added,
    *,
    night: int = 0,
    noise: float = 0.2,
    runs: int = 1,
    seed_sd: float = 0.0,
    factors: tuple[RankedFactor, ...] = FACTORS,
) -> History:
    """Three runs of the baseline on seeds 0 to 2, `runs` of everything else from seed 0 on."""
    random = np.random.default_rng(night)
    shift = random.normal(0, seed_sd, 10) if seed_sd else np.zeros(10)
    trials = [
        Trial(
            number,
            {**PARAMETERS, **changed},
            changed,
            seed,
            Phase.SCREEN if number else Phase.BASELINE,
            "measured",
            means(changed) + float(shift[seed]) + noise * float(random.normal()),
        )
        for number, changed in enumerate([{}, *configurations])
        for seed in range(runs if number else 3)
    ]
    return History(factors, trials=tuple(trials))


def at(effects: list[FactorEffect], factor: str, level: Scalar | None) -> FactorEffect:
    return next(one for one in effects if (one.factor, one.level) == (factor, level))


def test_a_level_that_never_ran_alone_has_its_effect_too() -> None:
    effects = factor_effects(STUDY, history(WALK, noise=0.05))
    for (factor, level), gain in GAIN.items():
        one = at(effects, factor, level)
        assert one.effect and one.effect.delta == pytest.approx(gain, abs=0.3)
    assert at(effects, "width", 256).runs == 3
    assert at(effects, "lr", 2.0).label == "promising"
    assert at(effects, "lr", 4.0).label == "worse"
    assert at(effects, "ema", True).effect is not None
    overall = at(effects, "lr", None)
    assert (overall.effect, overall.technique) == (at(effects, "lr", 2.0).effect, "lr-sweep")


@pytest.mark.parametrize("seed_sd", [0.0, 2.0])
def test_intervals_cover_the_truth(seed_sd: float) -> None:
    """Also where seeds shift everything and the single runs all have seed 0."""
    covered, cells = 0, 0
    for night in range(60):
        model = RunModel.of(STUDY, history(WALK, night=night, noise=1.0, runs=2, seed_sd=seed_sd))
        for term, gain in GAIN.items():
            effect = model.effect(term)
            assert effect and effect.low is not None and effect.high is not None
            covered += effect.low <= gain <= effect.high
            cells += 1
    assert 0.9 <= covered / cells <= 0.99


def test_shared_seeds_sharpen_the_estimate() -> None:
    errors = []
    for night in range(40):
        model = RunModel.of(STUDY, history(WALK, night=night, noise=0.2, runs=3, seed_sd=3.0))
        effect = model.effect(("width", 128))
        errors.append(abs(effect.delta - 2.0) if effect else 9.0)
    assert np.median(errors) < 0.3, "without the seeds' own effect it would be 2"


def test_what_always_changed_together_is_unknown_and_told() -> None:
    effects = factor_effects(STUDY, history([{"lr": 2.0}, {"width": 128, "act": "relu"}]))
    width = at(effects, "width", 128)
    assert (width.label, width.effect, width.confounded_with) == ("unknown", None, ("act relu",))
    assert at(effects, "lr", 2.0).effect is not None, "the rest is as well known as ever"
    assert at(effects, "ema", True).label == "not tried"


def test_an_interaction_is_named() -> None:
    grid: list[dict[str, Scalar]] = [{"lr": 2.0}, {"width": 128}, {"lr": 2.0, "width": 128}, {"act": "relu"}]
    seen = history(grid, together, runs=2)
    (found,) = interactions(STUDY, seen)
    assert {found.one, found.other} == {("lr", 2.0), ("width", 128)}
    assert found.effect.delta == pytest.approx(4.0, abs=0.6)
    effects = factor_effects(STUDY, seen)
    assert at(effects, "lr", 2.0).interactions == ("width 128",)
    width = at(effects, "width", 128).effect
    assert width and width.delta == pytest.approx(2.0, abs=0.5), "its effect where everything else is the baseline's"


def test_interactions_are_not_seen_where_there_are_none() -> None:
    grid: list[dict[str, Scalar]] = [{"lr": 2.0}, {"width": 128}, {"lr": 2.0, "width": 128}, {"act": "relu"}]
    wrong = sum(bool(interactions(STUDY, history(grid, night=night, noise=1.0, runs=2))) for night in range(100))
    assert wrong <= 4


def test_importance_is_the_share_of_the_differences() -> None:
    effects = factor_effects(STUDY, history(WALK, runs=2))
    shares = {one.factor: one.importance or 0.0 for one in effects if one.level is None}
    assert sum(shares.values()) == pytest.approx(1.0)
    assert sorted(shares, key=lambda name: -shares[name])[:2] == ["lr", "width"]
    assert shares["act"] < 0.02


def test_the_likely_effect_of_noise_is_near_zero() -> None:
    flat = history(WALK, level, noise=1.0, night=3)
    effects = [one for one in factor_effects(STUDY, flat) if one.level is not None and one.effect]
    assert max(abs(one.effect.delta) for one in effects if one.effect) > 1.0
    assert max(abs(one.likely or 0.0) for one in effects) < 0.6


def test_a_bundle_is_one_variable() -> None:
    also: tuple[dict[str, Scalar], ...] = ({"schedule": "cosine", "warmup": 100},)
    bundle = RankedFactor("long_cosine", ("long",), ordered=False, also=also)
    changed: dict[str, Scalar] = {"schedule": "cosine", "warmup": 100}
    seen = history([changed, {**changed, "lr": 2.0}], factors=(bundle, *FACTORS))
    assert RunModel.of(STUDY, seen).terms == (("long_cosine", "long"), ("lr", 2.0))
    one = at(factor_effects(STUDY, seen), "long_cosine", "long")
    assert one.effect is not None and one.runs == 2


def test_a_move_is_the_variable_that_was_tried_around_the_incumbent() -> None:
    seen = history([*WALK, {"lr": 2.0, "act": "relu", "ema": True}], noise=0.01)
    first, wider, act = (move_of(STUDY, seen, number) for number in (1, 4, 5))
    assert first and (first.factor, first.before, first.after, first.parent) == ("lr", None, 2.0, 0)
    assert wider and (wider.factor, wider.before, wider.after, wider.parent) == ("width", 128, 256, 3)
    assert wider.effect and wider.effect.delta == pytest.approx(0.5, abs=0.1)
    assert act and (act.factor, act.after, act.parent) == ("act", "relu", 4)
    assert act.effect and act.effect.delta == pytest.approx(0.0, abs=0.1)
    assert move_of(STUDY, seen, 0) is None, "the baseline moved nothing"
    assert move_of(STUDY, seen, 7) is None, "two variables at once"
    assert move_of(STUDY, seen, 99) is None


def test_a_move_is_that_of_the_variable_under_test_whatever_ended_meanwhile() -> None:
    both: dict[str, Scalar] = {"lr": 2.0, "width": 128}
    seen = history([{"lr": 2.0}, {"width": 128}, both])
    assert [move.factor for move in moves_of(STUDY, seen, {0: "baseline", 1: "lr-2", 3: "lr-2"}).values()] == ["lr"]
    by_name = {name: moves_of(STUDY, seen, {3: name})[3] for name in ("width-128", "lr-2", "combine-best")}
    assert (by_name["width-128"].factor, by_name["width-128"].parent) == ("width", 1)
    assert (by_name["lr-2"].factor, by_name["lr-2"].parent, by_name["lr-2"].technique) == ("lr", 2, "lr-sweep")
    assert by_name["combine-best"].parent == 1, "the better of the two"


def test_a_move_is_judged_by_its_own_effect_not_by_the_company_it_was_in() -> None:
    seen = history(WALK, noise=0.05, runs=2)
    whole = Verdict(number=5, kind=VerdictKind.INCONCLUSIVE, basis=Phase.SCREEN, label="promising", reason="+5.5")
    move = move_of(STUDY, seen, 5)
    assert move and (move.changed, move.replaced) == ({"act": "relu"}, {"act": "tanh"})
    own = verdict_on_move(STUDY, whole, move)
    assert (own.kind, own.label, own.effect) == (VerdictKind.DISCARD, "without effect", move.effect)
    failed = whole.model_copy(update={"kind": VerdictKind.FAILED})
    assert verdict_on_move(STUDY, failed, move) == failed


def test_failed_and_rejected_runs_say_nothing_of_an_effect() -> None:
    seen = history([{"lr": 2.0}])
    failed = Trial(2, {**PARAMETERS, "lr": 4.0}, {"lr": 4.0}, 0, Phase.SCREEN, "failed")
    bad = Trial(3, {**PARAMETERS, "width": 128}, {"width": 128}, 0, Phase.SCREEN, "measured", 1.0, valid=False)
    effects = factor_effects(STUDY, History(FACTORS, trials=(*seen.trials, failed, bad)))
    assert at(effects, "lr", 4.0).label == "failed"
    assert (at(effects, "width", 128).label, at(effects, "width", 128).effect) == ("unknown", None)


def test_before_anything_has_run_nothing_is_known() -> None:
    effects = factor_effects(STUDY, History(FACTORS))
    assert {one.label for one in effects} == {"not tried"}
    assert interactions(STUDY, History(FACTORS)) == []


def test_pairs_that_differ_in_nothing_else_tell_most() -> None:
    """A useless level tried once, beside changes that interact: a single pair shows that it does nothing."""

    def mixed(changed: Mapping[str, Scalar]) -> float:
        return together(changed) - 2.0 * (changed.get("ema") is True)

    walk: list[dict[str, Scalar]] = [{"lr": 2.0}, {"width": 128}, {"lr": 2.0, "width": 128}]
    walk += [{"lr": 2.0, "width": 128, "act": "relu"}, {"lr": 2.0, "width": 128, "ema": True}]
    told = history(walk, mixed, noise=0.05)
    labels = {one.factor: one.label for one in factor_effects(STUDY, told) if one.level is None}
    assert labels["act"] == "without effect"
    assert labels["ema"] == "promising"
    model = RunModel.of(STUDY, told)
    act = direct_effect(model, ("act", "relu"))
    assert act is not None and act.low is not None and abs(act.delta) < 0.3
    assert direct_effect(model, ("width", 128)) is None, "it gains 2 alone and 6 beside lr 2: there is no one effect"
    assert direct_effect(model, ("width", 256)) is None, "never run"
