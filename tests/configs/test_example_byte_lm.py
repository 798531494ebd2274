"""The example `byte_lm`: the demo's task is a real training script, repeatable, honest about failure."""

from __future__ import annotations

import ast
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml

from nightlab.configs.study import Study

EVERYTHING = {
    "layers": 2,
    "activation": "gelu",
    "lr_schedule": "cosine",
    "warmup_ratio": 0.1,
    "weight_decay": 0.1,
    "dropout": 0.1,
    "ema_decay": 0.9,
}


@pytest.fixture
def task(tmp_path: Path) -> Path:
    """A copy of the example, as a user makes one."""
    with as_file(files("nightlab.configs") / "examples" / "byte_lm") as example:
        return Path(shutil.copytree(example, tmp_path / "task"))


@pytest.fixture
def modules(task: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    """The example's two modules, imported from the copy."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # train.py sets them; the fixture puts them back
    monkeypatch.syspath_prepend(str(task))
    try:
        yield SimpleNamespace(train=importlib.import_module("train"), prepare=importlib.import_module("prepare"))
    finally:
        for name in ("train", "prepare"):
            sys.modules.pop(name, None)


def baseline(task: Path) -> dict[str, Any]:
    parameters: dict[str, Any] = json.loads((task / "params.json").read_text())
    return parameters


def run(task: Path, *, seed: int = 0, **changes: Any) -> subprocess.CompletedProcess[str]:
    """A run of the baseline with `changes`, 40 steps unless they say otherwise."""
    (task / "changed.json").write_text(json.dumps({**baseline(task), "steps": 40, **changes}))
    command = [sys.executable, "-B", "train.py", "--params", "changed.json", "--seed", str(seed)]
    return subprocess.run(command, cwd=task, capture_output=True, text=True, check=False)


def summary(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """The lines after `---`."""
    assert done.returncode == 0, done.stderr
    _, text = done.stdout.split("---\n")
    return {name: float(value) for name, value in (line.split(":") for line in text.splitlines())}


def test_a_seed_repeats_to_the_last_digit_and_another_differs(task: Path) -> None:
    first, again, other = run(task, seed=3), run(task, seed=3), run(task, seed=4)
    assert summary(first)["val_bpb"] == summary(again)["val_bpb"]
    assert first.stdout.split("---")[0] == again.stdout.split("---")[0]
    assert summary(first)["val_bpb"] != summary(other)["val_bpb"]


def test_the_summary_is_complete_and_the_model_learns(task: Path) -> None:
    done = run(task, steps=300, learning_rate=0.003)
    found = summary(done)
    assert list(found) == [
        "val_bpb",
        "training_seconds",
        "total_seconds",
        "peak_memory_mb",
        "num_steps",
        "num_params",
    ]
    assert 1.0 < found["val_bpb"] < 5.0  # 8 before the first step
    assert (found["num_steps"], found["num_params"]) == (300, 38240)
    assert 0 < found["peak_memory_mb"] < 1000
    assert done.stdout.count("train_bpb: ") == 8
    assert done.stderr == ""


def test_every_option_works_together_and_the_log_states_what_ran(task: Path) -> None:
    done = run(task, seed=5, **EVERYTHING)
    assert 1.0 < summary(done)["val_bpb"] < 8.1
    first = done.stdout.splitlines()[0].removeprefix("config: ")
    assert json.loads(first) == {**baseline(task), "steps": 40, **EVERYTHING, "seed": 5}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"hidden": 0}, "hidden is 0; it must be a whole number from 1 to 8192"),
        ({"hidden": 96.5}, "hidden is 96.5; it must be a whole number"),
        ({"layers": True}, "layers is True"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; it must be a number from 0 to 10"),
        ({"dropout": float("nan")}, "dropout is nan"),
        ({"activation": "swish"}, "activation is 'swish'; it must be one of tanh, relu, gelu"),
        ({"momentum": 0.9}, "unknown parameter 'momentum'"),
    ],
)
def test_a_bad_parameter_is_one_clear_line(task: Path, change: dict[str, Any], complaint: str) -> None:
    done = run(task, **change)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("train.py: changed.json: ") and done.stderr.count("\n") == 1
    assert complaint in done.stderr


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_bad_parameter_file_is_one_clear_line(task: Path, text: str | None) -> None:
    if text is not None:
        (task / "bad.json").write_text(text)
    command = [sys.executable, "-B", "train.py", "--params", "bad.json"]
    done = subprocess.run(command, cwd=task, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_a_diverged_run_fails_and_reports_no_metric(task: Path) -> None:
    done = run(task, learning_rate=10, weight_decay=100)
    assert done.returncode == 1
    assert "training diverged: the loss is" in done.stderr
    assert "val_bpb" not in done.stdout


@pytest.mark.parametrize("activation", ["tanh", "relu", "gelu"])
def test_the_gradient_is_that_of_the_loss(task: Path, modules: SimpleNamespace, activation: str) -> None:
    change = {"context": 3, "embedding": 2, "hidden": 5, "layers": 2, "activation": activation, "init_scale": 3.0}
    rng = np.random.default_rng(0)
    model = modules.train.ByteModel(SimpleNamespace(**{**baseline(task), **change}), rng)
    model.theta = model.theta.astype(np.float64)
    model.weights = model.split(model.theta)
    model.weights[-2][:] = rng.standard_normal(model.weights[-2].shape)
    x, y = rng.integers(0, 256, (4, 3), np.uint8), rng.integers(0, 256, 4)
    x[:, 0] = x[0, 1]  # a byte met more than once adds up
    _, gradient = model.loss_and_gradient(x, y, rng)
    part = [0, *rng.choice(model.theta.size, 40, replace=False), x[0, 1] * 2, x[0, 1] * 2 + 1]
    for place in part:
        kept = model.theta[place]
        model.theta[place] = kept + 1e-5
        above, _ = model.loss_and_gradient(x, y, rng)
        model.theta[place] = kept - 1e-5
        below, _ = model.loss_and_gradient(x, y, rng)
        model.theta[place] = kept
        assert gradient[place] == pytest.approx((above - below) / 2e-5, abs=1e-7)


def test_schedules_start_full_and_end_low(task: Path, modules: SimpleNamespace) -> None:
    def rates(**change: Any) -> list[float]:
        p = SimpleNamespace(**{**baseline(task), "steps": 100, "learning_rate": 1.0, **change})
        return [modules.train.rate_at(p, step) for step in (0, 4, 50, 99)]

    assert rates() == [1.0, 1.0, 1.0, 1.0]
    assert rates(lr_schedule="linear") == pytest.approx([1.0, 0.96, 0.5, 0.01])
    assert rates(lr_schedule="cosine") == pytest.approx([1.0, 0.996, 0.5, 0.0], abs=1e-3)
    assert rates(warmup_ratio=0.1) == pytest.approx([0.1, 0.5, 1.0, 1.0])


@pytest.mark.parametrize("buffer", [1, 7, 1000])
def test_the_shuffle_buffer_only_reorders_independent_draws(task: Path, modules: SimpleNamespace, buffer: int) -> None:
    p = SimpleNamespace(**{**baseline(task), "batch_size": 10, "shuffle_buffer": buffer})
    stream = modules.train.batches(p, 5, np.random.default_rng(0))
    drawn = np.array([next(stream) for _ in range(400)])
    assert drawn.shape == (400, 10)
    assert np.bincount(drawn.ravel(), minlength=5) == pytest.approx(np.full(5, 800), abs=120)  # 4.7 deviations


def test_validation_is_a_held_out_tail(modules: SimpleNamespace) -> None:
    head, tail = modules.prepare.load()
    text = head.tobytes() + tail.tobytes()
    assert text.decode().count("\n") > 5000
    assert len(tail) / len(text) == pytest.approx(0.1, abs=1e-5)


def test_evaluation_normalises_and_scores_the_same_bytes(modules: SimpleNamespace) -> None:
    prepare = modules.prepare
    data = np.random.default_rng(0).integers(0, 256, 500).astype(np.uint8)
    seen: dict[int, int] = {}
    for context in (1, 6, 64):

        def flat(x: np.ndarray, context: int = context) -> np.ndarray:
            seen[context] = seen.get(context, 0) + len(x)
            return np.full((len(x), 256), 1e6, np.float32)

        assert prepare.bits_per_byte(flat, data, context) == pytest.approx(8.0)
    assert set(seen.values()) == {500 - 64}
    with pytest.raises(ValueError, match="scores of shape"):
        prepare.bits_per_byte(lambda x: np.zeros((len(x), 2)), data, 6)
    with pytest.raises(FloatingPointError, match="validation loss is nan"):
        prepare.bits_per_byte(lambda x: np.full((len(x), 256), np.nan), data, 6)


def test_the_study_agrees_with_the_code(task: Path, modules: SimpleNamespace) -> None:
    study = Study.model_validate(yaml.safe_load((task / "study.yaml").read_text()))
    assert study.parameters == baseline(task)
    assert set(study.parameters) == set(modules.train.PARAMETERS)
    for name, value in [*study.parameters.items(), *study.launcher.dry_run.items()]:
        modules.train.check(name, value)
    for name, factor in study.space.items():
        assert factor.levels and study.parameters[name] not in factor.levels
        for level in factor.levels:
            modules.train.check(name, level)
    assert set(study.space) | set(study.locked) == set(study.parameters)
    assert all((task / path).exists() for path in [*study.frozen, study.launcher.parameters.path])


def test_the_study_names_techniques_of_the_catalog(task: Path) -> None:
    study = Study.model_validate(yaml.safe_load((task / "study.yaml").read_text()))
    text = (files("nightlab.knowledge") / "data" / "techniques.yaml").read_text(encoding="utf-8")
    methods = {entry["id"]: entry["applies_to"] for entry in yaml.safe_load(text)["techniques"]}
    named = [factor.technique for factor in study.space.values() if factor.technique]
    assert len(named) >= 8
    assert all(study.method in methods[technique] for technique in named)


def test_nothing_but_numpy_is_needed(task: Path) -> None:
    wanted: set[str] = set()
    for path in (task / "train.py", task / "prepare.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                wanted |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                wanted.add(str(node.module).split(".")[0])
    assert wanted - sys.stdlib_module_names == {"numpy", "prepare"}
