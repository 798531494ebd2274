"""Whole nights on simulated tasks: the promises of the search, with counts."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase, Proposal, VerdictKind
from nightlab.search.attribution import factor_effects
from nightlab.search.belief import judge_all
from nightlab.search.confirmation import confirmation_size, lent_size, reserved_size
from nightlab.search.engine import propose
from nightlab.search.evidence import Evidence
from nightlab.search.history import History, Trial
from nightlab.search.looks import standing
from nightlab.search.space import configuration_key
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


def in_slots(one: Night, slots: int) -> list[Proposal]:
    study = one.study.model_copy(update={"backend": one.study.backend.model_copy(update={"slots": slots})})
    return propose(study, one.history, 0)


def test_the_baseline_comes_first_and_the_first_changes_do_not_wait_for_it() -> None:
    first = in_slots(night(flat), 4)
    assert [proposal.variable for proposal in first] == ["baseline"] * 3 + ["lr-2", "width-128"]
    assert [proposal.seed for proposal in first[:3]] == [0, 1, 2]
    assert all(proposal.reason and "\n" not in proposal.reason for proposal in first)


def test_before_the_baseline_ends_every_slot_has_something_to_do() -> None:
    """Each factor's first value, then the others, then two changes at once where single ones do not suffice."""
    first = in_slots(night(flat, runs=90), 40)
    sizes = [len(proposal.changed) for proposal in first]
    assert len(first) == 42 and len({configuration_key(one.changed) for one in first[3:]}) == 39
    assert sizes == [0] * 3 + [1] * 13 + [2] * 26
    assert [next(iter(one.changed)) for one in first[3:9]] == list(SPACE)
    assert {next(iter(one.changed.values())) for one in first[3:9]} == {2.0, 128, "relu", True, 64}


def test_a_change_is_stated_whole_and_against_the_baseline() -> None:
    lr = next(one for one in in_slots(night(flat), 4) if one.variable == "lr-2")
    assert lr.changed == {"lr": 2.0}
    assert lr.parameters == {**PARAMETERS, "lr": 2.0}
    assert lr.reason.startswith("single change: lr 1.0 → 2.0 (tier 1")


def test_a_change_around_a_moved_centre_says_what_it_stands_beside() -> None:
    one = night(lambda parameters: 3.0 - 5.0 * (parameters["ema"] is True), runs=60)
    reasons: list[str] = []
    while one.step():
        reasons += [proposal.reason for proposal in propose(one.study, one.history, 0)]
    assert any(re.match("single change: .*, beside .*ema True", reason) for reason in reasons)
    assert any(reason.startswith("joint move: ") and "the surrogate expects" in reason for reason in reasons)


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


def curved(parameters: Mapping[str, Scalar]) -> float:
    """Best at lr 2; lr 4 is no better than the baseline's 1."""
    return 3.0 - 5.0 * (1 - (math.log2(float(parameters["lr"])) - 1) ** 2)


def switched(parameters: Mapping[str, Scalar]) -> float:
    return 3.0 - 5.0 * (parameters["ema"] is True)


@pytest.mark.parametrize(("response", "gains"), [(curved, {"lr": 2.0}), (switched, {"ema": True})])
def test_a_clear_gain_is_found_and_confirmed(response: Response, gains: dict[str, Scalar]) -> None:
    """A gain of five deviations: in at least 9 of 12 nights (18 to 20 of 20 measured)."""
    nights = [night(response, runs=40, seed=seed, min_effect=0.5) for seed in range(12)]
    found = 0
    for one in nights:
        history = one.run()
        changed = {trial.number: trial.changed for trial in history.trials}
        found += any(gains.items() <= changed[number].items() for number in wins(history, one))
    assert found >= 9


def test_a_gain_of_one_value_alone_is_mostly_found() -> None:
    """Nothing around it hints at it: lr 2 alone gains, its neighbours do not (17 to 18 of 20 measured)."""
    nights = [night(one_gain(5.0), runs=40, seed=seed, min_effect=0.5) for seed in range(12)]
    assert sum(bool(wins(one.run(), one)) for one in nights) >= 8


def test_useless_factors_are_reported_without_effect() -> None:
    """min_effect is three deviations and only lr matters: most useless factors are recognised, none is a win."""
    labels: Counter[str] = Counter()
    for seed in range(20):
        one = night(one_gain(9.0), runs=40, seed=seed, min_effect=3.0)
        effects = factor_effects(one.study, one.run())
        labels.update(one.label for one in effects if one.level is None and one.factor != "lr")
    assert labels["without effect"] + labels["no worthwhile gain"] >= 0.7 * labels.total()
    assert labels["without effect"] >= 0.4 * labels.total()
    assert labels["confirmed"] == 0


