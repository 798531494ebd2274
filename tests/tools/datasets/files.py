"""Small hand-made data sets on disk, and their figures and findings."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nightlab.configs.data import DataSettings
from nightlab.tools.datasets.figures import DataFigures
from nightlab.tools.datasets.findings import Finding, data_findings
from nightlab.tools.datasets.measuring import measure_data

__all__ = ["figures_of", "findings_of", "write_json", "write_lines"]


def write_json(path: Path, rows: Iterable[Any]) -> str:
    path.write_text(json.dumps(list(rows), ensure_ascii=False), encoding="utf-8")
    return path.name


def write_lines(path: Path, rows: Iterable[Any]) -> str:
    """JSON a line; a text among the rows is a line as it stands."""
    lines = (row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path.name


def figures_of(root: Path, *, window: int | None = None, **settings: Any) -> DataFigures:
    return measure_data(DataSettings(**settings), root, window=window)


def findings_of(
    root: Path, *, window: int | None = None, thinking: bool | None = None, **settings: Any
) -> list[Finding]:
    return data_findings(figures_of(root, window=window, **settings), thinking=thinking)
