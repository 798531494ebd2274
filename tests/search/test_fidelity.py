"""Low fidelity: where cheap looks send the search, what they count, and that nothing is believed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from nightlab.configs.fidelity import FidelitySettings
from nightlab.configs.study import Factor, Scalar, SearchSettings
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.search.belief import judge_all
from nightlab.search.engine import propose
from nightlab.search.evidence import Evidence
from nightlab.search.fidelity import guesses, low_effect
from nightlab.search.history import History, Trial
from nightlab.search.lattice import Lattice
from nightlab.search.low_runs import is_low, split, total_runs, whole_runs
from nightlab.search.pruning import schedule_of
from nightlab.search.ranking import rank_factors
from nightlab.search.searcher import Searcher, Suggestion
from nightlab.search.spending import Usage, budget_lines, runs_left
from tests.search.simulate import make_study

NAMES = "abcdefgh"
SPACE = {name: Factor(levels=[1, 2]) for name in NAMES}
START: dict[str, Scalar] = {**dict.fromkeys(NAMES, 0), "steps": 1000}
CHEAP = FidelitySettings(parameter="steps", low=250)
GAINS = {("c", 2): 1.0, ("g", 1): 0.6, ("h", 1): -0.5}

Response = Callable[[Mapping[str, Scalar]], float]


def loss(parameters: Mapping[str, Scalar]) -> float:
    """A cheap run ends 3 higher, and shows every difference at 0.7 of its size."""
    gain = sum(value for (name, level), value in GAINS.items() if parameters[name] == level)
    return 5.0 - gain if parameters["steps"] == 1000 else 8.0 - 0.7 * gain


def reversed_when_cheap(parameters: Mapping[str, Scalar]) -> float:
    whole = loss({**parameters, "steps": 1000})
    return whole if parameters["steps"] == 1000 else 13.0 - whole


def searcher_of(budget: int = 16, *, slots: int = 1, **search: object) -> Searcher:
    settings = SearchSettings.model_validate({"baseline_replicates": 2, "fidelity": CHEAP, **search})
    return Searcher(SPACE, START, budget=budget, settings=settings, slots=slots)


def run(searcher: Searcher, response: Response = loss) -> list[Suggestion]:
    made: list[Suggestion] = []
    while suggestions := searcher.ask():
        for one in suggestions:
            searcher.tell(one.number, response(one.parameters) + 0.01 * (one.seed * 7 % 5), seed=one.seed)
        made += suggestions
    return made


def lows(made: list[Suggestion]) -> list[Suggestion]:
    return [one for one in made if one.parameters["steps"] == 250]


def test_cheap_looks_come_first_and_beside_a_cheap_baseline() -> None:
    made = run(searcher_of())
    assert [one.parameters["steps"] for one in made[:4]] == [1000, 1000, 250, 250]
    cheap = lows(made)
    assert [one.phase for one in cheap[:3]] == [Phase.BASELINE, Phase.BASELINE, Phase.SCREEN]
    assert {one.seed for one in cheap[:2]} == {0, 1} and len({one.number for one in cheap[:2]}) == 1
    assert all(sum(one.parameters[name] != 0 for name in NAMES) <= 1 for one in cheap), "single changes only"
    assert made[: 2 + len(cheap)][2:] == cheap, "all of them before a whole run of a change"


def test_nothing_is_confirmed_or_recommended_by_cheap_runs() -> None:
    searcher = searcher_of(40)
    made = run(searcher)
    best = searcher.best()
    assert best.parameters["steps"] == 1000 and (best.parameters["c"], best.parameters["g"]) == (2, 1)
    cheap = {one.number for one in lows(made)}
    assert {one.phase for one in lows(made)} == {Phase.BASELINE, Phase.SCREEN}
    verdicts = searcher.verdicts()
    assert verdicts[best.number].kind == VerdictKind.KEEP
    told = [verdicts[number] for number in cheap if number in verdicts]
    assert len(told) == len(cheap) - 1, "the cheap baseline has none"
    assert {(one.kind, one.label, one.effect) for one in told} == {(VerdictKind.INCONCLUSIVE, "low fidelity", None)}
    without = judge_all(searcher._study, replace(searcher.history, low=()))
    assert {number: one.reason for number, one in verdicts.items() if number not in cheap} == {
        number: one.reason for number, one in without.items()
    }


def test_a_cheap_run_counts_its_share_of_the_budget() -> None:
    searcher = searcher_of(16, confirm=False)
    made = run(searcher)
    cheap = len(lows(made))
    assert cheap > 4
    assert len(made) - cheap + -(-cheap // 4) == 16
    assert total_runs(searcher._study, searcher.history) == 16
    assert len(run(searcher_of(16, confirm=False, fidelity=None))) == 16


def test_what_cheap_runs_favour_is_run_whole_first() -> None:
    made = run(searcher_of(30, confirm=False))
    first = next(one for one in made if one.parameters["steps"] == 1000 and one.phase is Phase.SCREEN)
    assert first.parameters["c"] == 2
    blind = run(searcher_of(30, confirm=False, fidelity=None))
    at = [next(i for i, one in enumerate(runs) if one.parameters["c"] == 2 and one.parameters["steps"] == 1000)
          for runs in (made, blind)]  # fmt: skip
    assert at[0] - len(lows(made)) < at[1]


def test_cheap_runs_that_mislead_are_found_out() -> None:
    searcher = searcher_of(30, confirm=False)
    run(searcher, reversed_when_cheap)
    assert searcher.best().parameters["c"] == 2
    study, history = searcher._study, searcher.history
    found = guesses(study, history, Lattice.of(study, history.factors), Evidence.of(study, history.trials))
    assert all(one.doubt > 0.01 and not one.sound for one in found)


def test_planning_again_gives_the_same_and_slots_do_not_wait() -> None:
    searcher = searcher_of(24, slots=4)
    assert len(searcher.ask()) == 4
    history, study = searcher.history, searcher._study
    assert propose(study, history, 0) == propose(study, history, 0)
    assert len(history.trials) == 2 and len(history.low) == 2, "the baseline's both kinds at once"
    made = run(searcher_of(24, slots=4))
    assert [one.number for one in made] == [one.number for one in run(searcher_of(24, slots=4))]


def test_a_locked_parameter_may_be_the_fidelity() -> None:
    study = make_study(START, SPACE, fidelity=CHEAP).model_copy(update={"locked": ["steps"]})
    whole = tuple(Trial(0, START, {}, seed, Phase.BASELINE, "measured", 5.0 + seed / 10) for seed in range(3))
    factors = tuple(rank_factors(study, study.space, tiers={}, priors={}))
    proposals = propose(study, History(factors, whole, 30), 0)
    assert proposals and all(one.changed == {"steps": 250} for one in proposals)
    assert proposals[0].variable == "low-baseline" and proposals[0].parameters == {**START, "steps": 250}


def test_effects_at_low_fidelity_compare_like_with_like() -> None:
    searcher = searcher_of(30)
    made = run(searcher)
    number = next(one.number for one in lows(made) if one.parameters["c"] == 2)
    effect = low_effect(searcher._study, searcher.history, number)
    assert effect is not None and effect.delta == pytest.approx(0.7, abs=0.1)
    assert low_effect(searcher._study, searcher.history, 0) is None


def test_what_fails_cheaply_is_not_run_whole() -> None:
    searcher = searcher_of(confirm=False)
    while suggestions := searcher.ask():
        for one in suggestions:
            if one.parameters["b"] == 1:
                searcher.fail(one.number, "diverged", seed=one.seed)
            else:
                searcher.tell(one.number, loss(one.parameters), seed=one.seed)
    study, history = searcher._study, searcher.history
    failed = [trial for trial in history.low if trial.state == "failed"]
    assert len(failed) == 1 and searcher.verdicts()[failed[0].number].kind == VerdictKind.FAILED
    assert not any(trial.changed == {"b": 1} for trial in history.trials), "it is not run whole"
    assert split(study, [*history.trials, *history.low]) == (history.trials, history.low)


def test_curves_of_both_fidelities_are_not_compared() -> None:
    share = FidelitySettings(parameter="share", low=0.25)
    study = make_study({"a": 0, "share": 1.0}, {"a": Factor(levels=[1])}, fidelity=share)
    assert schedule_of(study, study.parameters) != schedule_of(study, {**study.parameters, "share": 0.25})
    assert is_low(study, {"a": 1, "share": 0.25}) and not is_low(study, {"a": 1})


def test_the_books_count_shares() -> None:
    study = make_study(START, SPACE, fidelity=CHEAP)
    study = study.model_copy(update={"budget": study.budget.model_copy(update={"runs": 10})})
    usage = Usage(now=datetime(2026, 1, 1, tzinfo=UTC), runs=8, low_runs=5, in_flight=(0.0,) * 5)
    assert whole_runs(study, 5) == 2 and runs_left(study, usage) == 10 - 3 - 2
    line = budget_lines(study, usage)[0]
    assert (line.used, line.reserved, line.limit) == (0, 5, 10)
