"""Two configurations, several seeds each, on the same examples."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from nightlab.configs.scoring import ScoringSettings
from nightlab.errors import MetricError
from nightlab.tools.scoring.compare import compare
from nightlab.tools.scoring.over_seeds import compare_over_seeds
from nightlab.tools.scoring.score import Score, score_file

SLICED = ScoringSettings(kind="exact_match", slice_by="kind")


def scored(path: Path, right: set[int], *, rows: range = range(40), settings: ScoringSettings = SLICED) -> Score:
    """Predictions that are right on `right` alone."""
    with path.open("w") as file:
        for i in rows:
            predict = i % 7 / 7 if settings.kind == "auc" else "yes" if i in right else "no"
            row = {"prompt": f"q{i}", "label": i % 2 if settings.kind == "auc" else "yes", "predict": predict}
            file.write(json.dumps(row | {"kind": "odd" if i % 2 else "even"}) + "\n")
    return score_file(path, settings)


def test_one_seed_is_what_comparing_two_files_gives(tmp_path: Path) -> None:
    before, after = scored(tmp_path / "a", set(range(15))), scored(tmp_path / "b", set(range(10, 35)))
    one, two = compare(before, after), compare_over_seeds([(before, after)])
    assert (two.before, two.after, two.interval) == (one.first, one.second, one.interval)
    assert (two.better, two.worse, two.same) == (one.better, one.worse, one.same) == (20, 10, 10)


def test_seeds_are_averaged_example_by_example_and_slice_by_slice(tmp_path: Path) -> None:
    sides = [(set(range(10)), set(range(0, 40, 2))), (set(range(20)), set(range(0, 40, 2)))]
    pairs = [(scored(tmp_path / f"a{i}", a), scored(tmp_path / f"b{i}", b)) for i, (a, b) in enumerate(sides)]
    told = compare_over_seeds(pairs)
    assert (told.seeds, told.examples, told.left_out) == (2, 40, 0)
    assert told.before == pytest.approx(statistics.fmean((0.25, 0.5))) and told.after == pytest.approx(0.5)
    # Right before in one seed of two, and now in both: better, by half.
    assert (told.better, told.worse, told.same) == (15, 10, 15)
    assert {one.name: (one.examples, one.before, one.after) for one in told.slices} == {
        "even": (20, 0.375, 1.0),
        "odd": (20, 0.375, 0.0),
    }
    assert told.interval is not None and told.interval.low < told.after - told.before < told.interval.high


def test_only_examples_that_all_files_hold_are_compared(tmp_path: Path) -> None:
    first = scored(tmp_path / "a", {0, 1})
    second = scored(tmp_path / "b", {0, 1}, rows=range(5, 40))
    told = compare_over_seeds([(first, first), (first, second)])
    assert (told.examples, told.left_out, told.before) == (35, 5, 0.0)
    with pytest.raises(MetricError, match="no example in common"):
        compare_over_seeds([(first, scored(tmp_path / "c", set(), rows=range(50, 60)))])


def test_a_score_without_values_of_its_examples_counts_none_of_them(tmp_path: Path) -> None:
    settings = ScoringSettings(kind="auc")
    both = scored(tmp_path / "a", set(), settings=settings), scored(tmp_path / "b", set(), settings=settings)
    told = compare_over_seeds([both, both])
    assert (told.better, told.worse, told.same, told.slices) == (None, None, None, [])
    assert told.before == told.after
