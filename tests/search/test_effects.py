"""Noise and effects, against scipy's own tests where it has them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from nightlab.configs.study import Factor
from nightlab.search.effects import contrast_effect, estimate_effect, paired_effect
from nightlab.search.noise import Noise, pooled_noise
from tests.search.simulate import make_study

MINIMIZE = make_study({"x": 1}, {"x": Factor(levels=[2])})
MAXIMIZE = make_study({"x": 1}, {"x": Factor(levels=[2])}, direction="maximize")


def test_noise_pools_replicates_near_the_baseline_only() -> None:
    baseline, near, far = [3.0, 3.2, 2.9], [2.8, 3.1], [30.0, 60.0]
    noise = pooled_noise(MINIMIZE, baseline, [near, far, [5.0]])
    squares = 2 * np.var(baseline, ddof=1) + np.var(near, ddof=1)
    assert noise.degrees == 3
    assert noise.sd == pytest.approx((squares / 3) ** 0.5)
    better = [-30.0, -60.0]
    assert pooled_noise(MINIMIZE, baseline, [better]).degrees == 3, "what is better is never left out"
    assert pooled_noise(MAXIMIZE, baseline, [better]).degrees == 2


def test_noise_of_a_deterministic_task_is_zero_and_of_one_run_unknown() -> None:
    assert pooled_noise(MINIMIZE, [3.0, 3.0, 3.0], []) == Noise(0.0, 2)
    assert pooled_noise(MINIMIZE, [3.0], []) == Noise(0.0, 0)


def test_unpaired_interval_is_student_s() -> None:
    values, baseline = [2.1, 2.4, 1.9], [3.0, 3.2, 2.9]
    noise = pooled_noise(MINIMIZE, baseline, [values])
    effect = estimate_effect(MINIMIZE, values, baseline, noise)
    expected = stats.ttest_ind(baseline, values).confidence_interval(0.95)
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high))
    assert effect.delta == pytest.approx(np.mean(baseline) - np.mean(values))


def test_improvement_is_positive_in_both_directions() -> None:
    noise = Noise(0.1, 5)
    down = estimate_effect(MINIMIZE, [2.0], [3.0], noise)
    up = estimate_effect(MAXIMIZE, [-2.0], [-3.0], noise)
    assert down == up
    assert down.delta == 1.0


def test_without_degrees_of_freedom_there_is_no_interval() -> None:
    effect = estimate_effect(MINIMIZE, [2.0], [3.0], Noise())
    assert (effect.delta, effect.low, effect.high) == (1.0, None, None)


def test_paired_interval_is_the_paired_t_where_no_other_noise_is_known() -> None:
    values, baseline = {1: 2.0, 2: 2.3, 3: 1.8, 9: 0.0}, {1: 3.0, 2: 3.1, 3: 3.0, 4: 99.0}
    effect = paired_effect(MINIMIZE, values, baseline, Noise(), 0.975)
    assert effect is not None
    expected = stats.ttest_rel([3.0, 3.1, 3.0], [2.0, 2.3, 1.8]).confidence_interval(0.975)
    assert (effect.low, effect.high) == pytest.approx((expected.low, expected.high))
    assert (effect.runs, effect.paired) == (3, True)
    assert effect.confidence == pytest.approx(0.975)


def test_known_noise_narrows_the_paired_interval_unless_the_differences_are_wilder() -> None:
    baseline = {1: 3.0, 2: 3.1, 3: 3.0}
    calm, wild = {1: 2.0, 2: 2.3, 3: 1.8}, {1: -3.0, 2: 2.3, 3: 6.0}
    known = Noise(0.15, 8)

    def width(values: dict[int, float], noise: Noise) -> float:
        effect = paired_effect(MINIMIZE, values, baseline, noise, 0.95)
        assert effect and effect.low is not None and effect.high is not None
        return effect.high - effect.low

    assert width(calm, known) < width(calm, Noise()) / 1.5
    assert width(wild, known) == width(wild, Noise())


def test_one_pair_says_nothing() -> None:
    assert paired_effect(MINIMIZE, {1: 2.0, 2: 2.0}, {1: 3.0}, Noise(0.1, 9), 0.95) is None


def test_contrast_of_two_means_is_the_unpaired_effect() -> None:
    noise = Noise(0.2, 6)
    contrast = contrast_effect(MINIMIZE, [(1.0, [2.0, 2.2]), (-1.0, [3.0, 3.1, 3.2])], noise)
    assert contrast.model_dump() == pytest.approx(
        estimate_effect(MINIMIZE, [2.0, 2.2], [3.0, 3.1, 3.2], noise).model_dump()
    )
