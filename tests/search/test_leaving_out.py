"""Leaving out: once no finalist may win by more, the best one is run without each of its changes."""

from __future__ import annotations

from typing import Literal

from nightlab.configs.study import Factor, Scalar
from nightlab.knowledge.records import Phase
from nightlab.search.engine import propose
from nightlab.search.evidence import Evidence
from nightlab.search.history import History, Trial
from nightlab.search.leaving_out import RUNS_EACH, winner
from nightlab.search.looks import standing
from nightlab.search.ranking import rank_factors
from tests.search.simulate import make_study

NAMES = ("a", "b", "c")
STUDY = make_study(dict.fromkeys(NAMES, 0), {name: Factor(levels=[1]) for name in NAMES}, min_effect=0.5)
FACTORS = tuple(rank_factors(STUDY, STUDY.space, tiers={}, priors={}))
NUMBERS = {"": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "ac": 5}
FRESH = range(1000, 1008)


def run(letters: str, seed: int, value: float | None, phase: Phase) -> Trial:
    changed: dict[str, Scalar] = dict.fromkeys(letters, 1)
    parameters: dict[str, Scalar] = {**dict.fromkeys(NAMES, 0), **changed}
    state: Literal["pending", "measured"] = "pending" if value is None else "measured"
    return Trial(NUMBERS[letters], parameters, changed, seed, phase, state, value)


def fresh(letters: str, *values: float | None) -> list[Trial]:
    return [run(letters, seed, value, Phase.CONFIRM) for seed, value in zip(FRESH, values, strict=False)]


FOUND = [
    *(run("", seed, value, Phase.BASELINE) for seed, value in enumerate((10.0, 10.2, 9.8))),
    *(run(letter, 0, 8.9, Phase.SCREEN) for letter in NAMES),
    *(run(pair, seed, 6.0 + seed / 5, Phase.REFINE) for pair in ("ab", "ac") for seed in (0, 1)),
    *fresh("", 10.0, 10.1, 9.9),
]


def left_out(*confirmed: Trial, runs_left: int = 20) -> list[tuple[str, int]]:
    """What is proposed without one of the winner's changes, as the letters that are left and the seed."""
    history = History(FACTORS, (*FOUND, *confirmed), runs_left)
    proposals = [one for one in propose(STUDY, history, seed=0) if one.variable.startswith("without")]
    return [("".join(one.changed), one.seed) for one in proposals]


def test_nothing_is_left_out_while_another_one_may_win_by_more() -> None:
    first = fresh("ac", 7.0, 7.1, 6.9)
    seen = Evidence.of(STUDY, [*FOUND, *first])
    assert standing(seen, seen.changes[-1]) == "won"
    assert left_out(*first, *fresh("ab", 6.0, 6.1, None)) == []
    # Of its two changes, singles that ran once already: the second seed of each is all that is to come.
    assert left_out(*first) == [("c", 1), ("a", 1)]


def test_the_largest_win_counts_not_the_one_that_was_planned_first() -> None:
    larger, smaller = (6.0, 6.1, 5.9), (7.0, 7.1, 6.9)
    assert left_out(*fresh("ac", *larger), *fresh("ab", *smaller)) == [("c", 1), ("a", 1)]
    assert left_out(*fresh("ac", *smaller), *fresh("ab", *larger)) == [("b", 1), ("a", 1)]
    assert RUNS_EACH == 2


def test_what_wins_on_all_its_pairs_is_a_winner_too() -> None:
    base = [9.2, 10.8, 10.0, 9.5, 10.5, 9.9, 10.1, 10.0]
    pairs = [*fresh("", *base)[3:], *fresh("ab", 9.3, 8.9, 8.4, 7.6, 8.6, 8.0, 8.2, 8.1)]
    seen = Evidence.of(STUDY, [*FOUND[:-3], *fresh("", *base)[:3], *pairs])
    assert standing(seen, seen.changes[3]) == "open"
    whole = winner(seen)
    assert whole is not None and whole.number == NUMBERS["ab"]
    waiting = [*FOUND[:-3], *fresh("", *base), *fresh("ab", 9.3, 8.9, 8.4, 7.6, 8.6, 8.0, 8.2, None)]
    assert winner(Evidence.of(STUDY, waiting)) is None
    early = [*FOUND[:-3], *fresh("", *base), *fresh("ab", 9.3, 8.9, 8.4, 7.6, 8.6, 8.0, 8.2)]
    assert winner(Evidence.of(STUDY, early)) is None, "another pair may come, if only with a larger budget"
