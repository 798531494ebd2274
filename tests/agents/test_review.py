"""Concluding an experiment: verdict, lesson, card; broken off at each step and gone on with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.agents.review import conclude_experiment, settled_experiments, write_lesson
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import Experiment, ExperimentState, RunState, Verdict, VerdictKind
from nightlab.search.belief import judge_all
from tests.agents.lab import executed, new_lab, opened, planned
from tests.task import git


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose study has a measured baseline and three measured changes, none of them concluded."""
    folder = tmp_path_factory.mktemp("review")
    with new_lab(folder) as lab:
        executed(lab, *(planned(lab, {}, seed) for seed in range(2)))
        executed(lab, planned(lab, {}, 2), planned(lab, {"lr": 0.1}))
        executed(lab, planned(lab, {"width": 64}), planned(lab, {"crash": "yes"}))
        lab.worktrees.remove_all()
    return folder / "repo"


@pytest.fixture
def lab(measured: Path, tmp_path: Path) -> Iterator[Lab]:
    """A copy of it, opened; its git worktrees were removed, so that nothing in it points to the original."""
    shutil.copytree(measured, tmp_path / "repo", symlinks=True)
    with opened(tmp_path / "repo" / "study.yaml") as lab:
        yield lab


def verdict_of(lab: Lab, number: int) -> Verdict | None:
    return judge_all(lab.study, history_of(lab.ledger)).get(number)


def conclude(lab: Lab, number: int) -> Experiment:
    conclude_experiment(lab, lab.ledger.experiment(number), verdict_of(lab, number))
    return lab.ledger.experiment(number)


def commits(lab: Lab, number: int) -> int:
    experiment = lab.ledger.experiment(number)
    return int(git(lab.paths.root, "rev-list", "--count", f"{lab.base_commit}..{experiment.branch}"))


def test_a_settled_experiment_gets_verdict_lesson_and_card(lab: Lab) -> None:
    assert [e.number for e in settled_experiments(lab)] == [0, 1, 2, 3]
    worse = conclude(lab, 1)
    assert worse.state is ExperimentState.DISCARDED and worse.card_commit is not None
    card = json.loads(git(lab.paths.root, "show", f"{worse.branch}:RESULT.json"))
    assert card["verdict"]["label"] == "worse" and card["runs"][0]["observation"]["values"]["val_loss"] > 2.2
    (lesson,) = read(lab.lessons_path).lessons
    assert (lesson.verdict, lesson.parameters, lesson.evidence["commit"]) == (
        VerdictKind.DISCARD,
        {"lr": 0.1},
        worse.commit,
    )
    assert [e.number for e in settled_experiments(lab)] == [0, 2, 3]
    assert not lab.paths.worktree(1).exists()


def test_the_baseline_has_a_card_and_neither_verdict_nor_lesson(lab: Lab) -> None:
    baseline = conclude(lab, 0)
    assert baseline.state is ExperimentState.REVIEWED and baseline.card_commit is not None
    assert lab.ledger.verdict(0) is None and read(lab.lessons_path).lessons == ()


def test_a_failed_experiment_tells_its_cause(lab: Lab) -> None:
    assert conclude(lab, 3).state is ExperimentState.FAILED
    (lesson,) = read(lab.lessons_path).lessons
    assert (lesson.verdict, lesson.cause) == (VerdictKind.FAILED, "exit-status")
    assert "boom" in git(lab.paths.root, "show", f"{lab.ledger.experiment(3).branch}:EXPERIMENT.md")


def test_concluding_again_changes_nothing(lab: Lab) -> None:
    before = conclude(lab, 1)
    story, lessons, tip = lab.ledger.events(), lab.lessons_path.read_bytes(), commits(lab, 1)
    assert conclude(lab, 1) == before
    assert (lab.ledger.events(), lab.lessons_path.read_bytes(), commits(lab, 1)) == (story, lessons, tip)


