"""A training task that takes milliseconds: a real git repository, a real command, a response known exactly."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

__all__ = ["commit_all", "git", "make_repository", "study_data", "write_study"]

TRAIN = """\
import argparse, json, os, random, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--params")
parser.add_argument("--seed", type=int)
options = parser.parse_args()
p = json.load(open(options.params))
if p["crash"] == "yes":
    sys.exit("boom: out of luck")
time.sleep(float(p["seconds"]))
loss = 2.0 - 0.20 * (p["lr"] == 0.01) + 0.30 * (p["lr"] == 0.1) - 0.15 * (p["width"] >= 64)
random.seed(json.dumps([p["lr"], p["width"], p["color"], options.seed]))
print("step 1 | loss: 3.0")
print(f"val_loss: {loss + random.gauss(0.0, 0.01):.6f}")
print("memory_mb: 12.5")
with open(os.environ.get("RUN_COUNTER", os.devnull), "a") as counter:
    counter.write(f"{os.path.basename(os.getcwd())} {options.seed}\\n")
"""


def study_data(**changes: Any) -> dict[str, Any]:
    """The study of the task as plain data; `changes` replace whole sections."""
    data: dict[str, Any] = {
        "study": "tiny",
        "scenario": "toy",
        "method": "pretrain",
        "base_model": "none",
        "objective": {
            "metric": "val_loss",
            "direction": "minimize",
            "unit": "nats",
            "plausible": [0.0, 10.0],
            "min_effect": 0.03,
        },
        "guardrails": [{"metric": "memory_mb", "max": 100}],
        "parameters": {"lr": 0.001, "width": 32, "color": "red", "crash": "no", "seconds": 0, "steps": 10},
        "space": {
            "lr": {"levels": [0.01, 0.1], "scale": "log", "tier": 1},
            "width": {"levels": [64], "tier": 2},
            "color": {"levels": ["blue"], "tier": 3},
            "crash": {"levels": ["yes"], "tier": 4},
        },
        "locked": ["steps", "seconds"],
        "frozen": ["prepare.py"],
        "launcher": {
            "command": "{python} train.py --params {params_file} --seed {seed}",
            "parameters": {"via": "file", "path": "params.json"},
            "dry_run": {"steps": 1},
        },
        "backend": {"slots": 2, "timeout": "60s", "pass_env": ["RUN_COUNTER"]},
        "budget": {"runs": 30},
    }
    return data | changes


def write_study(repository: Path, **changes: Any) -> Path:
    file = repository / "study.yaml"
    file.write_text(yaml.safe_dump(study_data(**changes), sort_keys=False))
    return file


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit_all(repository: Path, message: str) -> str:
    git(repository, "add", "--all")
    git(repository, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "-m", message)
    return git(repository, "rev-parse", "HEAD")


def make_repository(folder: Path, **changes: Any) -> Path:
    """A committed training repository with its study file in it; returns the study file."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text(TRAIN)
    (folder / "prepare.py").write_text("# evaluation data\n")
    (folder / "params.json").write_text(
        '{\n  "lr": 0.001,\n  "width": 32,\n  "color": "red",\n  "crash": "no",\n  "seconds": 0,\n  "steps": 10\n}\n'
    )
    file = write_study(folder, **changes)
    commit_all(folder, "task")
    return file
