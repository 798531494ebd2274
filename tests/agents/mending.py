"""A code idea that passes its short run and fails in a real one, and a model that mends it as a test says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.code_task import Proposer, answer, make_code_repository
from tests.graph.review_night import review_answer

__all__ = ["BROKEN", "FIX", "LOOP", "Mender", "make_mending_repository"]

LOOP = 'for step in range(p["steps"]):\n'
FEATURES = "    return [1.0, x]\n"
# Enough for the short run's 20 steps, too little for the 400 of a real one.
BROKEN = answer(
    "decaying steps",
    (FEATURES, "    return [1.0, x, x * x]\n"),
    (LOOP, f"DECAY = [1.0] * 100\n{LOOP}    p['lr'] = 0.05 * DECAY[step]\n"),
)
FIX = ("DECAY[step]", "DECAY[min(step, 99)]")


class Mender(Proposer):
    """Proposes the broken idea, mends it as told, and has nothing against any claim."""

    def __init__(self, *fix: tuple[str, str]) -> None:
        super().__init__([[BROKEN]])
        self.fix = fix
        self.repairs: list[str] = []

    def __call__(self, request: dict[str, Any]) -> dict[str, Any]:
        text = "\n".join(str(message["content"]) for message in request["messages"])
        if "You mend one change" in text:
            self.repairs.append(text)
            edits = [{"path": "train.py", "search": one, "replace": other} for one, other in self.fix]
            return {"explanation": "the table of decays is too short", "edits": edits, "diff": ""}
        return review_answer() if "You review one claim" in text else super().__call__(request)


def make_mending_repository(folder: Path, base_url: str, **changes: Any) -> Path:
    """A repository in which a model may have one idea; returns the study file."""
    brain = {"kind": "llm", "endpoints": [{"model": "scripted", "base_url": base_url}]}
    code = {"mutable": ["train.py"], "ideas": 1, "max_changed_lines": 30, "required_calls": ["evaluate"]}
    return make_code_repository(folder, base_url, **{"brain": brain, "code": code} | changes)
