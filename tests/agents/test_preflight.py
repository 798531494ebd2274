"""What the preflight sees without starting a night."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.forecast import pace_faults, plan_line, time_note
from nightlab.agents.preflight import Site, dry_run, fewest_runs, static_faults
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.errors import ConfigError
from nightlab.knowledge.catalog import load_catalog
from nightlab.knowledge.records import utc_now
from nightlab.tools.backends.local import LocalBackend
from nightlab.tools.launchers import launcher_for
from nightlab.worktrees.git import Git
from nightlab.worktrees.trees import Worktrees
from tests.task import commit_all, git, make_repository, study_data


def site_of(file: Path, **changes: Any) -> Site:
    study = Study.model_validate(study_data(**changes))
    paths = StudyPaths(file.parent, study.study)
    return Site(
        study, file, paths, Git(file.parent), LocalBackend(study.backend), launcher_for(study), load_catalog(None)
    )


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def faults(site: Site) -> list[str]:
    return [str(fault) for fault in static_faults(site, site.git.head(), allow_dirty=False)]


def test_a_sound_study_has_no_faults(file: Path) -> None:
    assert faults(site_of(file)) == []


def test_the_study_file_itself_may_be_uncommitted(file: Path) -> None:
    file.write_text(file.read_text() + "# a thought\n")
    (file.parent / "second.yaml").write_text("")
    (fault,) = faults(site_of(file))
    assert fault.startswith(f"{file.parent}: the working tree has uncommitted changes: second.yaml (commit or stash")


def test_an_input_that_git_holds_is_no_input(file: Path) -> None:
    (fault,) = faults(site_of(file, inputs=["prepare.py"]))
    assert fault.startswith(f"{file}: inputs: 'prepare.py' is tracked by git")


def test_the_dry_run_tells_what_it_saw_and_what_it_missed(file: Path) -> None:
    seen = dry_run(site_of(file, metrics={"speed": {}}), git(file.parent, "rev-parse", "HEAD"))
    assert seen.readings["memory_mb"].value == 12.5 and seen.missing == ("speed",)


def test_a_dry_run_beside_another_study_takes_only_its_own_away(file: Path) -> None:
    other = StudyPaths(file.parent, "other")
    tree = Worktrees(other).ensure_replica_tree(1, git(file.parent, "rev-parse", "HEAD"), "seed-1")
    dry_run(site_of(file), git(file.parent, "rev-parse", "HEAD"))
    assert tree.exists() and other.git_lock.exists()
    assert "/.nightlab/" in (file.parent / ".git" / "info" / "exclude").read_text()
    assert [path.name for path in other.worktrees.parent.iterdir() if any(path.iterdir())] == ["other"]


def test_what_a_killed_dry_run_left_half_removed_is_cleared_away(file: Path) -> None:
    site, head = site_of(file), git(file.parent, "rev-parse", "HEAD")
    trees, gone = Worktrees(site.paths), 2**22 + 1
    # As a tree is removed: its link first, then git's record of it bit by bit, its files last.
    for last in (".git", "HEAD", "gitdir", "commondir", "record"):
        tree = trees.ensure_replica_tree(0, head, f"dry-run-{gone}")
        record = Git(tree).git_dir()
        (tree / ".git").unlink()
        if last == "record":
            shutil.rmtree(record)
        else:
            (tree / ".git" if last == ".git" else record / last).unlink(missing_ok=True)
        dry_run(site, head)
        assert list(site.paths.worktrees.iterdir()) == [], last
        assert len(git(file.parent, "worktree", "list").splitlines()) == 1, last


def test_a_parameter_file_that_is_broken_is_named(file: Path) -> None:
    (file.parent / "params.json").write_text("{broken")
    commit_all(file.parent, "broken")
    with pytest.raises(ConfigError, match=r"study\.yaml: params\.json: "):
        dry_run(site_of(file), git(file.parent, "rev-parse", "HEAD"))
    assert not (file.parent / ".nightlab").exists()


def test_a_budget_that_covers_no_plan(file: Path) -> None:
    need = fewest_runs(Study.model_validate(study_data()))
    assert faults(site_of(file, budget={"runs": need})) == []
    assert "the least is 10" in faults(site_of(file, budget={"runs": need - 1}))[0]
    (told,) = faults(site_of(file, budget={"runs": 1}, search={"confirm": False}))
    assert "the least is 4: 3 for the baseline, 1 change (" in told


def test_time_is_held_against_the_length_of_the_dry_run(file: Path) -> None:
    site = site_of(file, budget={"duration": "1h"})
    assert pace_faults(site, 1800.0) == []
    (fault,) = pace_faults(site, 1801.0)
    assert fault.key == "budget.duration" and "3 runs of the baseline on 2 slots" in fault.message
    assert "covers about 4 runs" in time_note(site, 1800.0)
    assert time_note(site, 600.0) == ""
    soon = (utc_now() + timedelta(minutes=10)).isoformat()
    (fault,) = pace_faults(site_of(file, budget={"until": soon}), 400.0)
    assert fault.key == "budget.until"
    assert pace_faults(site_of(file), 1e9) == []


def test_money_and_gpu_hours_are_held_against_the_smallest_plan(file: Path) -> None:
    prices, backend = {"gpu_hour_usd": 2.0}, {"slots": 2, "gpus": [0, 1]}
    site = site_of(file, budget={"cost_usd": 20.0, "gpu_hours": 10.0}, prices=prices, backend=backend)
    assert pace_faults(site, 3600.0) == []
    gpu, cost = pace_faults(site, 3700.0)
    assert (gpu.key, cost.key) == ("budget.gpu_hours", "budget.cost_usd")
    assert "the 10 runs of the smallest take 20.6 US dollars, 3700.0 s each" in cost.message


def test_the_plan_is_told_in_one_line_as_a_range(file: Path) -> None:
    prices, backend = {"slot_hour_usd": 2.0}, {"slots": 2}
    site = site_of(file, budget={"cost_usd": 40.0, "duration": "20h"}, prices=prices, backend=backend)
    line = plan_line(site, 3600.0)
    assert line.startswith(
        "10 to 20 runs, 5 hours to 10 hours (budget 20 hours), 20.00 to 40.00 US dollars (budget 40.00)"
    )
    assert line.endswith("if every run takes the dry run's 3600.0 s, which launcher.dry_run made short: expect more")
    few = site_of(file, budget={"experiments": 4})
    assert plan_line(few, 60.0).startswith("10 to 35 runs, 5 minutes to 18 minutes; ")
