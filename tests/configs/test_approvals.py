"""A decision's policy, written short or as a section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from nightlab.configs.approvals import Approvals
from nightlab.configs.loading import load_study
from nightlab.configs.schema import json_schema
from nightlab.errors import ConfigError
from tests.task import study_data


def test_unattended_defaults() -> None:
    defaults = Approvals()
    assert {name: getattr(defaults, name).policy for name in Approvals.model_fields} == {
        "plan": "auto",
        "factors": "ask-with-default",
        "base_model": "ask-with-default",
        "spend": "ask-with-default",
        "repeated_failure": "ask-with-default",
        "review": "ask",
        "winner": "auto",
    }


@pytest.mark.parametrize(
    ("written", "policy", "seconds"),
    [
        ("ask", "ask", 1800),
        ({"policy": "ask-with-default", "deadline": "2h"}, "ask-with-default", 7200),
        ({"policy": "auto"}, "auto", 1800),
    ],
)
def test_both_forms_are_read(tmp_path: Path, written: Any, policy: str, seconds: float) -> None:
    data = study_data(approvals={"spend": written})
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(data))
    study = load_study(tmp_path / "study.yaml").study
    assert (study.approvals.spend.policy, study.approvals.spend.deadline_seconds) == (policy, seconds)
    assert type(study).model_validate_json(study.model_dump_json()) == study
    Draft202012Validator(json_schema()).validate(data)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("never", "approvals.spend: 'never' is not a policy (write auto, ask, ask-with-default,"),
        (True, "approvals.spend: true is not a policy"),
        ({"policy": "never"}, "approvals.spend.policy: 'never' is not one of auto, ask, ask-with-default"),
        ({"policy": "ask", "deadline": "soon"}, "approvals.spend.deadline: 'soon' is not a duration"),
        ({"deadline": "1h"}, "approvals.spend.policy: is missing (add it: who decides: auto or ask"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, written: Any, said: str) -> None:
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study_data(approvals={"spend": written})))
    with pytest.raises(ConfigError) as raised:
        load_study(tmp_path / "study.yaml")
    assert len(str(raised.value).splitlines()) == 1 and said in str(raised.value)
