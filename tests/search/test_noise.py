"""The noise estimate by simulation: right where noise is even, not misled where it is not."""

from __future__ import annotations

from statistics import median

import numpy as np
import pytest

from nightlab.configs.study import Factor
from nightlab.search.effects import estimate_effect, shrunk
from nightlab.search.noise import Noise, clearly_noisier, noise_at, own_noise, pooled_noise
from tests.search.simulate import make_study

STUDY = make_study({"x": 1}, {"x": Factor(levels=[2])}, min_effect=0.0)
NIGHTS = 400


def samples(
    random: np.random.Generator, means: list[float], deviations: list[float], runs: int = 2
) -> list[list[float]]:
    return [list(random.normal(mean, sd, runs)) for mean, sd in zip(means, deviations, strict=True)]


def estimates(means: list[float], deviations: list[float], *, heavy: bool = False) -> list[Noise]:
    found = []
    for night in range(NIGHTS):
        random = np.random.default_rng(night)
        others = samples(random, means, deviations)
        if heavy:
            others = [list(random.standard_t(3, 2) / 3**0.5 * sd) for sd in deviations]
        found.append(pooled_noise(STUDY, list(random.normal(0, 1, 3)), others))
    return found


def test_even_noise_is_estimated_without_bias_from_all_replicates() -> None:
    found = estimates([0.0] * 6, [1.0] * 6)
    assert np.mean([noise.sd**2 for noise in found]) == pytest.approx(1.0, abs=0.07)
    assert np.mean([noise.degrees for noise in found]) > 7.7, "2 of the baseline and 6 more, hardly ever one less"


@pytest.mark.parametrize("loss", [20.0, 200.0])
def test_bad_configurations_do_not_inflate_it(loss: float) -> None:
    """Half of what was tried is far worse and ten times as noisy; without care the estimate would be 7."""
    found = estimates([0.0] * 3 + [loss] * 3, [1.0] * 3 + [10.0] * 3)
    assert median(noise.sd for noise in found) == pytest.approx(0.95, abs=0.15)


def test_one_wild_configuration_near_the_baseline_is_left_out() -> None:
    found = estimates([0.0] * 6, [1.0] * 5 + [30.0])
    assert median(noise.sd for noise in found) == pytest.approx(1.0, abs=0.15)


def test_heavy_tails_do_not_mislead_it() -> None:
    found = [noise.sd for noise in estimates([0.0] * 8, [1.0] * 8, heavy=True)]
    assert 0.6 < median(found) < 1.1
    assert np.quantile(found, 0.95) < 2.0


def test_a_lucky_pair_of_baseline_replicates_does_not_decide_what_is_near() -> None:
    baseline, better, worse = [0.0, 0.01, -0.01], [-1.0, 1.0], [0.5, 2.5]
    assert pooled_noise(STUDY, baseline, [worse, better]).degrees == 4


def test_clearly_noisier_keeps_its_promise() -> None:
    random = np.random.default_rng(0)
    wrong = sum(
        clearly_noisier(own_noise(list(random.normal(size=3))), own_noise(list(random.normal(size=8))), 0.05)
        for _ in range(2000)
    )
    assert 0.035 < wrong / 2000 < 0.065
    assert not clearly_noisier(Noise(1.0, 2), Noise(0.0, 5), 0.05), "nothing is noisier than a metric without noise"


def test_a_noisy_side_stands_on_its_own_noise() -> None:
    noise = Noise(0.1, 8)
    wild, calm, baseline = [1.0, 5.0, 3.0], [3.0, 3.1, 2.9], [3.0, 3.05]
    assert noise_at(wild, noise) == own_noise(wild)
    assert noise_at(calm, noise) == noise
    effects = [estimate_effect(STUDY, values, baseline, noise) for values in (wild, calm)]
    widths = [effect.high - effect.low for effect in effects if effect.low is not None and effect.high is not None]
    assert widths[0] > 20 * widths[1]


def test_the_shrunk_effect_of_the_best_is_right_on_average() -> None:
    """The winner's curse: of 12 changes the best one's raw effect is a deviation too large, the shrunk one is not."""
    raw, better = [], []
    for night in range(NIGHTS):
        random = np.random.default_rng(night)
        truth = random.normal(0.0, 0.7, 12)
        seen = truth + random.normal(0.0, 1.0, 12)
        best = int(np.argmax(seen))
        raw.append(seen[best] - truth[best])
        better.append(shrunk(seen[best], 1.0, [(one, 1.0) for one in seen]) - truth[best])
    assert np.mean(raw) > 0.9
    assert abs(np.mean(better)) < 0.25


def test_without_noise_or_company_nothing_is_shrunk() -> None:
    assert shrunk(2.0, 0.0, [(2.0, 0.0), (1.0, 0.0), (0.0, 0.0)]) == 2.0
    assert shrunk(2.0, 1.0, [(2.0, 1.0)]) == 2.0