def test_failing_cells_are_not_run_again_nor_levels_beyond_them() -> None:
    one = night(rich, runs=45)
    history = one.run()
    failed = [trial for trial in history.trials if trial.state == "failed"]
    assert 2 <= len(failed) <= 3
    assert all(trial.changed.get("lr") != 4.0 for trial in history.trials), "beyond a level that failed"
    assert {"act": "relu"} in [trial.changed for trial in failed]
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
    assert 3 <= len(fresh) <= 8
    assert not fresh & {trial.seed for trial in history.trials if trial.phase != Phase.CONFIRM}
    for number in {trial.number for trial in history.trials if trial.phase == Phase.CONFIRM}:
        seeds = {t.seed for t in history.trials if t.number == number and t.phase == Phase.CONFIRM}
        assert seeds == fresh if number == 0 else seeds <= fresh and len(seeds) >= 3
    other = propose(night(flat).study, night(flat).history, 7)
    assert other == propose(night(flat).study, night(flat).history, 0), "exploration shares the baseline's seeds"


def test_where_everything_is_worse_no_run_goes_into_confirmation() -> None:
    def worse(parameters: Mapping[str, Scalar]) -> float:
        return 3.0 + 20.0 * (dict(parameters) != PARAMETERS)

    history = night(worse, runs=40).run()
    assert all(trial.phase != Phase.CONFIRM for trial in history.trials)
    assert history.runs_left >= 9


def test_a_baseline_that_always_fails_ends_the_night() -> None:
    one = night(lambda parameters: None if dict(parameters) == PARAMETERS else 1.0, slots=1)
    history = one.run()
    assert {trial.changed == {} for trial in history.trials} == {True}
    assert len(history.trials) == one.study.search.baseline_replicates


def test_a_deterministic_metric_needs_no_noise() -> None:
    one = night(lambda parameters: 3.0 - 0.01 * (parameters["ema"] is True), runs=30, min_effect=0.001)
    one.noise = 0.0
    assert len(wins(one.run(), one)) >= 1
    same = night(flat, runs=30, min_effect=0.001)
    same.noise = 0.0
    labels = Counter(effect.label for effect in factor_effects(same.study, same.run()))
    assert set(labels) <= {"without effect", "unknown", "not tried"} and labels["without effect"] > 6


@pytest.mark.parametrize("runs", [12, 14, 30])
def test_one_variable_is_moved_before_several_together_while_the_baseline_still_runs(runs: int) -> None:
    one = night(flat, runs=runs)
    both = [Trial(0, PARAMETERS, {}, seed, Phase.BASELINE, "measured", 3.0 + seed) for seed in (0, 1)]
    last, first, *_ = propose(one.study, replace(one.history, trials=tuple(both), runs_left=runs - 2), 0)
    assert not last.changed
    assert len(first.changed) == 1 and first.phase == Phase.SCREEN


@dataclass
class ReviewedNight(Night):
    """A night whose review rejects each run with one of the values, as good as it looks."""

    refused: frozenset[tuple[str, Scalar]] = frozenset()

    def _outcome(self, trial: Trial) -> Trial:
        return replace(super()._outcome(trial), valid=not self.refused & trial.changed.items())


@pytest.mark.parametrize("refused", [("act", "relu"), ("ema", True), ("lr", 2.0)])
def test_what_review_rejected_is_neither_believed_nor_proposed_again(refused: tuple[str, Scalar]) -> None:
    """It would be the best by far, and the night goes on without it."""
    name, value = refused
    study = make_study(PARAMETERS, SPACE)
    for runs in (14, 40):
        best = ReviewedNight(study, lambda p: -5.0 * (p[name] == value), runs, refused=frozenset({refused}))
        history = best.run()
        assert any(not trial.valid for trial in history.trials)
        assert all(trial.changed.get(name) != value for trial in history.trials if trial.phase == Phase.CONFIRM)
        assert len(history.trials) >= runs - 2, "the budget is used"


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


def test_an_empty_factor_list_leaves_the_baseline_only() -> None:
    one = night(flat)
    one.factors = ()
    assert {trial.phase for trial in one.run().trials} == {Phase.BASELINE}


@pytest.mark.parametrize("slots", [1, 3])
def test_what_single_moves_cannot_find_is_found(slots: int) -> None:
    """Each of the two changes alone is worse; together they gain. Single moves end long before the budget."""
    names = ("a", "b", "c")
    study = make_study(dict.fromkeys(names, False), {name: Factor(levels=[True]) for name in names}, min_effect=0.05)

    def response(parameters: Mapping[str, Scalar]) -> float:
        return 5.0 + 0.5 * (parameters["a"] != parameters["b"]) - 2.0 * bool(parameters["a"] and parameters["b"])

    one = Night(study, response, runs=40, noise=0.01, slots=slots)
    history = one.run()
    changed = {trial.number: trial.changed for trial in history.trials}
    assert any({"a": True, "b": True}.items() <= changed[number].items() for number in wins(history, one))


def test_the_baseline_starts_its_fresh_seeds_while_the_last_runs_of_the_search_end() -> None:
    one = night(switched, runs=40, slots=4, min_effect=0.5)
    ahead = False
    while one.step():
        flying = {trial.phase for trial in one.trials if trial.state == "pending"}
        ahead |= {Phase.REFINE, Phase.CONFIRM} <= flying
        if any(trial.phase == Phase.CONFIRM and trial.changed for trial in one.trials):
            assert Phase.REFINE not in flying
            break
    assert ahead


