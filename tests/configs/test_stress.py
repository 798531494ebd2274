"""Faults of the stress section, told when the study is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from tests.task import write_study

CHECK: dict[str, Any] = {
    "name": "serving",
    "command": "{python} load.py --weights {output_dir} --lr {lr} --port {port}",
    "serve": {"command": "serve {run_dir} {port}", "ready": "http://127.0.0.1:{port}/health"},
    "metrics": {"p99_ms": {"kind": "json", "path": "{results_dir}/load.json"}},
    "limits": {"p99_ms": {"max": 800}},
}


def test_a_whole_check_is_read(tmp_path: Path) -> None:
    (check,) = load_study(write_study(tmp_path, stress=[CHECK])).study.stress
    assert (check.repeats, check.when, check.timeout_seconds) == (3, "winner", 600.0)
    assert check.serve is not None and check.serve.timeout_seconds == 120.0


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"command": "load {weights}"}, "stress[0].command: has no known placeholder {weights}"),
        ({"command": ""}, "stress[0].command: '' is empty"),
        ({"serve": None}, "uses {port} without a server"),
        (
            {"serve": {"command": "x", "ready": "localhost:{port}"}},
            "stress[0].serve.ready: 'localhost:{port}' is no http address",
        ),
        ({"metrics": {}}, "stress[0].metrics: is empty"),
        ({"limits": {"p90_ms": {"max": 1}}}, "stress[0].limits.p90_ms: is not among the check's metrics"),
        ({"limits": {"p99_ms": {}}}, "has no bound"),
        ({"compare": {"p99_ms": {"min_ratio": 2, "max_ratio": 1}}}, "is above max_ratio: no value can pass"),
        ({"name": "Big Load"}, "stress[0].name"),
        ({"repeats": 0}, "stress[0].repeats"),
    ],
)
def test_faults_are_told_at_their_place(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_study(write_study(tmp_path, stress=[CHECK | changes]))
    assert told in str(error.value)


def test_a_name_given_twice_and_a_check_that_never_runs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"stress\[1\]\.name: .*is the name of another check"):
        load_study(write_study(tmp_path, stress=[CHECK, CHECK]))
    with pytest.raises(ConfigError, match="is never run: nothing is confirmed"):
        load_study(write_study(tmp_path, stress=[CHECK], search={"confirm": False}))
