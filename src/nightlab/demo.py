"""The demo: a fresh git repository made from an example, ready for its study."""

from __future__ import annotations

import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError, Fault

__all__ = ["EXAMPLE", "make_demo"]

EXAMPLE = "byte_lm"


def make_demo(directory: Path) -> Path:
    """Copy the example into `directory`, commit it there, and return the study file.

    A folder that already holds this demo is gone on with; any other that exists is left alone (ConfigError).
    """
    study = directory / "study.yaml"
    with as_file(files("nightlab.configs") / "examples" / EXAMPLE) as example:
        if (directory.exists() and not directory.is_dir()) or _is_filled(directory):
            if (directory / ".git").exists() and study.is_file() and _name(study) == _name(example / study.name):
                return study
            raise ConfigError(
                Fault("exists and is not the demo", file=directory, mend="choose another folder with --dir")
            )
        _copy(example, directory)
    return study


def _is_filled(directory: Path) -> bool:
    return directory.is_dir() and any(directory.iterdir())


def _name(study: Path) -> str:
    return load_study(study).study.study


def _copy(example: Path, directory: Path) -> None:
    """Made whole beside its place first: a demo that was interrupted while it was made leaves nothing half done."""
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".nightlab-demo-", dir=directory.parent) as folder:
            whole = Path(folder) / "demo"
            shutil.copytree(example, whole, ignore=shutil.ignore_patterns("__pycache__"))
            _commit(whole)
            if directory.exists():
                shutil.copytree(whole, directory, dirs_exist_ok=True, symlinks=True)
            else:
                whole.rename(directory)
    except OSError as error:
        mend = "choose another folder with --dir"
        raise ConfigError(Fault(f"cannot be made: {error.strerror or error}", file=directory, mend=mend)) from error


def _commit(directory: Path) -> None:
    from git import Repo

    with Repo.init(directory, initial_branch="main") as repo:
        repo.git.add("--all")
        identity = ["-c", "user.name=nightlab", "-c", "user.email=nightlab@localhost", "-c", "commit.gpgsign=false"]
        repo.git.execute(["git", *identity, "commit", "--no-verify", "--quiet", "-m", "The byte-level language model"])
