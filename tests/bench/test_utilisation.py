"""The bench of the slots: its own book-keeping, and that few slots stay empty before the last submission."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.utilisation import DURATIONS, MEAN_SECONDS, SlotNight, main, slot_study
from nightlab.search.engine import propose
from nightlab.search.space import configuration_key


def _even(random: np.random.Generator) -> float:
    return 1.0


@pytest.mark.parametrize("name", DURATIONS)
def test_a_run_lasts_as_long_as_it_says_on_average(name: str) -> None:
    random = np.random.default_rng(0)
    assert np.mean([DURATIONS[name](random) for _ in range(20_000)]) == pytest.approx(1.0, rel=0.05)


def test_the_shares_add_up_and_hardly_a_slot_is_empty_before_the_last_submission() -> None:
    night = SlotNight(slot_study(4), 72, DURATIONS["lognormal, σ 0.5"], planning_scale=0.0)
    use = night.play()
    assert use.runs <= 72 and use.planning == 0.0
    assert use.busy + use.waiting + use.planning + use.tail == pytest.approx(1.0)
    assert use.busy <= use.ceiling <= 1.0
    assert use.before_last > 0.93
    first, last = night.starts[0][0], max(end for _, end in night.starts)
    assert use.busy == pytest.approx(sum(end - start for start, end in night.starts) / (4 * (last - first)))


def test_the_time_of_planning_is_lost() -> None:
    """Each plan costs half a run, far more than is planned ahead for."""
    nights = [SlotNight(slot_study(4), 16, _even, planning_scale=scale) for scale in (0.0, 1e5)]
    quick, slow = (night.play() for night in nights)
    assert slow.planning > 0.1 > quick.planning
    assert slow.busy < quick.busy
    assert all(end - start == pytest.approx(MEAN_SECONDS) for night in nights for start, end in night.starts)


def test_the_page_has_a_row_for_every_kind_of_night(tmp_path: Path) -> None:
    page = tmp_path / "utilisation.md"
    kinds = ["--durations", "lognormal, σ 1;Pareto"]
    assert main(["--slots", "8", "--runs-per-slot", "2", "--nights", "1", "--out", str(page), *kinds]) == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("| 8 | ") == 2 and "numpy" in text


def test_one_plan_fills_many_free_slots_with_different_runs() -> None:
    night = SlotNight(slot_study(4), 400, _even, planning_scale=0.0)
    while sum(trial.state == "measured" for trial in night.trials) < 40:
        night.step()
    history = replace(night.history, runs_left=10_000)
    planned = propose(slot_study(200), history, 0)
    assert len(planned) > 150
    assert len({(configuration_key(proposal.changed), proposal.seed) for proposal in planned}) == len(planned)
