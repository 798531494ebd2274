"""Whole nights on real git, real SQLite and real processes."""

from __future__ import annotations

import csv
import json
import subprocess
from pathlib import Path

import pytest

from nightlab.configs.loading import load_study
from nightlab.errors import ConfigError
from nightlab.graph.opening import locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import ExperimentState, RunState, StudyStatus, VerdictKind
from nightlab.night import run_night
from tests.task import commit_all, git, make_repository, write_study


def quiet(_: str) -> None:
    return None


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every run of the module's night adds a line here."""
    return tmp_path_factory.mktemp("counter") / "runs"


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory, counter: Path) -> Path:
    """One finished night; tests of this module only look at it."""
    file = make_repository(tmp_path_factory.mktemp("night") / "repo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RUN_COUNTER", str(counter))
        outcome = run_night(file, say=quiet)
    assert outcome.status is StudyStatus.FINISHED and not outcome.already_finished
    return file


def ledger_of(file: Path) -> Ledger:
    return Ledger.open(locate(load_study(file)).paths.ledger)


def test_the_winner_is_the_true_best_and_confirmed_on_fresh_seeds(night: Path) -> None:
    with ledger_of(night) as ledger:
        verdicts = ledger.verdicts()
        kept = [n for n, v in verdicts.items() if v.kind is VerdictKind.KEEP]
        assert kept
        best = min(kept, key=lambda n: -verdicts[n].effect.delta)  # type: ignore[union-attr]
        assert ledger.experiment(best).changed == {"lr": 0.01, "width": 64}
        effect = verdicts[best].effect
        assert effect is not None and effect.low is not None
        assert effect.runs >= 3 and effect.paired
        assert effect.low > 0.03 and abs(effect.delta - 0.35) < 0.05
        explored = {r.seed for r in ledger.runs() if r.phase != "confirm"}
        confirming = {r.seed for r in ledger.runs(best) if r.phase == "confirm"}
        assert len(confirming) >= 3 and not confirming & explored


def test_useless_harmful_and_crashing_changes_are_called_what_they_are(night: Path) -> None:
    with ledger_of(night) as ledger:
        by_change = {json.dumps(e.changed): e.number for e in ledger.experiments()}
        verdicts = ledger.verdicts()
        assert verdicts[by_change['{"lr": 0.1}']].label == "worse"
        assert verdicts[by_change['{"crash": "yes"}']].kind is VerdictKind.FAILED
        assert verdicts[by_change['{"color": "blue"}']].kind is not VerdictKind.KEEP
        crashed = ledger.runs(by_change['{"crash": "yes"}'])
        assert {r.cause for r in crashed} == {"exit-status"} and "boom" in crashed[0].detail


def test_each_experiment_has_its_branch_with_configuration_and_card(night: Path) -> None:
    with ledger_of(night) as ledger:
        for experiment in ledger.experiments():
            files = git(night.parent, "ls-tree", "--name-only", experiment.branch).splitlines()
            assert {"EXPERIMENT.md", "experiment.json", "RESULT.json", "params.json"} <= set(files)
            params = json.loads(git(night.parent, "show", f"{experiment.branch}:params.json"))
            assert params == experiment.parameters
            changed = git(night.parent, "diff", "--name-only", "main", experiment.branch).splitlines()
            expected = {"EXPERIMENT.md", "experiment.json", "RESULT.json"} | (
                {"params.json"} if experiment.changed else set()
            )
            assert set(changed) == expected
            assert experiment.branch.startswith(f"experiment-{experiment.number:02d}-toy-pretrain-")
            assert experiment.state in (
                ExperimentState.KEPT,
                ExperimentState.DISCARDED,
                ExperimentState.INCONCLUSIVE,
                ExperimentState.FAILED,
                ExperimentState.REVIEWED,
            )


