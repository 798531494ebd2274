"""The ideas in the report: what became of each, and what is simpler at no cost."""

from __future__ import annotations

import pytest

from nightlab.knowledge.records import Effect, Idea, IdeaState
from nightlab.report.ideas import code_lines, idea_rows, told_of
from nightlab.search.attribution import FactorEffect


def idea(name: str, added: int, removed: int, number: int = 1) -> Idea:
    accepted = Idea(number=number, state=IdeaState.ACCEPTED, name=name, title=f"{name}!", expected="lower")
    return accepted.model_copy(update={"lines_added": added, "lines_removed": removed})


def effect(low: float | None, high: float | None) -> Effect:
    middle = 0.0 if low is None or high is None else (low + high) / 2
    return Effect(delta=middle, low=low, high=high, runs=3, baseline_runs=3)


@pytest.mark.parametrize(
    ("added", "removed", "low", "high", "gain"),
    [
        (0, 34, -0.005, 0.008, "the same result with 34 lines less"),
        (3, 34, -0.005, 0.008, "the same result with 31 lines less"),
        (0, 1, 0.002, 0.03, "a better result with 1 line less"),
        (0, 34, -0.005, 0.03, "no worse a result with 34 lines less"),
        (0, 34, -0.02, 0.008, ""),
        (0, 34, None, None, ""),
        (34, 34, -0.005, 0.008, ""),
    ],
)
def test_less_code_is_a_win_only_where_the_whole_interval_says_so(
    added: int, removed: int, low: float | None, high: float | None, gain: str
) -> None:
    found = FactorEffect("code/x", None, "unknown", effect(low, high))
    (row,) = idea_rows([idea("x", added, removed)], [found], [], None, min_effect=0.01)
    assert row.gain == gain
    assert any(gain in line for line in told_of([row])) and (len(told_of([row])) == 2) is bool(gain)


def test_a_refused_idea_tells_why_and_nothing_was_told_of_none() -> None:
    refused = Idea(number=2, state=IdeaState.REFUSED, name="y", title="y", cause="metric", reason="a constant")
    rows = idea_rows([idea("x", 1, 0), refused], [], [], None, min_effect=0.01)
    assert [(row.verdict, row.size) for row in rows] == [("not tried", "+1 −0"), ("metric", "")]
    assert told_of(rows)[0] == "2 ideas came from a language model: 1 accepted, 1 refused."
    assert told_of([]) == ()


def test_the_lines_of_a_configuration_are_those_of_the_ideas_it_applies() -> None:
    ideas = [idea("x", 5, 1), idea("y", 0, 10, 2)]
    assert code_lines(ideas, {"lr": 1, "code/x": True, "code/y": True}) == -6
    assert code_lines(ideas, {"lr": 1, "code/x": True, "code/y": False}) == 4
