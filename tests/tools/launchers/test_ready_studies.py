"""The ready studies of training frameworks: each is written, loads, and would be accepted by its framework."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nightlab.configs.init import TEMPLATES, write_template
from nightlab.configs.loading import load_study
from nightlab.configs.study import Study
from nightlab.knowledge.catalog import load_catalog, method_names
from nightlab.tools.launchers.faults import launcher_faults
from nightlab.tools.launchers.framework import FrameworkLauncher
from tests.tools.launchers.frameworks import framework, write

READY = tuple(name for name in TEMPLATES if name not in ("script", "karpathy"))
RLVR: dict[str, Any] = {
    "exp_name": "mine",
    "adv_estimator": "grpo",
    "actor_train": {"training_args": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8}},
}


@pytest.fixture(scope="module", params=READY)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A study of each template in a folder of its own, where no framework is installed: the lists kept here count."""
    folder = tmp_path_factory.mktemp(request.param)
    write(folder, "rlvr.yaml", RLVR)
    write_template(folder, kind=request.param, name="ready")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder / "nothing"))
        yield folder


@pytest.fixture(scope="module")
def ready(place: Path) -> Study:
    loaded = load_study(place / "study.yaml")
    assert not loaded.warnings
    assert len(loaded.text.splitlines()) <= 60
    return loaded.study


def test_a_ready_study_is_accepted_by_its_framework(ready: Study, place: Path) -> None:
    launcher = framework(ready)
    assert [str(fault) for fault in launcher_faults(ready, launcher, place)] == []
    files = launcher.files(ready.parameters, place)
    for path, text in files.items():
        (place / path).write_text(text, encoding="utf-8")
    assert set(files) == set(ready.launcher.files)
    assert launcher.read_back(place) == ready.parameters


def test_a_ready_study_guards_its_night(ready: Study) -> None:
    assert ready.guardrails
    assert ready.frozen
    assert ready.budget.duration_seconds
    assert ready.objective.plausible
    assert ready.launcher.dry_run
    unread = [name for name in ready.metric_names if name not in ready.metrics]
    assert unread == [], "no ready study reads a metric from plain lines"
    assert {ready.source_of(name).kind for name in ready.metrics} <= {"trainer", "predictions", "roll"}


def test_techniques_of_a_ready_study_are_the_catalogs(ready: Study) -> None:
    catalog = load_catalog()
    methods = set(method_names(ready.method))
    known = {method for technique in catalog.techniques for method in technique.applies_to}
    launcher = framework(ready)
    for name, factor in ready.space.items():
        assert factor.technique or factor.tier, f"{name} has no place in the order"
        if factor.technique:
            technique = catalog.get(factor.technique)
            names = set(factor.parameters_set or [name])
            told = set(re.findall(r"[\w.]+", technique.backend_keys.get(ready.launcher.kind, "")))
            assert names & set(technique.params) or told & _keys(launcher, names), f"{name}: {technique.id}"
            assert methods & set(technique.applies_to) or not methods & known, f"{name}: {technique.id}"


def _keys(launcher: FrameworkLauncher, names: set[str]) -> set[str]:
    return {key for name in names for key in launcher.names.keys_of(name)}


def test_a_framework_that_lies_elsewhere_is_named(tmp_path: Path) -> None:
    path = write_template(tmp_path, kind="kto", name="x", command="/opt/env/bin/trl")
    assert load_study(path).study.launcher.command == "/opt/env/bin/trl"
