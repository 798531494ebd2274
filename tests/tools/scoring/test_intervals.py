"""Intervals over examples, slices, and two files compared."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap, norm

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.base import Indices
from nightlab.tools.scoring.compare import compare
from nightlab.tools.scoring.intervals import resampled
from nightlab.tools.scoring.score import score_file
from tests.tools.scoring.files import FIXTURE, pairs, scored


def half(right: int, wrong: int) -> list[dict[str, object]]:
    return pairs(*[("a", "a")] * right, *[("b", "a")] * wrong)


def test_the_interval_is_scipys_over_what_each_example_has(tmp_path: Path) -> None:
    found = scored(tmp_path, half(60, 40), "exact_match").interval
    rng = np.random.default_rng(0)
    values = np.array([1.0] * 60 + [0.0] * 40)
    theirs = bootstrap((values,), np.mean, n_resamples=1000, method="percentile", rng=rng).confidence_interval
    assert found and (found.low, found.high) == pytest.approx((theirs.low, theirs.high))
    expected = norm.ppf(0.975) * math.sqrt(0.6 * 0.4 / 100)
    assert found.high - found.low == pytest.approx(2 * expected, rel=0.15)


@pytest.mark.parametrize("kind", ["bleu", "chrf", "rouge_l", "macro_f1"])
def test_the_same_file_gives_the_same_interval_and_it_holds_the_value(kind: str) -> None:
    one, two = (score_file(FIXTURE, ScoringSettings.model_validate({"kind": kind})) for _ in range(2))
    assert one.interval == two.interval and one.interval is not None
    assert one.interval.low < one.value < one.interval.high


def test_one_example_has_no_interval_nor_has_an_auc_that_hangs_on_one_example(tmp_path: Path) -> None:
    assert scored(tmp_path, half(1, 0), "exact_match").interval is None
    assert scored(tmp_path, pairs((0.2, 0), (0.4, 1), (0.1, 0)), "auc").interval is None


def test_many_examples_are_resampled_less_often() -> None:
    calls = []

    def value(at: Indices) -> float:
        calls.append(len(at))
        return float(at.mean())

    resampled(value, np.arange(50_000), resamples=1000)
    assert set(calls) == {50_000} and 400 <= len(calls) <= 402
    assert resampled(value, np.arange(500_000), resamples=200) is not None and len(calls) <= 503


def test_slices_by_a_field_and_by_the_length_of_a_text(tmp_path: Path) -> None:
    rows = [{**row, "kind": "easy" if i < 6 else "hard", "n": i} for i, row in enumerate(half(6, 2))]
    by_field = scored(tmp_path, rows, "exact_match", slice_by="kind").slices
    assert [(part.name, part.examples, part.value) for part in by_field] == [("easy", 6, 1.0), ("hard", 2, 0.0)]
    by_number = scored(tmp_path, rows, "exact_match", slice_by="n", slice_edges=[2, 7]).slices
    named = [(part.name, part.examples) for part in by_number]
    assert named == [("below 2", 2), ("2 to 7", 5), ("7 and more", 1)]
    assert by_number[2].interval is None and by_number[1].interval is not None
    by_length = scored(tmp_path, rows, "exact_match", slice_by="kind", slice_edges=[4]).slices
    assert [(part.name, part.examples) for part in by_length] == [("4 and more", 8)]


def test_of_too_many_slices_the_small_ones_are_others(tmp_path: Path) -> None:
    rows = [{**row, "user": f"u{i // 2 if i < 40 else i:02d}"} for i, row in enumerate(half(30, 15))]
    found = scored(tmp_path, rows, "exact_match", slice_by="user").slices
    assert len(found) == 21 and (found[-1].name, found[-1].examples) == ("(others)", 5)
    assert sum(part.examples for part in found) == 45


def test_a_slice_of_one_class_has_no_auc_and_harms_nothing(tmp_path: Path) -> None:
    rows = [{**row, "day": day} for row, day in zip(pairs((0.1, 0), (0.2, 1), (0.3, 1)), "aab", strict=True)]
    first, second = scored(tmp_path, rows, "auc", slice_by="day").slices
    assert first.value == 1.0 and math.isnan(second.value)


def test_two_files_are_compared_example_by_example_in_any_order(tmp_path: Path) -> None:
    rows = half(50, 50)
    better = [{**row, "predict": "a"} if i % 10 == 0 else row for i, row in enumerate(rows)]
    better[3] = {**better[3], "predict": "b"}
    first = scored(tmp_path, rows, "exact_match")
    found = compare(first, scored(tmp_path, list(reversed(better)), "exact_match"))
    assert (found.examples, found.better, found.worse, found.same) == (100, 5, 1, 94)
    assert (found.first, found.second, found.delta) == pytest.approx((0.5, 0.54, 0.04))
    # Per pair: +1 five times, −1 once; far narrower than two unpaired values would be.
    expected = norm.ppf(0.975) * math.sqrt((6 / 100 - 0.04**2) / 100)
    assert found.interval and found.interval.high - found.interval.low == pytest.approx(2 * expected, rel=0.2)


@pytest.mark.parametrize("kind", ["bleu", "chrf", "f1"])
def test_a_file_compared_with_itself_does_not_differ(kind: str) -> None:
    first, second = (score_file(FIXTURE, ScoringSettings.model_validate({"kind": kind})) for _ in range(2))
    found = compare(first, second)
    assert found.interval and (found.delta, found.interval.low, found.interval.high, found.same) == (0, 0, 0, 40)


def test_what_is_in_one_file_only_is_counted_and_left_out(tmp_path: Path) -> None:
    first = scored(tmp_path, half(4, 0), "exact_match")
    fewer = scored(tmp_path, [*half(4, 0)[2:], {"prompt": "new", "predict": "b", "label": "a"}], "exact_match")
    found = compare(first, fewer)
    assert (found.examples, found.only_first, found.only_second) == (2, 2, 1)
    with pytest.raises(MetricError, match="no example in common"):
        compare(first, scored(tmp_path, [{"prompt": "q", "predict": "b", "label": "a"}], "exact_match"))


def test_without_a_prompt_rows_are_paired_by_position_and_repeats_by_their_order(tmp_path: Path) -> None:
    bare: list[dict[str, object]] = [{"predict": one, "label": "a"} for one in "ab"]
    assert compare(scored(tmp_path, bare, "f1"), scored(tmp_path, bare[::-1], "f1")).better == 1
    repeated: list[dict[str, object]] = [{**row, "prompt": "same"} for row in bare]
    assert compare(scored(tmp_path, repeated, "f1"), scored(tmp_path, repeated, "f1")).same == 2


def test_an_auc_is_compared_as_a_whole(tmp_path: Path) -> None:
    rows = pairs(*[(i / 40, i % 2) for i in range(40)])
    better = [{**row, "predict": row["label"]} for row in rows]
    found = compare(scored(tmp_path, rows, "auc"), scored(tmp_path, better, "auc"))
    assert found.second == 1.0 and found.better is None and found.interval and found.interval.low > 0