def test_the_users_checkout_is_untouched_and_no_tree_is_left(night: Path) -> None:
    root = night.parent
    assert git(root, "status", "--porcelain") == ""
    assert git(root, "rev-parse", "--abbrev-ref", "HEAD") == "main"
    assert len(git(root, "worktree", "list").splitlines()) == 1
    assert git(root, "log", "--oneline", "main").count("\n") == 0


def test_documents_table_report_and_lessons_are_there(night: Path) -> None:
    paths = locate(load_study(night)).paths
    assert "seven dimensions" in paths.analysis_report.read_text()
    assert "`lr`" in paths.improve_guide.read_text()
    assert "<html" in paths.final_report_html.read_text()
    assert "nats" in paths.final_report_md.read_text()
    with paths.results_csv.open(newline="") as table, ledger_of(night) as ledger:
        rows = list(csv.DictReader(table))
        assert len(rows) == len(ledger.experiments())
        lessons = read(paths.lessons).lessons
        assert {lesson.evidence["experiment"] for lesson in lessons} == {
            f"{e.number:02d}" for e in ledger.experiments() if e.number
        }


def test_a_second_run_returns_at_once(night: Path) -> None:
    with ledger_of(night) as ledger:
        before = (len(ledger.runs()), len(ledger.events()))
    outcome = run_night(night, say=quiet)
    assert outcome.already_finished
    with ledger_of(night) as ledger:
        assert (len(ledger.runs()), len(ledger.events())) == before


def test_a_broken_baseline_ends_the_night_honestly(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo")
    (file.parent / "train.py").write_text(
        "import sys, json\np = json.load(open(sys.argv[2]))\n"
        "print('val_loss: 1.0'); print('memory_mb: 1')\nsys.exit(0 if p['steps'] == 1 else 'broken at full length')\n"
    )
    commit_all(file.parent, "broken")
    outcome = run_night(file, say=quiet)
    assert outcome.status is StudyStatus.FINISHED
    with ledger_of(file) as ledger:
        assert {r.number for r in ledger.runs()} == {0}
        assert {r.state for r in ledger.runs()} == {RunState.FAILED}
        assert "broken at full length" in ledger.runs()[0].detail


def test_a_run_that_tampers_with_the_evaluation_is_rejected(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", budget={"runs": 14})
    train = (file.parent / "train.py").read_text()
    (file.parent / "train.py").write_text(
        train + "if p['color'] == 'blue':\n    open('prepare.py', 'w').write('# easier evaluation')\n"
    )
    commit_all(file.parent, "tamper")
    run_night(file, say=quiet)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        assert ledger.verdicts()[blue.number].kind is VerdictKind.REJECTED
        assert "prepare.py" in ledger.runs(blue.number)[0].detail


def test_the_budget_is_kept_to_the_run_and_more_of_it_goes_on(tmp_path: Path) -> None:
    file = make_repository(tmp_path / "repo", budget={"runs": 16})
    run_night(file, say=quiet)
    with ledger_of(file) as ledger:
        first = len(ledger.runs())
        assert first <= 16
        assert any(r.phase == "confirm" for r in ledger.runs())
    write_study(file.parent, budget={"runs": 16}, scenario="other")
    with pytest.raises(ConfigError, match="scenario: was changed after the study began"):
        run_night(file, say=quiet)
    write_study(file.parent, budget={"runs": 22})
    outcome = run_night(file, say=quiet)
    assert outcome.status is StudyStatus.FINISHED and not outcome.already_finished
    with ledger_of(file) as ledger:
        assert first < len(ledger.runs()) <= 22


def test_nothing_was_run_twice(night: Path, counter: Path) -> None:
    lines = counter.read_text().splitlines()
    with ledger_of(night) as ledger:
        good = [r for r in ledger.runs() if r.state is RunState.REVIEWED]
    # The dry run counts itself once as well.
    assert len(lines) == len(good) + 1
    assert (
        subprocess.run(["git", "fsck", "--strict"], cwd=night.parent, capture_output=True, check=False).returncode == 0
    )
