"""Whole nights on simulated tasks: the promises of the search, with counts."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase, Proposal, VerdictKind
from nightlab.search.attribution import factor_effects
from nightlab.search.belief import judge_all
from nightlab.search.engine import propose
from nightlab.search.history import History
from tests.search.simulate import Night, Response, gaussian, make_study

PARAMETERS: dict[str, Scalar] = {"lr": 1.0, "width": 64, "act": "tanh", "ema": False, "batch": 32, "decay": 0.1}
SPACE = {
    "lr": Factor(levels=[0.25, 0.5, 2.0, 4.0], scale="log", tier=1),
    "width": Factor(levels=[32, 128], tier=2),
    "act": Factor(levels=["relu", "gelu"]),
    "ema": Factor(levels=[True]),
    "batch": Factor(levels=[16, 64]),
    "decay": Factor(range=(0.01, 1.0), scale="log", steps=3, tier=5),
}


def night(
    response: Response,
    *,
    runs: int = 30,
    min_effect: float = 0.0,
    direction: str = "minimize",
    seed: int = 0,
    slots: int = 2,
    experiments: int | None = None,
    shape: Callable[[np.random.Generator], float] = gaussian,
) -> Night:
    study = make_study(PARAMETERS, SPACE, min_effect=min_effect, direction=direction)
    return Night(study, response, runs, seed=seed, slots=slots, experiments=experiments, shape=shape)


def flat(parameters: Mapping[str, Scalar]) -> float:
    return 3.0


def one_gain(size: float) -> Response:
    return lambda parameters: 3.0 - (size if parameters["lr"] == 2.0 else 0.0)


def rich(parameters: Mapping[str, Scalar]) -> float | None:
    """Two gains, an interaction, a cliff above lr 2 and a level that always fails."""
    if float(parameters["lr"]) > 1.5 or parameters["act"] == "relu":
        return None
    gain = 6.0 * (parameters["lr"] == 0.5) + 4.0 * (parameters["width"] == 128) + 3.0 * (parameters["ema"] is True)
    return 10.0 - gain + 2.0 * (parameters["ema"] is True and parameters["width"] == 128)


def student(random: np.random.Generator) -> float:
    return float(random.standard_t(3)) / 3**0.5


def wins(history: History, one: Night) -> set[int]:
    return {n for n, verdict in judge_all(one.study, history).items() if verdict.kind == VerdictKind.KEEP}


def test_the_baseline_comes_first_and_the_first_changes_do_not_wait_for_it() -> None:
    first = propose(night(flat).study, night(flat).history, 0)
    assert [proposal.variable for proposal in first[:5]] == ["baseline"] * 3 + ["lr-2", "lr-0-5"]
    assert [proposal.seed for proposal in first[:3]] == [0, 1, 2]
    assert all(proposal.reason and "\n" not in proposal.reason for proposal in first)
    assert "lr-4" not in {proposal.variable for proposal in first}, "the farther level waits for the nearer one"


def test_a_change_is_stated_whole_and_against_the_baseline() -> None:
    lr = next(one for one in propose(night(flat).study, night(flat).history, 0) if one.variable == "lr-2")
    assert lr.changed == {"lr": 2.0}
    assert lr.parameters == {**PARAMETERS, "lr": 2.0}
    assert lr.reason.startswith("single change: lr 1.0 → 2.0 (tier 1")


@pytest.mark.parametrize("response", [flat, one_gain(5.0), rich])
@pytest.mark.parametrize(
    ("runs", "experiments", "slots"), [(1, None, 1), (5, None, 2), (13, None, 3), (24, 6, 2), (45, None, 8)]
)
def test_a_night_is_deterministic_keeps_its_budget_and_repeats_no_run(
    response: Response, runs: int, experiments: int | None, slots: int
) -> None:
    one, again = (night(response, runs=runs, experiments=experiments, slots=slots) for _ in range(2))
    history = one.run()
    assert again.run() == history
    assert len(history.trials) <= runs
    assert experiments is None or (history.experiments_left is not None and history.experiments_left >= 0)
    pairs = Counter((trial.number, trial.seed) for trial in history.trials)
    assert set(pairs.values()) == {1}
    assert propose(one.study, history, 0) == []


@pytest.mark.parametrize("response", [flat, rich])
def test_what_is_in_flight_counts_as_proposed(response: Response) -> None:
    """A lab killed after submitting part of the proposals plans exactly the rest."""
    one = night(response, runs=40, slots=4)
    while True:
        planned = propose(one.study, one.history, 0)
        assert propose(one.study, one.history, 0) == planned
        if planned:
            before = one.history
            copy = night(response, runs=40, slots=4)
            copy.trials, copy.numbers = list(before.trials), dict(one.numbers)
            copy.start(planned[0])
            rest = propose(one.study, copy.history, 0)
            assert planned[0] not in rest
            assert {_key(proposal) for proposal in planned[1:]} <= {_key(proposal) for proposal in rest}
        if not one.step():
            break


def _key(proposal: Proposal) -> tuple[str, str, int]:
    return proposal.variable, str(proposal.parameters), proposal.seed


@pytest.mark.parametrize(("shape", "count"), [(gaussian, 200), (student, 100)])
def test_false_wins_are_rare(shape: Callable[[np.random.Generator], float], count: int) -> None:
    """Nothing matters and min_effect is 0: at most 5 % of the nights report a win (1.5–4 % measured)."""
    nights = [night(flat, seed=seed, shape=shape) for seed in range(count)]
    assert sum(bool(wins(one.run(), one)) for one in nights) <= 0.05 * count


def test_a_clear_gain_is_found_and_confirmed() -> None:
    """A gain of five deviations: in at least 95 % of 40 nights."""
    nights = [night(one_gain(5.0), runs=40, seed=seed, min_effect=0.5) for seed in range(40)]
    found = 0
    for one in nights:
        history = one.run()
        changed = {trial.number: trial.changed for trial in history.trials}
        found += any(changed[number].get("lr") == 2.0 for number in wins(history, one))
    assert found >= 38


def test_useless_factors_are_reported_without_effect() -> None:
    """min_effect is three deviations and only lr matters: most useless factors are recognised, none is a win."""
    labels: Counter[str] = Counter()
    for seed in range(40):
        one = night(one_gain(9.0), runs=40, seed=seed, min_effect=3.0)
        effects = factor_effects(one.study, one.run())
        labels.update(one.label for one in effects if one.level is None and one.factor != "lr")
    assert labels["without effect"] >= 0.75 * labels.total()
    assert labels["confirmed"] == 0


def test_failing_cells_are_not_run_again_nor_levels_beyond_them() -> None:
    one = night(rich, runs=45)
    history = one.run()
    failed = [trial for trial in history.trials if trial.state == "failed"]
    assert {str(trial.changed) for trial in failed} == {"{'lr': 2.0}", "{'act': 'relu'}"}
    assert len(failed) == 2, "each once, lr 4 never, no combination with them"
    changed = {trial.number: trial.changed for trial in history.trials}
    best = max(wins(history, one), key=lambda number: len(changed[number]))
    assert changed[best].items() >= {"lr": 0.5, "width": 128}.items()


def test_maximize_mirrors_minimize() -> None:
    low = night(rich, runs=40, min_effect=0.5).run()

    def mirrored(parameters: Mapping[str, Scalar]) -> float | None:
        value = rich(parameters)
        return None if value is None else -value

    up = night(mirrored, runs=40, min_effect=0.5, direction="maximize", shape=lambda random: -gaussian(random))
    high = up.run()
    assert [(t.number, t.seed, t.phase) for t in high.trials] == [(t.number, t.seed, t.phase) for t in low.trials]
    ours, theirs = judge_all(up.study, high), judge_all(night(rich, min_effect=0.5).study, low)
    assert {n: v.reason for n, v in ours.items()} == {n: v.reason for n, v in theirs.items()}


def test_confirmation_uses_fresh_seeds_on_both_sides() -> None:
    history = night(one_gain(5.0), runs=40).run()
    fresh = {trial.seed for trial in history.trials if trial.phase == Phase.CONFIRM}
    assert len(fresh) == 3
    assert not fresh & {trial.seed for trial in history.trials if trial.phase != Phase.CONFIRM}
    for number in {trial.number for trial in history.trials if trial.phase == Phase.CONFIRM}:
        assert {t.seed for t in history.trials if t.number == number and t.phase == Phase.CONFIRM} == fresh
    other = propose(night(flat).study, night(flat).history, 7)
    assert other == propose(night(flat).study, night(flat).history, 0), "exploration shares the baseline's seeds"


def test_where_everything_is_worse_no_run_goes_into_confirmation() -> None:
    def worse(parameters: Mapping[str, Scalar]) -> float:
        return 3.0 + 20.0 * (dict(parameters) != PARAMETERS)

    history = night(worse, runs=40).run()
    assert all(trial.phase in (Phase.BASELINE, Phase.SCREEN) for trial in history.trials)
    assert history.runs_left > 9


def test_a_baseline_that_always_fails_ends_the_night() -> None:
    one = night(lambda parameters: None if dict(parameters) == PARAMETERS else 1.0, slots=1)
    history = one.run()
    assert {trial.changed == {} for trial in history.trials} == {True}
    assert len(history.trials) == one.study.search.baseline_replicates


def test_a_deterministic_metric_needs_no_noise() -> None:
    one = night(one_gain(0.01), runs=30, min_effect=0.001)
    one.noise = 0.0
    assert len(wins(one.run(), one)) >= 1
    same = night(flat, runs=30, min_effect=0.001)
    same.noise = 0.0
    assert {effect.label for effect in factor_effects(same.study, same.run())} == {"without effect"}


def test_a_factor_that_needs_another_value_is_not_screened() -> None:
    space = {**SPACE, "decay": Factor(levels=[0.2], requires={"act": "relu"})}
    study = make_study(PARAMETERS, space)
    assert all("decay" not in trial.changed for trial in Night(study, flat, runs=30).run().trials)


def test_slots_stay_busy() -> None:
    """Two slots and heavy-tailed durations, the night's own tail included (0.97 measured)."""
    nights = [night(one_gain(4.0), runs=45, seed=seed) for seed in range(10)]
    for one in nights:
        one.run()
    assert sum(one.busy for one in nights) > 0.95 * sum(one.clock * one.slots for one in nights)


def test_importing_the_search_loads_nothing_heavy() -> None:
    code = "import sys, nightlab.search.engine; print([m for m in %r if m in sys.modules])"
    heavy = ("langgraph", "git", "sqlalchemy", "matplotlib", "pydoe", "scipy.stats")
    done = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
