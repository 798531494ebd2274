"""Ask and tell: the search as a library."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import pytest

from nightlab.configs.study import Factor, Scalar, SearchSettings
from nightlab.errors import ConfigError
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.searcher import Searcher, Suggestion

SPACE = {
    "lr": Factor(levels=[1e-4, 3e-4, 1e-3, 3e-3], scale="log"),
    "depth": Factor(levels=[2, 4, 6]),
    "act": Factor(levels=["relu", "gelu", "silu"]),
    "ema": Factor(levels=[True]),
    "schedule": Factor.model_validate({"settings": {"warm": {"warmup": 100, "decay": 0.1}}}),
}
BASELINE: dict[str, Scalar] = {"lr": 1e-3, "depth": 4, "act": "relu", "ema": False, "warmup": 0, "decay": 0.0}
ONE_BASELINE = SearchSettings(confirm=False, baseline_replicates=1)


def loss(parameters: Mapping[str, Scalar]) -> float:
    gain = (parameters["act"] == "silu") + 0.5 * (parameters["warmup"] == 100)
    return 5.0 - gain + (math.log10(float(parameters["lr"])) + 3.5) ** 2 + 0.1 * abs(float(parameters["depth"]) - 6)


def run(searcher: Searcher, response: Callable[[Mapping[str, Scalar]], float] = loss) -> list[Suggestion]:
    """A whole search; a response that is not a number is told as it is."""
    made: list[Suggestion] = []
    while suggestions := searcher.ask():
        for one in suggestions:
            # The seed moves the value a little, so that repeats tell the noise.
            searcher.tell(one.number, response(one.parameters) + 0.001 * (one.seed * 7 % 5), seed=one.seed)
        made += suggestions
    return made


def test_the_best_of_a_mixed_space_is_found() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=50)
    run(searcher)
    best = searcher.best()
    assert best.parameters["lr"] == 3e-4 and best.parameters["act"] == "silu"
    assert (best.parameters["warmup"], best.parameters["decay"]) == (100, 0.1)
    assert best.value == pytest.approx(loss(best.parameters), abs=0.01)
    assert best.runs >= 3 and searcher.verdicts()[best.number].kind == VerdictKind.KEEP


def test_maximising_is_minimising_upside_down() -> None:
    down, up = Searcher(SPACE, BASELINE, budget=30), Searcher(SPACE, BASELINE, budget=30, direction="maximize")
    while ours := down.ask():
        theirs = up.ask()
        assert [(one.parameters, one.seed, one.phase) for one in ours] == [
            (one.parameters, one.seed, one.phase) for one in theirs
        ]
        for one in ours:
            value = loss(one.parameters) + 0.001 * one.seed
            down.tell(one.number, value, seed=one.seed)
            up.tell(one.number, -value, seed=one.seed)
    assert up.best().parameters == down.best().parameters


def test_the_same_arguments_and_answers_give_the_same_suggestions() -> None:
    assert run(Searcher(SPACE, BASELINE, budget=30, seed=3)) == run(Searcher(SPACE, BASELINE, budget=30, seed=3))


def test_the_budget_is_kept_and_no_run_repeated() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=25, slots=4)
    made = run(searcher)
    assert len(made) <= 25
    assert len({(one.number, one.seed) for one in made}) == len(made)
    assert searcher.should_stop() and searcher.ask() == []


def test_the_whole_budget_is_used_while_anything_is_untried() -> None:
    """Where the surrogate expects nothing it may be wrong: leaders are repeated, then their neighbours tried."""
    searcher = Searcher(SPACE, BASELINE, budget=60, settings=ONE_BASELINE)
    made = run(searcher, lambda parameters: 5.0 + (parameters["act"] != "relu"))
    assert len(made) == 60 and searcher.should_stop()
    small = Searcher({"ema": Factor(levels=[True])}, BASELINE, budget=60, settings=ONE_BASELINE)
    assert len(run(small)) < 20 and small.should_stop(), "nothing else is there"


def test_as_many_are_out_as_there_are_slots() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=30, slots=4)
    out = searcher.ask()
    assert len(out) == 4 and searcher.ask() == [] and not searcher.should_stop()
    searcher.tell(out[0].number, 5.0, seed=out[0].seed)
    assert len(searcher.ask()) == 1
    assert len(searcher.ask(1)) <= 1


def test_the_number_is_the_configurations_and_0_the_baselines() -> None:
    numbers: dict[int, dict[str, Scalar]] = {0: BASELINE}
    for one in run(Searcher(SPACE, BASELINE, budget=40)):
        assert numbers.setdefault(one.number, one.parameters) == one.parameters
    assert len({str(sorted(parameters.items())) for parameters in numbers.values()}) == len(numbers)


def test_what_fails_is_kept_away_from() -> None:
    def diverging(parameters: Mapping[str, Scalar]) -> float:
        return math.nan if float(parameters["lr"]) > 1e-3 else loss(parameters)

    searcher = Searcher(SPACE, BASELINE, budget=40)
    made = run(searcher, diverging)
    failed = [one for one in made if one.parameters["lr"] == 3e-3]
    assert len(failed) <= 2
    assert {searcher.causes[one.number] for one in failed} <= {"not finite"}
    assert searcher.best().parameters["lr"] == 3e-4


def test_a_failure_is_told_with_its_cause() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=20, settings=SearchSettings(baseline_replicates=2), slots=4)
    out = searcher.ask()
    for one in out:
        if one.number:
            searcher.fail(one.number, "out of memory")
        else:
            searcher.tell(one.number, 5.0, seed=one.seed)
    failed = {one.number for one in out} - {0}
    assert failed and searcher.causes == dict.fromkeys(failed, "out of memory")
    assert all(searcher.verdicts()[number].kind == VerdictKind.FAILED for number in failed)
    assert not failed & {one.number for one in searcher.ask(10)}


def test_a_baseline_that_always_fails_ends_the_search() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=20)
    made = run(searcher, lambda _: math.inf)
    assert {one.number for one in made} == {0}
    assert searcher.should_stop()
    with pytest.raises(ValueError, match="no run has a value yet"):
        searcher.best()


def test_two_changes_that_gain_only_together_are_found() -> None:
    space = {name: Factor(levels=[True]) for name in ("a", "b", "c", "d")}

    def pair(parameters: Mapping[str, Scalar]) -> float:
        return 5.0 + 0.5 * (parameters["a"] != parameters["b"]) - 2.0 * bool(parameters["a"] and parameters["b"])

    searcher = Searcher(space, dict.fromkeys(space, False), budget=40)
    run(searcher, pair)
    assert searcher.best().parameters.items() >= {"a": True, "b": True}.items()


def test_effects_say_what_each_factor_does() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=50)
    run(searcher)
    effects = {(one.factor, one.level): one for one in searcher.effects()}
    silu = effects["act", "silu"].effect
    assert silu is not None and silu.delta == pytest.approx(1.0, abs=0.15)
    assert {factor for factor, _ in effects} == set(SPACE)


def test_constraints_hold() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=40, forbidden=[{"act": "silu", "ema": True}, {"act": "gelu"}])
    for one in run(searcher):
        assert one.parameters["act"] != "gelu"
        assert not (one.parameters["act"] == "silu" and one.parameters["ema"])


def test_priors_come_first() -> None:
    def first(priors: Mapping[str, Sequence[float]] | None) -> Mapping[str, Scalar]:
        searcher = Searcher(SPACE, BASELINE, budget=40, priors=priors)
        while True:
            (one,) = searcher.ask()
            if one.phase == Phase.SCREEN:
                return one.parameters
            searcher.tell(one.number, 5.0 + 0.01 * one.seed, seed=one.seed)

    assert first({"ema": [0.9]}) == {**BASELINE, "ema": True}
    assert first({"schedule": [0.9]}) == {**BASELINE, "warmup": 100, "decay": 0.1}
    assert first({"act": [0.5, 0.2, 0.9]}) == {**BASELINE, "act": "silu"}


def test_priors_data_and_a_baseline_that_do_not_fit_the_space_are_refused() -> None:
    with pytest.raises(ConfigError, match="priors: act has 3 values, 2 chances are given"):
        Searcher(SPACE, BASELINE, budget=10, priors={"act": [0.9, 0.1]})
    with pytest.raises(ConfigError, match="baseline: no value for act"):
        Searcher({"act": SPACE["act"]}, {"lr": 1.0}, budget=10)
    with pytest.raises(ConfigError, match=r"data: mixture is no factor of the space \(.*act"):
        Searcher(SPACE, BASELINE, budget=10, data=["mixture"])


def test_a_range_of_integers_is_searched() -> None:
    space = {"width": Factor(range=(8, 128), scale="log", steps=5, integer=True), "deep": Factor(levels=[1, 2, 3])}
    searcher = Searcher(space, {"width": 32, "deep": 1}, budget=30)
    made = run(
        searcher, lambda parameters: abs(math.log2(float(parameters["width"])) - 6) - 0.2 * int(parameters["deep"])
    )
    assert all(isinstance(one.parameters["width"], int) for one in made)
    assert searcher.best().parameters == {"width": 64, "deep": 3}


def test_a_result_that_nobody_waits_for_is_refused() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=20, slots=2)
    out = searcher.ask()
    with pytest.raises(KeyError, match="not asked for"):
        searcher.tell(17, 5.0)
    with pytest.raises(KeyError, match="out with several seeds"):
        searcher.tell(0, 5.0)
    searcher.tell(0, 5.0, seed=out[0].seed)
    searcher.tell(0, 5.1)
    with pytest.raises(KeyError, match="known already"):
        searcher.tell(0, 5.0, seed=out[0].seed)
    for call in (searcher.prune, searcher.should_prune):
        with pytest.raises(KeyError):
            call(0)


def test_a_run_that_falls_behind_may_be_ended_and_counts_as_what_it_would_have_come_to() -> None:
    searcher = Searcher(SPACE, BASELINE, budget=30)

    def curve(one: Suggestion, end: float) -> bool:
        for step in range(1, 21):
            searcher.tell(one.number, end + 3.0 / step, seed=one.seed, step=step)
            if searcher.should_prune(one.number, seed=one.seed):
                return True
        return False

    pruned: list[Suggestion] = []
    while suggestions := searcher.ask():
        (one,) = suggestions
        bad = one.parameters["act"] == "gelu"
        if curve(one, 9.0 if bad else loss(one.parameters) + 0.001 * one.seed):
            searcher.prune(one.number, seed=one.seed)
            pruned.append(one)
        else:
            searcher.tell(one.number, loss(one.parameters) + 0.001 * one.seed, seed=one.seed)
    states = {trial.number: trial.state for trial in searcher.history.trials if trial.state == "pruned"}
    assert set(states) == {one.number for one in pruned}
    assert any(one.parameters["act"] == "gelu" for one in pruned)
    assert searcher.best().number not in states


def test_importing_it_loads_neither_langgraph_nor_git() -> None:
    code = "import sys, nightlab.search.searcher; print([m for m in %r if m in sys.modules])"
    heavy = ("langgraph", "git", "sqlalchemy", "matplotlib", "pydoe", "optuna")
    done = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_nothing_to_change_leaves_the_baseline() -> None:
    searcher = Searcher({}, {"lr": 1.0}, budget=9)
    assert len(run(searcher, lambda _: 2.0)) == 3
    assert searcher.best().parameters == {"lr": 1.0} and searcher.effects() == []


def test_where_tuning_gains_nothing_the_data_come_next() -> None:
    """Nothing has an effect: each value of the data is tried as soon as that shows, the last factor though it is."""
    space = {"lr": SPACE["lr"], "act": SPACE["act"], "ema": SPACE["ema"], "mix": Factor(levels=["a", "b", "c", "d"])}

    def reasons(data: list[str]) -> list[str]:
        searcher, found = Searcher(space, {**BASELINE, "mix": "all"}, budget=40, min_effect=0.5, data=data), []
        while asked := searcher.ask():
            for one in asked:
                searcher.tell(one.number, 1.0 + 0.01 * (one.number % 3 + one.seed % 2), seed=one.seed)
                found.append(one.reason)
        return found

    assert any("plateau_after_tuning" in reason for reason in reasons(["mix"]))
    assert not any("plateau_after_tuning" in reason for reason in reasons([]))
