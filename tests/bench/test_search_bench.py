"""The search bench: resumable nights, true statistics, results that a person can read."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.methods import METHODS, NIGHTLAB
from bench.search import Plan, Task, execute, load_runs, main, play, run_tasks, tasks_of
from bench.search_report import Results
from bench.tables import load_tables
from tests.bench.tiny import real_tables, write_steplaw

FREE = ("random", "keep/discard", "screening + array")
"""Peers that need nothing beyond nightlab's own dependencies."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    write_steplaw(data / "steplaw_some.csv", [(2e8, 4e9), (2e8, 8e9), (4e8, 8e9)])
    return data


def plan_of(folder: Path, *, seeds: int = 3, methods: tuple[str, ...] = FREE) -> Plan:
    chosen = tuple(METHODS[name] for name in methods)
    return Plan(tuple(load_tables(folder)), chosen, ("default", "mediocre"), (4, 8), seeds)


def test_every_night_is_played_once_and_a_second_call_plays_none(folder: Path, tmp_path: Path) -> None:
    plan, cache = plan_of(folder), tmp_path / "runs.jsonl"
    tasks = tasks_of(plan)
    # One night serves both budgets, but for the method that plans by it: 2 + 2 × 1 nights.
    assert len(tasks) == len(set(tasks)) == 3 * 2 * 3 * (2 + 2)
    run_tasks(folder, tasks, cache, jobs=1)
    first = cache.read_text()
    assert load_runs(cache).keys() == set(tasks)
    assert all(len(regrets) == task.budget and regrets[0] == 1 for task, regrets in load_runs(cache).items())
    run_tasks(folder, tasks, cache, jobs=1)
    assert cache.read_text() == first


def test_a_torn_line_is_played_again_and_another_edition_is_not_used(folder: Path, tmp_path: Path) -> None:
    plan, cache = plan_of(folder, seeds=2, methods=("random",)), tmp_path / "runs.jsonl"
    tasks = tasks_of(plan)
    run_tasks(folder, tasks, cache, jobs=1)
    whole = load_runs(cache)
    cache.write_text(cache.read_text()[:-30])
    assert len(load_runs(cache)) == len(tasks) - 1
    run_tasks(folder, tasks, cache, jobs=1)
    assert load_runs(cache) == whole
    assert not {replace(task, edition="other") for task in tasks} & whole.keys()


def test_a_night_is_repeatable_and_all_methods_share_its_start(folder: Path) -> None:
    tables = load_tables(folder)
    tasks = [task for task in tasks_of(plan_of(folder)) if task.scenario == "mediocre"]
    assert play(tasks[0], tables) == play(tasks[0], tables)
    assert len({play(task, tables)[-1] for task in tasks[:6]}) > 1


def results_of(folder: Path, regrets: dict[str, list[list[float]]]) -> Results:
    """Regrets of every method a table, one number a seed, the same after every run of a night of 4."""
    tables = load_tables(folder)
    plan = Plan(tuple(tables), tuple(METHODS[name] for name in regrets), ("default",), (4,), 2)
    runs = {
        Task(table.name, table.fingerprint, name, "", "default", 4, seed): [1.0, value, value, value]
        for name, rows in regrets.items()
        for table, values in zip(tables, rows, strict=True)
        for seed, value in enumerate(values)
    }
    return Results(plan, runs)


def test_means_weigh_tables_alike_and_the_best_peer_is_no_nightlab(folder: Path) -> None:
    results = results_of(
        folder,
        {
            "random": [[0.4, 0.4], [0.4, 0.4], [0.4, 0.4]],
            "keep/discard": [[0.1, 0.3], [0.1, 0.3, 0.2, 0.2], [0.5, 0.7]],
            "nightlab": [[0.1, 0.1], [0.2, 0.2], [0.0, 0.0]],
        },
    )
    mean = results.mean("default", "keep/discard", 4)
    assert mean.value == pytest.approx(1 / 3)
    assert mean.low < mean.value < mean.high
    assert results.best_peer("default", 4) == "keep/discard"
    assert results.best_peer_of_table("default", results.plan.tables[2].name, 4) == "random"


