"""Code ideas in the search: tried once each as they come, combined like any change, waited for while one may come."""

from __future__ import annotations

from dataclasses import replace

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Phase, Proposal
from nightlab.search.engine import propose
from nightlab.search.history import History, RankedFactor, Trial
from nightlab.search.orthogonal import array_plan
from nightlab.search.simplicity import Standing, simplest_first
from tests.task import study_data


def study(*ideas: str, **changes: object) -> Study:
    data = study_data(**{"budget": {"runs": 40}, "guardrails": [], **changes})
    data["parameters"] |= {f"code/{name}": False for name in ideas}
    return Study.model_validate(data)


def idea(name: str, *, needs: tuple[str, ...] = ()) -> RankedFactor:
    requires: dict[str, Scalar] = {f"code/{other}": True for other in needs}
    return RankedFactor(f"code/{name}", (True,), ordered=False, requires=requires)


def trial(of: Study, number: int, value: float | None, phase: Phase = Phase.SCREEN, **changed: Scalar) -> Trial:
    changed = {name.replace("code_", "code/"): setting for name, setting in changed.items()}
    parameters: dict[str, Scalar] = {**of.parameters, **changed}
    return Trial(number, parameters, changed, 0, phase, "measured" if value is not None else "pending", value)


def baselines(of: Study) -> list[Trial]:
    return [replace(trial(of, 0, 2.0 + 0.01 * n, Phase.BASELINE), seed=n) for n in range(3)]


def test_an_idea_is_tried_first_and_once_beside_the_best_so_far() -> None:
    one = study("a", "b")
    seen = [*baselines(one), trial(one, 1, 1.5, lr=0.01)]
    factors = (RankedFactor("lr", (0.01, 0.1), ordered=True), idea("a"), idea("b"))
    proposals = propose(one, History(factors, tuple(seen), runs_left=36), seed=0)
    assert [p.changed for p in proposals[:2]] == [{"lr": 0.01, "code/a": True}, {"lr": 0.01, "code/b": True}]
    assert proposals[0].variable == "code-a" and proposals[0].phase is Phase.SCREEN
    failed = replace(trial(one, 2, None, lr=0.01, code_a=True), state="failed")
    later = propose(one, History(factors, (*seen, failed), runs_left=35), seed=0)
    assert {"lr": 0.01, "code/a": True} not in [p.changed for p in later]
    assert later[0].changed == {"lr": 0.01, "code/b": True}


def test_an_idea_that_builds_on_another_brings_it_along_and_one_that_cannot_stand_beside_it_goes_without() -> None:
    one = study("a", "b", "c")
    factors = (idea("a"), idea("b", needs=("a",)), idea("c"))
    seen = (*baselines(one), trial(one, 1, 1.2, code_a=True))
    history = History(factors, seen, runs_left=36, forbidden=({"code/a": True, "code/c": True},))
    proposals = propose(one, history, seed=0)
    assert [p.changed for p in proposals[:2]] == [{"code/a": True, "code/b": True}, {"code/c": True}]


def test_nothing_is_confirmed_while_an_idea_may_come() -> None:
    one = study("a")
    seen = [*baselines(one), *(trial(one, n, 1.0, code_a=True) for n in (1,))]
    seen += [replace(seen[-1], seed=n) for n in range(1, 8)]
    history = History((idea("a"),), tuple(seen), runs_left=25)

    def confirming(proposals: list[Proposal]) -> bool:
        return any(p.phase is Phase.CONFIRM and p.changed for p in proposals)

    assert confirming(propose(one, history, seed=0))
    assert not confirming(propose(one, replace(history, expecting=True), seed=0))
    # Where there is nothing left to try it with, nobody waits.
    assert confirming(propose(one, replace(history, expecting=True, runs_left=6), seed=0))


def test_an_idea_that_comes_after_the_array_was_begun_does_not_change_it() -> None:
    levels: dict[str, Scalar] = {"lr": 0.01, "width": 64, "color": "blue"}
    one = study("late")
    factors = tuple(RankedFactor(name, (level,), ordered=False) for name, level in levels.items())
    seen = [
        *baselines(one),
        *(trial(one, n, 1.6, Phase.SCREEN, **{name: levels[name]}) for n, name in enumerate(levels, 1)),
    ]
    seen.append(trial(one, 4, 1.1, Phase.COMBINE, lr=0.01, width=64))
    before = array_plan(one, History(factors, tuple(seen), runs_left=30))
    after = array_plan(one, History((*factors, idea("late")), tuple(seen), runs_left=30))
    assert before is not None and after == before


def test_of_equal_winners_the_one_with_the_least_code_comes_first() -> None:
    long, short, worse = Standing(1, 0.30, 40), Standing(2, 0.29, -12), Standing(3, 0.20, -80)
    assert simplest_first([worse, long, short], 0.02) == [short, long, worse]
    assert simplest_first([worse, short, long], 0.0) == [long, short, worse]
    assert simplest_first([], 0.1) == []
