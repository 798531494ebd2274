"""Nights with real models: a fresh repository from a folder beside this file, `nightlab run` on each of its studies.

    python -m bench.nights.runner smollm2 --env ENVIRONMENT [--dir DIR]

ENVIRONMENT is a virtual environment with what the night's training needs; `make night-…` makes it.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
BASE = {"llamafactory": "tiny", "trl": "tiny"}
"""Nights that share a model and its data: the folder both come from."""
LEFT_OUT = shutil.ignore_patterns("__pycache__", "model", "*.pyc")


def make(night: str, folder: Path, python: Path, changes: Mapping[str, Any] | None = None) -> list[Path]:
    """The night's repository in `folder`, prepared and committed; its study files. Goes on with one that stands.

    `changes` replace whole sections of each study.
    """
    studies = [folder / path.name for path in sorted((HERE / night).glob("study*.yaml"), key=lambda p: p.stem)]
    if (folder / ".git").exists():
        return studies
    for source in (BASE.get(night), night):
        if source:
            shutil.copytree(HERE / source, folder, ignore=LEFT_OUT, dirs_exist_ok=True)
    for study in studies:
        text = study.read_text(encoding="utf-8").replace("{env}", str(python)).replace("{here}", str(folder))
        text = text.replace("{bin}", str(python.parent))
        if changes:
            text = yaml.safe_dump(yaml.safe_load(text) | changes, sort_keys=False)
        study.write_text(text, encoding="utf-8")
    for script in ("make_data.py", "prepare_model.py"):
        if (folder / script).is_file():
            subprocess.run([python, script], cwd=folder, check=True)
    for command in (
        ["init", "--quiet", "--initial-branch", "main"],
        ["add", "--all"],
        ["-c", "user.name=nightlab", "-c", "user.email=nightlab@localhost", "commit", "--quiet", "-m", night],
    ):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return studies


def run(studies: list[Path]) -> int:
    """`nightlab run` of one after the other; ends with the first that does not come to its end."""
    for study in studies:
        done = subprocess.run([sys.executable, "-m", "nightlab", "run", str(study)], check=False)
        if done.returncode:
            return done.returncode
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("night", choices=sorted(p.name for p in HERE.iterdir() if (p / "study.yaml").is_file()))
    parser.add_argument("--env", type=Path, required=True, help="the environment the training runs in")
    parser.add_argument("--dir", type=Path, help="the repository to make; by default ./nightlab-night-<night>")
    args = parser.parse_args()
    python = (args.env / "bin" / "python").absolute()
    folder = (args.dir or Path(f"nightlab-night-{args.night}")).absolute()
    return run(make(args.night, folder, python))


if __name__ == "__main__":
    sys.exit(main())