BUNDLE = {"none": {"lr": 1.0}, "warm": {"lr": 0.5, "warmup": 100}, "hot": {"lr": 2.0, "warmup": 500}}


def test_bundles_conditional_factors_and_constraints_work_through_a_night() -> None:
    parameters: dict[str, Scalar] = {"lr": 1.0, "warmup": 0, "lora": False, "rank": 8, "batch": 32}
    space = {
        "schedule": Factor.model_validate({"settings": BUNDLE}),
        "lora": Factor(levels=[True]),
        "rank": Factor(levels=[4, 16, 64], scale="log", requires={"lora": True}),
        "batch": Factor(levels=[16, 64]),
    }
    study = make_study(parameters, space, min_effect=0.2)

    def response(parameters: Mapping[str, Scalar]) -> float:
        gain = 1.0 * (parameters["warmup"] == 100) + (
            0.5 + 0.5 * (parameters["rank"] == 16) if parameters["lora"] else 0.0
        )
        return 5.0 - gain

    one = Night(study, response, runs=60, noise=0.05, slots=3)
    one.forbidden = ({"lora": True, "batch": 64},)
    history = one.run()
    for trial in history.trials:
        assert (trial.parameters["lr"], trial.parameters["warmup"]) in {(1.0, 0), (0.5, 100), (2.0, 500)}
        assert trial.parameters["lora"] or trial.parameters["rank"] == 8, "the rank means nothing without lora"
        assert not (trial.parameters["lora"] and trial.parameters["batch"] == 64)
    changed = {trial.number: trial.changed for trial in history.trials}
    best = {"lr": 0.5, "warmup": 100, "lora": True, "rank": 16}
    assert any(best.items() <= changed[number].items() for number in wins(history, one))


def test_importing_the_search_loads_nothing_heavy() -> None:
    code = "import sys, nightlab.search.engine; print([m for m in %r if m in sys.modules])"
    heavy = ("langgraph", "git", "sqlalchemy", "matplotlib", "pydoe", "scipy.stats")
    done = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_confirmation_has_no_use_for_is_explored() -> None:
    """Nothing is better than the baseline: the runs that were kept for confirmation try more of the space."""
    one = night(lambda parameters: 3.0 + 9.0 * (parameters["lr"] != 1.0) + (parameters["width"] != 64), runs=16)
    one.noise = 1e-3
    history = one.run()
    assert all(trial.phase != Phase.CONFIRM for trial in history.trials if trial.changed)
    reserved = reserved_size(one.study, 16).runs
    assert reserved >= 6
    assert len(history.trials) > 16 - reserved


def test_nothing_takes_the_runs_that_an_undecided_finalist_may_need() -> None:
    seen = 0
    for seed in range(8):
        one = night(one_gain(1.5), runs=40, min_effect=0.5, seed=seed, slots=4)
        while one.step():
            evidence = Evidence.of(one.study, one.history.trials)
            open_ones = [
                cell
                for cell in evidence.changes
                if cell.number in evidence.confirming and standing(evidence, cell) in ("started", "open")
            ]
            if open_ones:
                planned = sum(trial.phase == Phase.CONFIRM for trial in one.history.trials)
                most = confirmation_size(one.study, one.history.runs_left + planned).seeds
                pairs = [sum(t.phase == Phase.CONFIRM for t in cell.trials) for cell in open_ones]
                free = one.history.runs_left - 2 * max(most - done for done in pairs)
                other = [p for p in propose(one.study, one.history, 0) if p.phase != Phase.CONFIRM]
                assert len(other) <= max(0, free)
                seen += 1
    assert seen > 20


def test_slots_that_would_wait_are_lent_and_what_is_lent_moves_no_look() -> None:
    """While the last runs choose the finalists and while these are confirmed, many slots go on exploring."""
    one = night(one_gain(3.0), runs=120, slots=8, min_effect=0.5)
    lent = 0
    while one.step():
        started = next((i for i, t in enumerate(one.trials) if t.phase == Phase.CONFIRM and t.changed), None)
        if started is not None:
            evidence = Evidence.of(one.study, one.history.trials)
            before = Evidence.of(one.study, one.history.trials[: started + 1])
            lent += any(trial.state == "pending" and trial.phase == Phase.REFINE for trial in one.trials)
            assert evidence.look_noise.degrees <= before.exploration_noise.degrees + before.look_noise.degrees
            assert evidence.look_noise == before.look_noise
    assert lent > 0
    assert len(one.trials) <= 120


def test_a_small_budget_lends_nothing() -> None:
    study = night(flat, slots=8).study
    sizes = {runs: lent_size(study.model_copy(), runs) for runs in (20, 40, 120, 400)}
    assert sizes[20] == sizes[40] == 0
    assert 0 < sizes[120] < sizes[400]
