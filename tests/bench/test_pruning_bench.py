"""The bench of pruning counts steps, quality and wrong kills as it says."""

from __future__ import annotations

import numpy as np

from bench.pruning import HIGHEST, METHODS, Never, Outcome, night

LENGTH = 50


def curves(finals: np.ndarray, *, pace: float = 4.0) -> np.ndarray:
    """Losses that fall from 3 to their finals, most of it early."""
    share = np.linspace(0.0, 1.0, LENGTH + 1)
    return np.asarray(finals[:, None] + (3.0 - finals[:, None]) * np.exp(-pace * share))


def played(method: str, finals: np.ndarray) -> Outcome:
    losses = curves(finals)
    last = losses[:, -1]
    scale = float(last.min()), float(np.quantile(last, 0.05)), float(np.median(last))
    return night(losses, last, range(len(finals)), METHODS[method](LENGTH), scale)


def test_full_runs_cost_one_each_and_the_quality_is_that_of_the_best_so_far() -> None:
    losses = np.array([[3.0, 2.0], [3.0, 1.0], [3.0, 1.5], [3.0, 0.5]])
    outcome = night(losses, losses[:, -1], [0, 1, 2, 3], Never(), (0.5, 0.5, 1.25))
    assert (outcome.runs, outcome.pruned) == (4, 0)
    assert outcome.quality[:5].tolist() == [1.0, 0.5 / 0.75, 0.5 / 0.75, 0.0, 0.0]
    assert len(outcome.quality) == HIGHEST


def test_hopeless_runs_are_ended_and_more_are_started_for_the_same_steps() -> None:
    finals = np.random.default_rng(0).uniform(0.5, 2.9, 400)
    full, ours = played("full runs", finals), played("nightlab (default)", finals)
    assert full.runs == HIGHEST and ours.runs > 2 * HIGHEST
    assert ours.quality[-1] <= full.quality[-1]
    # These curves never cross: what is behind stays behind.
    assert ours.wrong_win == 0
