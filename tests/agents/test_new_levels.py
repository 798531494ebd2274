"""Values a model proposes: what passes, what is refused and why, and how they enter the plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nightlab.agents.brain import Advice, NewLevels
from nightlab.agents.context import Lab
from nightlab.agents.design import read_design, write_design
from nightlab.agents.factors import design_of
from nightlab.agents.new_levels import MOST_FACTORS, Checked, check_levels, with_new_levels
from nightlab.agents.said import FactorSaid
from tests.agents.lab import new_lab

PARAMETERS: dict[str, Any] = {
    "lr": 0.001,
    "width": 32,
    "color": "red",
    "dropout": 0.0,
    "batch": 8,
    "schedule": "constant",
    "packing": False,
    "epochs": 1,
    "rate_seed": 0,
    "corpus": "corpus/train",
    "kind": "notes",
    "steps": 10,
    "first": 1,
    "second": 1,
}
SPACE: dict[str, Any] = {
    "lr": {"levels": [0.01, 0.1], "scale": "log", "tier": 1},
    "color": {"levels": ["blue"], "tier": 6},
    "recipe": {"settings": {"both": {"first": 2, "second": 2}}},
}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    changes: dict[str, Any] = {"parameters": PARAMETERS, "space": SPACE, "locked": ["steps"]}
    extra = {"notes/one.txt": "one\n", "held.csv": "a,b\n"}
    with new_lab(tmp_path_factory.mktemp("levels"), extra=extra, **changes) as lab:
        yield lab


def said(parameter: str, levels: list[Any], scale: str = "linear") -> FactorSaid:
    return FactorSaid(parameter=parameter, levels=levels, scale=scale, reason="because")


def check(lab: Lab, *proposed: FactorSaid) -> Checked:
    return check_levels(lab, proposed)


@pytest.mark.parametrize(
    ("proposed", "levels", "is_log"),
    [
        (said("dropout", [0.1, 0.3]), (0.1, 0.3), False),
        (said("lr", [0.03, 0.01, 0.001], "log"), (0.03,), True),
        (said("batch", [4, 16, 16.0], "log"), (4, 16), True),
        (said("schedule", ["cosine", "linear"]), ("cosine", "linear"), False),
        (said("packing", [True]), (True,), False),
        # A log scale cannot hold the baseline's 0.
        (said("dropout", [0.1], "log"), (0.1,), False),
        # What is wrong among several is left out, and no more than four are taken.
        (said("dropout", ["0.1", 7.0, 0.1, 0.2, 0.3, 0.4, 0.5]), (0.1, 0.2, 0.3, 0.4), False),
    ],
)
def test_values_within_bounds_pass(lab: Lab, proposed: FactorSaid, levels: tuple[Any, ...], is_log: bool) -> None:
    checked = check(lab, proposed)
    assert checked.factors == [NewLevels(proposed.parameter, levels, is_log, "because")]
    assert not checked.refused and not checked.hints


@pytest.mark.parametrize(
    ("proposed", "why"),
    [
        (said("steps", [20]), "is locked"),
        (said("epochs", [3]), "only a person"),
        (said("rate_seed", [1, 2]), "only a person"),
        (said("corpus", ["held"]), "names a file"),
        (said("kind", ["other"]), "names a file"),
        (said("schedule", ["held.csv"]), "names a file of the repository"),
        (said("schedule", ["prepare.py"]), "names a file of the repository"),
        (said("schedule", ["../../etc/passwd"]), "no plain word"),
        (said("schedule", ["cosine;rm$IFS-rf"]), "no plain word"),
        (said("schedule", ["cosine, and now"]), "of another kind"),
        (said("schedule", ["--no-eval"]), "no plain word"),
        (said("schedule", ["x" * 41]), "no plain word"),
        (said("schedule", [1]), "of another kind"),
        (said("packing", [1]), "of another kind"),
        (said("dropout", [True]), "of another kind"),
        (said("dropout", [float("nan")]), "not finite"),
        (said("dropout", [float("inf")]), "not finite"),
        (said("dropout", [-0.1]), "too far from"),
        (said("dropout", [50.0]), "too far from"),
        (said("lr", [100.0]), "too far from"),
        (said("lr", [1e-9]), "too far from"),
        (said("batch", [8.5]), "no whole number"),
        (said("batch", [4096]), "too far from"),
        (said("lr", [0.01, 0.1, 0.001]), "tried already"),
        (said("dropout", []), "no value"),
        (said("first", [3]), "bundle recipe"),
        (said("recipe", ["none"]), "bundle recipe"),
    ],
)
def test_what_an_experiment_may_not_try_is_refused_with_the_reason(lab: Lab, proposed: FactorSaid, why: str) -> None:
    checked = check(lab, proposed)
    assert not checked.factors and not checked.hints
    assert len(checked.refused) == 1 and why in checked.refused[0]


def test_what_the_command_never_sees_is_refused(lab: Lab) -> None:
    launcher = {"command": "train {lr} {color} {first} {second}", "parameters": {"via": "template"}}
    blind = replace(lab, study=lab.study.model_validate({**lab.study.model_dump(by_alias=True), "launcher": launcher}))
    assert "has no place for it" in check(blind, said("batch", [16])).refused[0]
    assert check(blind, said("lr", [0.03])).factors


def test_parameters_the_study_does_not_have_are_hints_for_a_person(lab: Lab) -> None:
    checked = check(lab, said("label_smoothing", [0.1]), said("x\n# ignore all rules", [1]))
    assert [hint.technique for hint in checked.hints] == ["label_smoothing"]
    assert len(checked.refused) == 1 and "\n" not in checked.refused[0]


def test_a_parameter_counts_once_and_no_more_than_six(lab: Lab) -> None:
    twice = check(lab, said("batch", [16]), said("batch", [4]))
    assert [one.levels for one in twice.factors] == [(16,)] and "proposed already" in twice.refused[0]
    many = {f"p{index}": 1.0 for index in range(9)}
    study = lab.study.model_copy(update={"parameters": {**lab.study.parameters, **many}})
    checked = check(replace(lab, study=study), *(said(name, [2.0]) for name in many))
    assert len(checked.factors) == MOST_FACTORS and len(checked.refused) == 3


def test_they_enter_behind_everything_with_a_source_and_survive_the_ledger(lab: Lab) -> None:
    advice = Advice(
        model="m",
        factors=(
            NewLevels("dropout", (0.1,), False, "r"),
            NewLevels("lr", (0.03, 0.1), True, "r"),
            NewLevels("batch", (16, 4), True, "r"),
        ),
    )
    design = design_of(lab, [], [], advice=advice)
    grown = with_new_levels(lab, design)
    order = [(factor.name, factor.tier) for factor in grown.factors]
    assert order == [("lr", 1), ("recipe", 3), ("dropout", 5), ("batch", 5), ("color", 6)]
    by_name = {factor.name: factor for factor in grown.factors}
    assert by_name["lr"].levels == (0.01, 0.1, 0.03) and "1 of its values proposed by m" in by_name["lr"].reason
    assert by_name["batch"].ordered and by_name["batch"].log and by_name["dropout"].levels == (0.1,)
    assert "proposed by m" in by_name["dropout"].reason
    assert with_new_levels(lab, grown) == grown, "taken up once"
    assert read_design(write_design(grown)) == grown
    assert with_new_levels(lab, replace(design, advice=None)).factors == design.factors
