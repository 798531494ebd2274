"""Recorded runs: LLaMA-Factory and TRL on a tiny model as they printed and wrote, ROLL by its log format."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics import RunFiles
from nightlab.tools.metrics.reader import SourceReader

__all__ = ["FIXTURES", "printed", "read", "recorded", "written"]

FIXTURES = Path(__file__).parent / "fixtures"


def recorded(name: str, folder: Path) -> RunFiles:
    """A copy of a recorded run in `folder`, e.g. `llamafactory/sft`."""
    shutil.copytree(FIXTURES / name, folder / "job", dirs_exist_ok=True)
    return written(folder)


def printed(text: str | bytes, folder: Path, files: Mapping[str, str] | None = None, *, stderr: str = "") -> RunFiles:
    """A run that printed this and left these files in its output folder."""
    run = written(folder)
    run.stdout.write_bytes(text.encode() if isinstance(text, str) else text)
    run.stderr.write_text(stderr, encoding="utf-8")
    for path, content in (files or {}).items():
        (run.output / path).parent.mkdir(parents=True, exist_ok=True)
        (run.output / path).write_text(content, encoding="utf-8")
    return run


def written(folder: Path) -> RunFiles:
    job, tree = folder / "job", folder / "tree"
    for path in (job / "output", tree):
        path.mkdir(parents=True, exist_ok=True)
    return RunFiles(job / "stdout.log", job / "stderr.log", tree, job / "output")


def read(run: RunFiles, metric: str, *, maximize: bool = False, **source: Any) -> float | str:
    """The value, or the cause of its refusal."""
    settings = MetricSource.model_validate({"kind": "trainer", **source})
    try:
        return SourceReader().read(run, metric, settings, maximize=maximize).value
    except MetricError as error:
        assert "\n" not in str(error)
        assert str(error).startswith(f"metric {metric}: ")
        return error.cause
