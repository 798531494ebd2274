from __future__ import annotations

import pytest

from nightlab.configs.levels import same_value
from nightlab.configs.study import Factor, Scalar
from nightlab.errors import LockedError
from nightlab.search.space import (
    configuration_key,
    is_ordered,
    levels_of,
    variable_slug,
    with_changes,
)
from tests.search.simulate import make_study


def test_levels_leave_out_the_baseline_and_repeats() -> None:
    assert levels_of(Factor(levels=[1, 2.0, 2, 4]), 1.0) == (2.0, 4)
    assert levels_of(Factor(levels=[0.1 + 0.2, 0.5]), 0.3) == (0.5,)
    assert levels_of(Factor(levels=[True, False]), False) == (True,)
    assert levels_of(Factor(levels=["cosine", "linear"]), "linear") == ("cosine",)


@pytest.mark.parametrize(
    ("factor", "levels"),
    [
        (Factor(range=(0.0, 1.0), steps=5), (0.0, 0.25, 0.5, 0.75, 1.0)),
        (Factor(range=(1e-4, 1e-2), steps=3, scale="log"), (1e-4, 1e-3, 1e-2)),
        (Factor(range=(1e-3, 1e-2), steps=3, scale="log"), (1e-3, 3.16e-3, 1e-2)),
        (Factor(range=(16, 256), steps=5, scale="log", integer=True), (16, 32, 64, 128, 256)),
        (Factor(range=(1, 3), steps=9, integer=True), (1, 2, 3)),
    ],
)
def test_ranges_spread(factor: Factor, levels: tuple[Scalar, ...]) -> None:
    assert levels_of(factor, -5) == pytest.approx(levels)
    assert not factor.integer or all(type(level) is int for level in levels_of(factor, -5))


def test_the_baseline_inside_a_range_is_removed_within_float_tolerance() -> None:
    assert levels_of(Factor(range=(0.1, 0.3), steps=3), 0.1 + 0.1) == (0.1, 0.3)


def test_key_is_canonical() -> None:
    assert configuration_key({"a": 1, "b": "x"}) == configuration_key({"b": "x", "a": 1.0})
    assert configuration_key({"a": 1}) != configuration_key({"a": True})
    assert configuration_key({"a": "1"}) != configuration_key({"a": 1})
    assert configuration_key({"a": 1e-3}) == configuration_key({"a": 0.001})
    assert configuration_key({"a": 0.0}) == configuration_key({"a": -0.0})


def test_same_value_tells_a_switch_from_a_number() -> None:
    assert same_value(1, 1.0)
    assert not same_value(1, True)
    assert not same_value("1", 1)


def test_order() -> None:
    assert is_ordered(Factor(levels=[1, 2.5]), 2)
    assert not is_ordered(Factor(levels=[1, 2], categorical=True), 3)
    assert not is_ordered(Factor(levels=[True]), False)
    assert not is_ordered(Factor(levels=[1, 2]), "none")


def test_a_locked_change_cannot_be_expressed() -> None:
    study = make_study({"lr": 1.0, "model": "m"}, {"lr": Factor(levels=[2.0])}).model_copy(update={"locked": ["model"]})
    assert with_changes(study, {"lr": 2.0}) == {"lr": 2.0, "model": "m"}
    with pytest.raises(LockedError, match="model is locked"):
        with_changes(study, {"model": "other"})
    with pytest.raises(LockedError, match="steps is not among"):
        with_changes(study, {"steps": 3})


@pytest.mark.parametrize(
    ("name", "value", "slug"),
    [
        ("learning_rate", 0.003, "learning-rate-0-003"),
        ("learning_rate", 1e-05, "learning-rate-1e-05"),
        ("optimizer.bias", -0.5, "optimizer-bias-minus-0-5"),
        ("use_ema", True, "use-ema-true"),
        ("width", 64.0, "width-64"),
        ("schedule", "Cosine/Warm", "schedule-cosine-warm"),
    ],
)
def test_slug(name: str, value: Scalar, slug: str) -> None:
    assert variable_slug(name, value) == slug


def test_slug_has_a_bounded_length() -> None:
    assert len(variable_slug("x" * 100, 1)) <= 48
