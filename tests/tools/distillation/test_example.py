"""The example `distill`: its study opens and is the baseline of its parameters' file."""

from __future__ import annotations

import json
from importlib.resources import as_file, files

import yaml

from nightlab.configs.study import Study


def test_the_study_opens_with_the_values_of_its_parameters() -> None:
    with as_file(files("nightlab.configs") / "examples" / "distill") as example:
        told = yaml.safe_load((example / "study.yaml").read_text())
        values = json.loads((example / "params.json").read_text())
    study = Study.model_validate(told)
    assert study.parameters == values
    assert values["alpha"] == 0.0 and {"alpha": 0.0, "direction": "reverse"} in study.forbid
