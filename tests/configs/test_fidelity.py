"""Faults of `search.fidelity`, told when the study is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from tests.task import study_data, write_study


def search(**fidelity: Any) -> dict[str, Any]:
    return {"search": {"fidelity": {"parameter": "steps", "low": 2, **fidelity}}}


def test_a_locked_parameter_may_make_runs_cheaper(tmp_path: Path) -> None:
    study = load_study(write_study(tmp_path, **search())).study
    assert study.search.fidelity is not None and "steps" in study.locked
    assert study.search.fidelity.cost_of(study.parameters) == 0.2
    declared = load_study(write_study(tmp_path, **search(low="few", cost=0.5))).study.search.fidelity
    assert declared is not None and declared.cost_of(study.parameters) == 0.5


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (search(parameter="step"), "search.fidelity.parameter: 'step' is not among parameters"),
        (search(parameter="width", low=8), "is changed by the factor width too"),
        (search(low=10), "search.fidelity.low: 10 is the baseline's own value"),
        (search(low=20), "does not say what it saves beside 10"),
        (search(low="few"), "set search.fidelity.cost"),
        (search(cost=1.0), "search.fidelity.cost"),
        (
            search() | {"launcher": study_data()["launcher"] | {"command": "train {lr} {width} {color} {crash}",
                                                                "parameters": {"via": "template"}}},
            "search.fidelity.parameter: the command has no place for it",
        ),
    ],
)  # fmt: skip
def test_faults_are_told_with_the_mend(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_study(write_study(tmp_path, **changes))
    assert told in str(error.value).replace("\n", " ")