@pytest.mark.parametrize("done", ["verdict", "lesson", "card"])
def test_broken_off_after_each_step_the_rest_is_done_once(lab: Lab, done: str) -> None:
    finished = conclude(lab, 1)
    story, tip = len(lab.ledger.events()), commits(lab, 1)
    # As a kill after this step leaves it: the ledger as of the verdict, the effects up to the step.
    lab.ledger.update_experiment(1, state=ExperimentState.MEASURED, card_commit=None)
    if done == "verdict":
        lab.lessons_path.unlink()
    if done != "card":
        git(lab.paths.root, "branch", "-f", finished.branch, str(finished.commit))
    assert [e.number for e in settled_experiments(lab)] == [0, 1, 2, 3]
    again = conclude(lab, 1)
    assert again.state is finished.state and again.card_commit is not None
    assert commits(lab, 1) == tip and len(lab.ledger.events()) == story
    assert len(read(lab.lessons_path).lessons) == 1


def test_a_new_verdict_reopens_until_lesson_and_card_say_it(lab: Lab) -> None:
    conclude(lab, 2)
    first = verdict_of(lab, 2)
    assert first is not None and first.label == "promising"
    news = first.model_copy(update={"kind": VerdictKind.DISCARD, "label": "worse", "reason": "second thoughts"})
    conclude_experiment(lab, lab.ledger.experiment(2), news)
    lessons = read(lab.lessons_path).lessons
    assert [lesson.label for lesson in lessons] == ["promising", "worse"]
    assert lessons[1].supersedes == [lessons[0].id]
    assert "second thoughts" in git(lab.paths.root, "show", f"{lab.ledger.experiment(2).branch}:EXPERIMENT.md")
    assert [v.label for v in lab.ledger.verdict_history(2)] == ["promising", "worse"]
    write_lesson(lab, lab.ledger.experiment(2), news)
    assert len(read(lab.lessons_path).lessons) == 2


def test_an_interval_that_breathes_is_no_news(lab: Lab) -> None:
    conclude(lab, 2)
    held = lab.ledger.verdict(2)
    assert held is not None and held.effect is not None
    wider = held.effect.model_copy(update={"low": held.effect.delta - 1, "baseline_runs": 9})
    tip = commits(lab, 2)
    conclude_experiment(lab, lab.ledger.experiment(2), held.model_copy(update={"effect": wider}))
    assert lab.ledger.verdict(2) == held and commits(lab, 2) == tip


def test_further_runs_open_a_concluded_experiment_again(lab: Lab) -> None:
    conclude(lab, 2)
    (run,) = executed(lab, planned(lab, {"width": 64}, seed=1))
    assert run.state is RunState.REVIEWED
    assert 2 in [e.number for e in settled_experiments(lab)]
    conclude(lab, 2)
    card = json.loads(git(lab.paths.root, "show", f"{lab.ledger.experiment(2).branch}:RESULT.json"))
    assert [entry["run"]["seed"] for entry in card["runs"]] == [0, 1]
    assert 2 not in [e.number for e in settled_experiments(lab)]


def test_an_experiment_of_which_nothing_was_found_out_is_cancelled(lab: Lab) -> None:
    run = planned(lab, {"color": "blue"})
    lab.ledger.update_run(run.key, state=RunState.CANCELLED)
    assert conclude(lab, run.number).state is ExperimentState.CANCELLED
    assert run.number not in [e.number for e in settled_experiments(lab)]
    assert lab.ledger.verdict(run.number) is None
    again = planned(lab, {"color": "blue"}, retry=True)
    assert executed(lab, again)[0].state is RunState.REVIEWED
    assert conclude(lab, run.number).state is not ExperimentState.CANCELLED


def test_pending_runs_keep_an_experiment_open(lab: Lab) -> None:
    planned(lab, {"lr": 0.1}, seed=1)
    assert 1 not in [e.number for e in settled_experiments(lab)]


def test_the_lesson_of_a_move_around_another_configuration_tells_of_that_variable(lab: Lab) -> None:
    executed(lab, planned(lab, {"width": 64, "lr": 0.1}))
    number = lab.ledger.experiments()[-1].number
    conclude(lab, number)
    lesson = next(one for one in read(lab.lessons_path).lessons if one.evidence["experiment"] == f"{number:02d}")
    assert len(lesson.parameters) == 1 and lesson.parameters.items() <= {"width": 64, "lr": 0.1}.items()
    assert lesson.baseline.keys() == lesson.parameters.keys()
    assert lesson.effect is not None and lesson.verdict is not VerdictKind.KEEP
    experiment = lab.ledger.experiment(number)
    card = git(lab.paths.root, "show", f"{experiment.branch}:EXPERIMENT.md")
    assert "Against experiment" in card and "from which it differs in one variable only" in card
