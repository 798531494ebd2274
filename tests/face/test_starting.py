"""init, check, run --snapshot and the demo's repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.demo import make_demo
from nightlab.errors import ConfigError
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from tests.face.calling import call, state_of
from tests.task import commit_all, git, make_repository

SCRIPT = """\
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.001)
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--seed", type=int, default=0)
a = p.parse_args()
print(f"val_loss: {2 + abs(a.lr - 0.003) + a.seed / 1000:.5f}")
"""


def test_from_a_script_to_a_study_that_is_ready(tmp_path: Path) -> None:
    root = tmp_path / "My Model"
    root.mkdir()
    git(root, "init", "-q")
    (root / "train.py").write_text(SCRIPT)
    commit_all(root, "script")
    wrote = call(root, "init")
    assert wrote.status == 0 and wrote.out.endswith("then: nightlab check\n")
    study = load_study(root / "study.yaml").study
    assert study.study == "my-model" and {"lr", "batch_size"} <= set(study.space)
    before = state_of(root)
    checked = call(root, "check")
    assert checked.status == 0 and checked.out.endswith("study.yaml is ready: nightlab run\n")
    assert state_of(root) == before


def test_another_file_name_command_and_template(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("DEPTH = 8\nMATRIX_LR = 0.04\n")
    wrote = call(tmp_path, "init", "night.yaml", "--name", "second", "--template", "karpathy")
    assert "nightlab check night.yaml" in wrote.out
    study = load_study(tmp_path / "night.yaml").study
    assert study.study == "second" and study.code.mutable == ["train.py"]
    call(tmp_path, "init", "other.yaml", "--command", "bash train.sh {lr}")
    assert load_study(tmp_path / "other.yaml").study.launcher.command == "bash train.sh {lr}"


def test_a_snapshot_runs_the_tree_as_it_is_and_leaves_it_so(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", budget={"runs": 10}, frozen=["eval.py"])
    (file.parent / "eval.py").write_text("# not committed yet\n")
    (file.parent / "train.py").write_text((file.parent / "train.py").read_text().replace("2.0 -", "1.0 -"))
    before, head = git(file.parent, "status", "--porcelain"), git(file.parent, "rev-parse", "HEAD")
    assert call(file.parent, "check").status == 2
    checked = call(file.parent, "check", "--snapshot")
    assert checked.status == 0 and checked.out.endswith("nightlab run --snapshot\n")
    assert call(file.parent, "run", "--snapshot").status == 0
    assert git(file.parent, "status", "--porcelain") == before and git(file.parent, "rev-parse", "HEAD") == head
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        base = ledger.study_row().base_commit
        assert max(o.values["val_loss"] for o in ledger.observations()) < 1.5
    assert git(file.parent, "rev-parse", f"{base}^") == head
    assert "not committed yet" in git(file.parent, "show", f"{base}:eval.py")
    # A study that has begun is checked at its own commit, whatever the tree looks like now.
    assert call(file.parent, "check").status == 0


def test_the_demo_is_a_repository_that_is_ready(tmp_path: Path) -> None:
    study = make_demo(tmp_path / "a" / "demo")
    assert git(study.parent, "status", "--porcelain") == "" and git(study.parent, "log", "--oneline").count("\n") == 0
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["demo"]
    before = state_of(study.parent)
    assert make_demo(study.parent) == study
    assert state_of(study.parent) == before
    (tmp_path / "empty").mkdir()
    assert git(make_demo(tmp_path / "empty").parent, "status", "--porcelain") == ""


def test_a_study_of_ones_own_is_not_taken_for_the_demo(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "mine")
    with pytest.raises(ConfigError, match="exists and is not the demo"):
        make_demo(file.parent)
