"""A metric of kind `predictions`, read from what a run left behind."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import Reading, RunFiles
from nightlab.tools.metrics.reader import SourceReader
from tests.tools.scoring.files import FIXTURE

PATH = "{output_dir}/generated_predictions.jsonl"


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    output = tmp_path / "job" / "output"
    output.mkdir(parents=True)
    (tmp_path / "tree").mkdir()
    return RunFiles(tmp_path / "out.log", tmp_path / "err.log", tmp_path / "tree", output, datetime.now(UTC))


def read(files: RunFiles, path: str = PATH, score: object = "exact_match") -> Reading:
    source = MetricSource.model_validate({"kind": "predictions", "path": path, "score": score})
    return SourceReader().read(files, "em", source, maximize=True)


def test_the_runs_own_file_is_scored(files: RunFiles) -> None:
    shutil.copyfile(FIXTURE, files.output / FIXTURE.name)
    found = read(files, score={"kind": "exact_match", "bad_cases": 3})
    assert (found.value, found.source) == (0.1, PATH)
    assert found.score and (found.score.examples, len(found.score.bad_cases)) == (40, 3)


@pytest.mark.parametrize(
    ("text", "cause", "message"),
    [
        (None, "metric-absent", "there is no such file"),
        ("", "metric-absent", "is empty: there is nothing to score"),
        ("{\n", "metric-unreadable", "1 of 1 rows are no JSON object (line 1); at most 1% may be"),
        (
            '{"predict": "a"}\n',
            "metric-unreadable",
            "line 1 has no field label; it has predict (label names the field)",
        ),
    ],
)
def test_a_file_that_gives_no_score_is_told(files: RunFiles, text: str | None, cause: str, message: str) -> None:
    if text is not None:
        (files.output / FIXTURE.name).write_text(text)
    with pytest.raises(MetricError) as caught:
        read(files)
    assert caught.value.cause == cause
    assert str(caught.value) == f"metric em: {PATH}: {message}"


def test_another_runs_file_or_one_from_elsewhere_is_not_scored(files: RunFiles, tmp_path: Path) -> None:
    shutil.copyfile(FIXTURE, tmp_path / "elsewhere.jsonl")
    with pytest.raises(MetricError, match="leads out of the worktree"):
        read(files, "../elsewhere.jsonl")
    shutil.copyfile(FIXTURE, files.output / FIXTURE.name)
    os.utime(files.output / FIXTURE.name, (1.0, 1.0))
    with pytest.raises(MetricError, match="was last written before this run started"):
        read(files)
