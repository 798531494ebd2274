"""A short night with a win, and a model that reviews it as a test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.task import make_repository

__all__ = ["CHECKS", "Reviewer", "item", "make_review_repository", "review_answer"]

CHECKS = ("leakage", "metric gaming", "confounding", "unfair comparison", "simpler explanation")
SHOWN = "gains above 0 are better"
"""Words that every reviewer is shown."""


def item(check: str, answer: str = "passed", evidence: str = SHOWN, reason: str = "as shown") -> dict[str, str]:
    return {"check": check, "answer": answer, "evidence": evidence, "reason": reason}


def review_answer(*others: dict[str, str], another_run: bool = False) -> dict[str, Any]:
    """All checks passed but for `others`."""
    given = {one["check"]: one for one in others}
    return {"items": [given.get(check, item(check)) for check in CHECKS], "another_run": another_run}


class Reviewer:
    """Answers reviews as told and everything else with nothing; to be handed to a stub."""

    def __init__(self, answer: Any) -> None:
        self.answer: Callable[[str], Any] = answer if callable(answer) else lambda _text: answer
        self.asked: list[str] = []

    def __call__(self, request: dict[str, Any]) -> Any:
        text = "\n".join(str(message["content"]) for message in request["messages"])
        if "You review one claim" not in text:
            return {"dimensions": [], "ranking": [], "factors": []}
        self.asked.append(text)
        return self.answer(text)


def make_review_repository(folder: Path, base_url: str, **changes: Any) -> Path:
    """A repository of the task in which one level wins clearly; returns the study file."""
    data: dict[str, Any] = {
        "space": {"lr": {"levels": [0.01], "scale": "log", "tier": 1}},
        "search": {"baseline_replicates": 2, "confirm_seeds": 3, "confirm_seeds_most": 3, "confirm_candidates": 1},
        "budget": {"runs": 20},
        "brain": {"kind": "llm", "endpoints": [{"model": "scripted", "base_url": base_url}]},
    }
    return make_repository(folder, **(data | changes))
