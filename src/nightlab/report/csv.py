"""`experiment_results.csv`, one row an experiment with full precision, and Karpathy's five columns as `.tsv`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

from nightlab.configs.files import write_atomically
from nightlab.knowledge.records import VerdictKind
from nightlab.report.model import ExperimentRow, StudyReport

__all__ = ["COLUMNS", "write_csv", "write_tsv"]

COLUMNS = (
    "number", "scenario", "method", "base_model", "variable", "technique", "phase", "parameters", "changed",
    "metric", "metric_mean", "guardrails", "runs", "failed_runs", "seeds", "effect", "effect_low", "effect_high",
    "confidence", "unit", "verdict", "label", "reason", "job_ids", "branch", "commit", "note",
)  # fmt: skip
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_csv(report: StudyReport, path: Path, redact: Callable[[str], str] = str) -> None:
    """RFC 4180 rows in the order of `COLUMNS`; effects above 0 are better whatever the metric's direction."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(COLUMNS)
    writer.writerows([_cell(line.record[column]) for column in COLUMNS] for line in report.rows)
    write_atomically(path, redact(buffer.getvalue()))


def write_tsv(report: StudyReport, path: Path, redact: Callable[[str], str] = str) -> None:
    """Commit, metric, peak memory in GB, status (keep, discard, crash), description; tabs, one row an experiment.

    As in autoresearch: a crash has zeros; memory is the GPU's where the runs tell it (`peak_vram_mb`), else the
    processes'. An experiment that was never run has no row.
    """
    lines = [["commit", report.metric.name, "memory_gb", "status", "description"]]
    for row in report.experiments:
        if row.mean is None and not row.failed_runs:
            continue
        value = 0.0 if row.mean is None else row.mean
        lines.append([(row.commit or "")[:7], f"{value:.6f}", f"{_memory_gb(row):.1f}", _status(row), row.title])
    text = "".join("\t".join(" ".join(cell.split()) for cell in line) + "\n" for line in lines)
    write_atomically(path, redact(text))


def _memory_gb(row: ExperimentRow) -> float:
    if row.mean is None:
        return 0.0
    if (megabytes := row.guardrails.get("peak_vram_mb")) is not None:
        return megabytes / 1024
    return (row.peak_memory_bytes or 0) / 1e9


def _status(row: ExperimentRow) -> str:
    if row.mean is None:
        return "crash"
    return "keep" if row.is_baseline or row.verdict is VerdictKind.KEEP else "discard"


def _cell(value: object) -> object:
    """Text that a spreadsheet would run as a formula is led by an apostrophe; numbers pass with all their digits."""
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, list):
        return " ".join(map(str, value))
    if not isinstance(value, str):
        return value
    text = value.replace("\0", "")
    return f"'{text}" if text.lstrip(" ").startswith(FORMULA_STARTS) else text
