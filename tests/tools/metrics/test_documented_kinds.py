"""docs/metrics.md names every kind of source, and each of its examples is one a study may hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from nightlab.configs.metric_source import MetricSource

PAGE = (Path(__file__).parents[3] / "docs/metrics.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^\| `(\w+)` \|.*\| `(\S+: \{.*\})` \|$", PAGE, flags=re.MULTILINE)


def test_every_kind_is_there() -> None:
    assert {kind for kind, _ in EXAMPLES} == set(get_args(MetricSource.model_fields["kind"].annotation))


@pytest.mark.parametrize(("kind", "example"), EXAMPLES)
def test_every_example_is_valid(kind: str, example: str) -> None:
    ((_, source),) = yaml.safe_load(example).items()
    assert MetricSource.model_validate(source).kind == kind


def test_the_longer_example_is_valid() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.DOTALL)
    for source in yaml.safe_load(block)["metrics"].values():
        assert MetricSource.model_validate(source).kind == "trainer"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({"kind": "json", "path": "m.json", "at_step": 5}, "a JSON file states no steps"),
        ({"pick": "best", "at_step": 5}, "names one value, pick chooses among several"),
        ({"at_step": -1}, "greater than or equal to 0"),
        ({"kind": "trainers"}, "Input should be"),
    ],
)
def test_what_makes_no_sense_is_refused(source: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MetricSource.model_validate(source)
