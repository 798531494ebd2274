"""Files of predictions, and scoring them in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nightlab.configs.scoring import ScoringSettings
from nightlab.tools.scoring.score import Score, score_file

__all__ = ["FIXTURE", "pairs", "scored", "write"]

FIXTURE = Path(__file__).parent / "fixtures" / "generated_predictions.jsonl"
"""LLaMA-Factory's own file of a small model's 40 predictions, its prompts cut to the query."""


def write(path: Path, rows: Iterable[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs(*texts: tuple[object, object]) -> list[dict[str, object]]:
    """Rows of `(prediction, label)`, as LLaMA-Factory writes them."""
    return [{"prompt": f"p{i}", "predict": one, "label": label} for i, (one, label) in enumerate(texts)]


def scored(folder: Path, rows: Iterable[dict[str, object]], kind: str, **settings: Any) -> Score:
    file = write(folder / "predictions.jsonl", rows)
    return score_file(file, ScoringSettings.model_validate({"kind": kind, **settings}))
