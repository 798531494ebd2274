"""Hostile logs: the right value or an honest refusal, in flat memory.

A gigabyte of each: `python -m bench.hostile_logs`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tools.metrics.hostile import CASES, METRIC, Case, read, write

PEAK_BYTES = 4 << 20


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_right_value_or_an_honest_refusal(case: Case, tmp_path: Path) -> None:
    write(tmp_path / "stdout.log", case, 2 << 20)
    (tmp_path / "stderr.log").touch()
    result = read(tmp_path, case, traced=False)
    assert result.outcome == case.expected
    assert "\n" not in result.message
    assert len(result.message) < 1000
    assert METRIC in result.message or not result.message


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_memory_does_not_grow_with_the_log(case: Case, tmp_path: Path) -> None:
    (tmp_path / "stderr.log").touch()
    peaks = []
    for size_bytes in (1 << 20, 4 << 20):
        write(tmp_path / "stdout.log", case, size_bytes)
        peaks.append(read(tmp_path, case).peak_bytes)
    assert peaks[1] - peaks[0] < 1 << 20
    assert max(peaks) < PEAK_BYTES