def test_a_comparison_counts_clear_differences_only(folder: Path) -> None:
    results = results_of(
        folder,
        {
            "keep/discard": [[0.30, 0.32], [0.30, 0.32], [0.3, 0.5]],
            "nightlab": [[0.10, 0.12], [0.50, 0.52], [0.3, 0.4]],
        },
    )
    found = results.compare("default", "nightlab", "keep/discard", 4)
    assert (found.wins, found.ties, found.losses) == (1, 1, 1)
    assert found.ratio.value == pytest.approx((0.11 + 0.51 + 0.35) / (0.31 + 0.31 + 0.4))
    assert found.ratio.low < found.ratio.value < found.ratio.high
    assert found.p_value == 1.0


def test_runs_to_a_target_are_a_median_over_nights(folder: Path) -> None:
    results = results_of(folder, {"nightlab": [[0.04, 0.04], [0.04, 0.005], [0.2, 0.2]]})
    median, share = results.runs_to("default", "nightlab", 0.05)
    assert median == 2
    assert share == pytest.approx(2 / 3)
    median, share = results.runs_to("default", "nightlab", 0.01)
    assert math.isinf(median)
    assert share == pytest.approx(1 / 6)


def test_a_method_that_lacks_a_table_is_left_out_and_named(folder: Path, tmp_path: Path) -> None:
    results = results_of(folder, {"random": [[0.4, 0.4], [0.4, 0.4], [0.4, 0.4]], "nightlab": [[0.1, 0.1], [], [0.1]]})
    assert results.methods("default") == ["random"]
    from bench.search_report import write_report

    write_report(results, tmp_path, "search")
    assert "left out: nightlab (default)" in (tmp_path / "search.md").read_text()


def test_the_results_are_written_for_people_and_programs(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    execute(plan_of(folder), folder, out, jobs=1)
    page = (out / "search.md").read_text()
    assert "## Default start" in page
    assert "## Mediocre start" in page
    assert all(f"| {name} |" in page for name in FREE)
    assert all(table.name in page for table in load_tables(folder))
    data = json.loads((out / "search.json").read_text())
    found = data["scenarios"]["default"]["random"]["mean_regret"]["8"]
    assert 0 <= found["low"] <= found["value"] <= found["high"]
    assert (out / "search.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "search.svg").stat().st_size > 5000


def test_without_data_one_line_says_what_to_give(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert "make bench-search DATA=" in line
    assert "bench/README.md" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--methods", "magic"], "no method 'magic'; there are random"),
        (["--tables", "hpolib"], "no table 'hpolib'; there are steplaw"),
        (["--scenarios", "dreamy"], "no scenario dreamy; there are default, mediocre"),
    ],
)
def test_a_wrong_name_is_told_in_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["--data", str(folder), *arguments]) == 2
    assert says in capsys.readouterr().err


def test_the_short_form_runs_from_the_command_line(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--data", str(folder), "--out", str(out), "--short", "--methods", "random,keep", "--budgets", "5"]
    assert main([*arguments, "--seeds", "2", "--jobs", "1"]) == 0
    page = (out / "search-short.md").read_text()
    assert page.startswith("# Search bench, short form")
    assert "2 tables (2 steplaw)" in page


def test_on_real_tables_keep_or_discard_beats_random_after_20_runs() -> None:
    tables = [table for table in load_tables(real_tables()) if table.family == "hpolib"][:1]
    if not tables:
        pytest.skip("no hpolib table")
    means = []
    for name in ("random", "keep/discard"):
        tasks = tasks_of(Plan(tuple(tables), (METHODS[name],), ("default",), (20,), 20))
        means.append(np.mean([play(task, tables)[-1] for task in tasks]))
    assert means[1] < means[0]


def test_nightlab_is_in_the_bench() -> None:
    assert set(NIGHTLAB) <= METHODS.keys()


@pytest.mark.parametrize("name", NIGHTLAB)
def test_nightlab_plays_by_the_rules(folder: Path, name: str) -> None:
    pytest.importorskip("nightlab.search.searcher")
    tables = load_tables(folder)
    task = tasks_of(Plan((tables[0],), (METHODS[name],), ("default",), (12,), 1))[0]
    regrets = play(task, tables)
    assert len(regrets) == 12
    assert regrets[0] == 1
    assert play(task, tables) == regrets
