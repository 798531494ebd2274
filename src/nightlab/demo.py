"""The demo: a fresh git repository made from an example, ready for its study."""

from __future__ import annotations

import shutil
from importlib.resources import as_file, files
from pathlib import Path

from nightlab.errors import ConfigError, Fault

__all__ = ["EXAMPLE", "make_demo"]

EXAMPLE = "byte_lm"


def make_demo(directory: Path) -> Path:
    """Copy the example into `directory`, commit it there, and return the study file.

    A folder that already holds this demo is gone on with; any other that exists is left alone (ConfigError).
    """
    study = directory / "study.yaml"
    if directory.exists() and any(directory.iterdir()):
        if study.exists() and (directory / ".git").exists():
            return study
        raise ConfigError(Fault("exists and is not the demo", file=directory, mend="choose another folder with --dir"))
    with as_file(files("nightlab.configs") / "examples" / EXAMPLE) as example:
        shutil.copytree(example, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    _commit(directory)
    return study


def _commit(directory: Path) -> None:
    from git import Repo

    with Repo.init(directory, initial_branch="main") as repo:
        repo.git.add("--all")
        identity = ["-c", "user.name=nightlab", "-c", "user.email=nightlab@localhost", "-c", "commit.gpgsign=false"]
        repo.git.execute(["git", *identity, "commit", "--no-verify", "--quiet", "-m", "The byte-level language model"])
