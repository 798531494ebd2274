from __future__ import annotations

import os
from pathlib import Path

import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.worktrees.trees import Worktrees
from tests.worktrees.repositories import git, make_repository

PROJECT = {
    ".gitignore": "*.log\n/data/\n",
    "train.py": "print('loss: 1.0')\n",
    "eval/metric.py": "def metric(): ...\n",
    "params.json": '{"lr": 0.1}\n',
}


@pytest.fixture(autouse=True)
def no_git_config_but_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project", PROJECT)


@pytest.fixture
def base(root: Path) -> str:
    return git(root, "rev-parse", "HEAD")


@pytest.fixture
def paths(root: Path) -> StudyPaths:
    return StudyPaths(root, "demo")


@pytest.fixture
def trees(paths: StudyPaths) -> Worktrees:
    return Worktrees(paths)
