"""A real training script that takes milliseconds, and a model that proposes changes to it: good, bad and cheating."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from tests.task import commit_all, git, study_data, write_study

__all__ = ["ANSWERS", "EVALUATION", "TRAIN", "Proposer", "answer", "code_study", "make_code_repository"]

EVALUATION = '''\
"""Frozen: the points that are measured on, and how."""
POINTS = [place / 20 - 1 for place in range(41)]


def target(x):
    return 1.0 + 2.0 * x + 1.5 * x * x


def evaluate(predict):
    return sum((predict(x) - target(x)) ** 2 for x in POINTS) / len(POINTS)
'''

TRAIN = '''\
"""Stochastic gradient descent on a few features."""
import json, os, random, sys

from evaluation import evaluate, target

options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
p = json.load(open(options["--params"]))
seed = int(options["--seed"])
random.seed(seed)


def features(x):
    return [1.0, x]


def clipped(value):
    # Nothing is ever as large as that.
    if value > 1e9:
        return 1e9
    if value < -1e9:
        return -1e9
    return value


weights = [0.0 for _ in features(0.0)]
for step in range(p["steps"]):
    x = random.uniform(-1, 1)
    error = sum(w * f for w, f in zip(weights, features(x))) - target(x) - random.gauss(0, 0.1)
    error = clipped(error)
    weights = [w - p["lr"] * error * f for w, f in zip(weights, features(x))]

val_loss = evaluate(lambda x: sum(w * f for w, f in zip(weights, features(x))))
print(f"val_loss: {val_loss:.6f}")
with open(os.environ.get("RUN_COUNTER", os.devnull), "a") as counter:
    counter.write(f"{os.path.basename(os.getcwd())} {seed}\\n")
'''


def answer(title: str, *edits: tuple[str, str], path: str = "train.py", diff: str = "") -> dict[str, Any]:
    """One answer; each edit is `(search, replace)`."""
    return {
        "title": title,
        "slug": title,
        "rationale": f"{title} should help.",
        "expected_effect": "lower",
        "edits": [{"path": path, "search": search, "replace": replace} for search, replace in edits],
        "diff": diff,
    }


SQUARE = answer("square feature", ("    return [1.0, x]\n", "    return [1.0, x, x * x]\n"))
LAZY = ('for step in range(p["steps"]):\n', 'for step in range(p["steps"] // 20):\n')
SPARE = """\
def clipped(value):
    # Nothing is ever as large as that.
    if value > 1e9:
        return 1e9
    if value < -1e9:
        return -1e9
    return value


"""
CONSTANT = answer("sharper loss", ('print(f"val_loss: {val_loss:.6f}")', 'print(f"val_loss: {0.001:.6f}")'))
FROZEN = answer("fewer points", ("range(41)", "range(3)"), path="evaluation.py")

ANSWERS: list[list[dict[str, Any]]] = [
    [SQUARE],
    # Sent back once, then right.
    [answer("lazy steps", ("for step in range(steps):\n", LAZY[1])), answer("lazy steps", LAZY)],
    [CONSTANT],
    [FROZEN],
    [answer("lucky seed", ("random.seed(seed)", "random.seed(seed + 41)"))],
    [answer("quadratic term", ("    return [1.0, x]\n", "    return [1.0, x, x * x]  # a parabola\n"))],
    [answer("no clipping", (SPARE, ""), ("    error = clipped(error)\n", ""))],
]
"""For each idea what is answered, the last for ever."""


class Proposer:
    """Answers by the number of ideas that were decided, so that asking again gives the same; to be handed to a stub."""

    def __init__(self, answers: list[list[dict[str, Any]]] | None = None) -> None:
        self.answers = ANSWERS if answers is None else answers
        self.asked: Counter[str] = Counter()
        """How often each prompt was sent."""
        self._begun: dict[str, int] = {}
        self._lock = threading.Lock()

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        text = "\n".join(str(message["content"]) for message in request["messages"])
        if "You propose one change to the code" not in text:
            return {"dimensions": [], "ranking": [], "factors": []}
        with self._lock:
            self.asked[text] += 1
            refused = "# Your last answer was refused" in text
            fresh = text if not refused else None
            if fresh is not None and fresh not in self._begun:
                self._begun[fresh] = len(self._begun)
            number = self._begun[fresh] if fresh is not None else len(self._begun) - 1
            rounds = self.answers[min(number, len(self.answers) - 1)]
            return rounds[-1] if refused else rounds[0]


def code_study(base_url: str, **changes: Any) -> dict[str, Any]:
    data = study_data()
    data |= {
        "goal": "a better fit",
        "objective": {**data["objective"], "min_effect": 0.02, "unit": "", "plausible": [0.0, 100.0]},
        "guardrails": [],
        "parameters": {"lr": 0.05, "steps": 400},
        "space": {"lr": {"levels": [0.1], "scale": "log"}},
        "locked": ["steps"],
        "frozen": ["evaluation.py"],
        "launcher": {**data["launcher"], "dry_run": {"steps": 20}},
        "search": {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_seeds_most": 4, "confirm_candidates": 1},
        "budget": {"runs": 22},
        "brain": {"kind": "llm", "review": "nothing", "endpoints": [{"model": "scripted", "base_url": base_url}]},
        "code": {
            "mutable": ["train.py"],
            "ideas": 4,
            "max_changed_lines": 30,
            "required_calls": ["evaluate"],
            "instructions": "program.md",
        },
    }
    return data | changes


def make_code_repository(folder: Path, base_url: str, **changes: Any) -> Path:
    """A committed repository of the task with its study file; returns the study file."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text(TRAIN)
    (folder / "evaluation.py").write_text(EVALUATION)
    (folder / "program.md").write_text("Improve the fit. Keep it simple.\n")
    (folder / "params.json").write_text(json.dumps({"lr": 0.05, "steps": 400}))
    data = code_study(base_url, **changes)
    file = write_study(folder, **data)
    commit_all(folder, "task")
    return file
