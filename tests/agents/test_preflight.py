"""What the preflight sees without starting a night."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nightlab.agents.preflight import Site, dry_run, fewest_runs, static_faults, time_faults, time_note
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


def test_a_parameter_file_that_is_broken_is_named(file: Path) -> None:
    (file.parent / "params.json").write_text("{broken")
    commit_all(file.parent, "broken")
    with pytest.raises(ConfigError, match=r"study\.yaml: params\.json: "):
        dry_run(site_of(file), git(file.parent, "rev-parse", "HEAD"))
    assert not (file.parent / ".nightlab").exists()


BRANCHES = [
    ("experiment-00-toy-pretrain-baseline", True),
    ("experiment-07-toy-pretrain-lr-0-01", True),
    ("experiment-12-toy-pretrain-combine-3", True),
    ("experiment-03-toy-pretrain-lora-lr-0-01", False),
    ("experiment-00-toy-sft-baseline", False),
    ("experiment-lr", False),
]


@pytest.mark.parametrize(("branch", "in_the_way"), BRANCHES)
def test_branches_that_this_study_would_need(branch: str, in_the_way: bool, file: Path) -> None:
    git(file.parent, "checkout", "-q", "-b", branch)
    (file.parent / "notes.txt").write_text("mine")
    commit_all(file.parent, "my own work")
    git(file.parent, "checkout", "-q", "main")
    found = faults(site_of(file))
    if in_the_way:
        (fault,) = found
        assert fault.startswith(f"{file}: scenario: branch {branch} holds the work of somebody else (write another")
    else:
        assert found == []


def test_a_branch_without_work_of_its_own_is_free(file: Path) -> None:
    git(file.parent, "branch", "experiment-00-toy-pretrain-baseline")
    assert faults(site_of(file)) == []


def test_a_budget_that_covers_no_plan(file: Path) -> None:
    need = fewest_runs(Study.model_validate(study_data()))
    assert faults(site_of(file, budget={"runs": need})) == []
    assert "the least is 10" in faults(site_of(file, budget={"runs": need - 1}))[0]


def test_time_is_held_against_the_length_of_the_dry_run(file: Path) -> None:
    site = site_of(file, budget={"duration": "1h"})
    assert time_faults(site, 1800.0) == []
    (fault,) = time_faults(site, 1801.0)
    assert fault.key == "budget.duration" and "3 runs of the baseline on 2 slots" in fault.message
    assert "covers about 4 runs" in time_note(site, 1800.0)
    assert time_note(site, 600.0) == ""
    soon = (utc_now() + timedelta(minutes=10)).isoformat()
    (fault,) = time_faults(site_of(file, budget={"until": soon}), 400.0)
    assert fault.key == "budget.until"
    assert time_faults(site_of(file), 1e9) == []
