"""A night in which a scripted model proposes changes to a real training script: good, bad, broken and cheating ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.scripted_model import Fault, ScriptedModel
from nightlab.agents.code_space import accepted, code_files, study_of
from nightlab.configs.code import is_idea
from nightlab.configs.loading import load_study
from nightlab.graph import nodes
from nightlab.graph.opening import locate
from nightlab.graph.recovery import recover
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import CallState, Idea, IdeaState, RunState, StudyStatus, VerdictKind
from nightlab.night import run_night
from nightlab.report.load import load_report
from nightlab.worktrees.git import Git
from tests.code_task import ANSWERS, Proposer, make_code_repository
from tests.face.calling import call
from tests.task import commit_all, git

LAB_FILES = {"EXPERIMENT.md", "experiment.json", "RESULT.json", "params.json"}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished night; tests of this module only look at it."""
    with ScriptedModel(Proposer()) as server:
        file = make_code_repository(tmp_path_factory.mktemp("code") / "repo", server.base_url)
        assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    return file


@pytest.fixture
def ledger(night: Path) -> Iterator[Ledger]:
    with Ledger.open(locate(load_study(night)).paths.ledger) as opened:
        yield opened


def by_name(ledger: Ledger) -> dict[str, Idea]:
    return {idea.name: idea for idea in reversed(ledger.ideas())}


def test_the_good_idea_is_kept_on_fresh_seeds(ledger: Ledger) -> None:
    kept = [ledger.experiment(n) for n, v in ledger.verdicts().items() if v.kind is VerdictKind.KEEP]
    assert kept and all(experiment.parameters["code/square-feature"] is True for experiment in kept)
    fresh = [run for run in ledger.runs(kept[0].number) if run.phase == "confirm"]
    assert len(fresh) >= 2 and all(run.state is RunState.REVIEWED for run in fresh)


def test_the_harmful_one_is_discarded_after_its_answer_was_sent_back_once(ledger: Ledger) -> None:
    idea = by_name(ledger)["lazy-steps"]
    assert (idea.state, idea.rounds) == (IdeaState.ACCEPTED, 1)
    tried = [e for e in ledger.experiments() if "code/lazy-steps" in e.parameters]
    assert tried and {ledger.verdicts()[e.number].label for e in tried} <= {"worse", "no worthwhile gain"}


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("sharper-loss", "metric"),
        ("fewer-points", "frozen"),
        ("lucky-seed", "seed-only"),
        ("quadratic-term", "near-duplicate"),
    ],
)
def test_cheats_and_repeats_are_refused_for_the_right_reason_and_never_run(
    ledger: Ledger, name: str, cause: str
) -> None:
    idea = by_name(ledger)[name]
    assert (idea.state, idea.cause) == (IdeaState.REFUSED, cause)
    assert not any(f"code/{name}" in e.parameters for e in ledger.experiments())


def test_each_branch_holds_the_configuration_and_its_ideas_edits_and_nothing_else(night: Path, ledger: Ledger) -> None:
    ideas = accepted(ledger)
    for experiment in ledger.experiments():
        code = code_files(Git(night.parent), experiment, ideas)
        changed = set(git(night.parent, "diff", "--name-only", "main", experiment.branch).splitlines())
        assert changed - LAB_FILES == set(code)
        for path, text in code.items():
            assert git(night.parent, "show", f"{experiment.branch}:{path}") == text.rstrip("\n")
            assert "````diff" in git(night.parent, "show", f"{experiment.branch}:EXPERIMENT.md")
        assert "code/" not in git(night.parent, "show", f"{experiment.branch}:params.json")


def test_the_users_checkout_is_untouched(night: Path) -> None:
    assert git(night.parent, "status", "--porcelain") == ""
    assert len(git(night.parent, "worktree", "list").splitlines()) == 1


def test_the_prompts_keep_their_bound_and_tell_what_was_tried(ledger: Ledger, night: Path) -> None:
    asked = [call for call in ledger.calls() if call.purpose == "idea"]
    assert {call.state for call in asked} == {CallState.SETTLED}
    assert max(call.input_tokens for call in asked) < load_study(night).study.brain.max_prompt_tokens


def test_report_and_table_name_the_ideas_and_what_became_simpler(night: Path, ledger: Ledger) -> None:
    study, paths = study_of(ledger), locate(load_study(night)).paths
    report = load_report(ledger, study, paths)
    rows = {row.name: row for row in reversed(report.ideas)}
    assert rows["square-feature"].in_winner and rows["square-feature"].size == "+1 −1"
    assert rows["no-clipping"].size == "+0 −10"
    text = paths.final_report_md.read_text()
    assert "## Ideas for the code" in text and "refused: near-duplicate" in text
    told = call(night.parent, "ideas")
    assert told.status == 0 and "square-feature" in told.out and "near-duplicate" in told.out
    assert call(night.parent, "show", "1").status == 0


def test_a_finished_night_asks_for_nothing_more(night: Path, ledger: Ledger) -> None:
    before = len(ledger.calls())
    assert run_night(night, say=lambda _: None).already_finished
    assert len(ledger.calls()) == before


def test_a_lost_ledger_gets_the_applied_ideas_back_from_the_branches(
    night: Path, ledger: Ledger, tmp_path: Path
) -> None:
    shutil.copytree(night.parent, tmp_path / "repo", symlinks=True)
    place = locate(load_study(tmp_path / "repo" / "study.yaml"))
    for path in (place.paths.ledger, *place.paths.backups):
        path.unlink()
    assert recover(place, load_study(place.file).study) is not None
    used = {name.removeprefix("code/") for e in ledger.experiments() for name in e.parameters if is_idea(name)}
    with Ledger.open(place.paths.ledger) as rebuilt:
        assert {idea.name: idea.edits for idea in accepted(rebuilt)} == {
            idea.name: idea.edits for idea in accepted(ledger) if idea.name in used
        }
        assert load_report(rebuilt, study_of(rebuilt), place.paths).winner is not None


def test_killed_again_and_again_no_idea_is_lost_or_taken_twice(tmp_path: Path) -> None:
    few = [ANSWERS[0], ANSWERS[1], ANSWERS[4], ANSWERS[6]]
    search = {"baseline_replicates": 2, "confirm_seeds": 2, "confirm_seeds_most": 2, "confirm_candidates": 1}
    counter = tmp_path / "count"
    with ScriptedModel(Proposer(few)) as server:
        changes = {"budget": {"runs": 12}, "search": search, "space": {}}
        file = make_code_repository(tmp_path / "repo", server.base_url, **changes)
        command = [sys.executable, "-m", "tests.graph.killing", str(file), "22"]
        environment = {**os.environ, "RUN_COUNTER": str(counter)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[-1]) >= 6, "killed often enough to mean something"
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        ideas, runs, experiments = ledger.ideas(), ledger.runs(), ledger.experiments()
        assert ledger.study_row().status is StudyStatus.FINISHED
        calls = [call for call in ledger.calls() if call.state is CallState.SETTLED and call.purpose == "idea"]
        answered = Counter((call.key, call.prompt_hash) for call in calls)
        names = [idea.name for idea in accepted(ledger)]
        told = [event.text for event in ledger.events() if event.kind == "idea"]
    assert max(answered.values()) == 1, "what was answered is not asked again"
    assert [idea.number for idea in ideas] == list(range(1, len(ideas) + 1))
    assert len(set(names)) == len(names) and "square-feature" in names
    assert len(told) == len(set(told)) == sum(idea.state is not IdeaState.ASKING for idea in ideas)
    used = {name.removeprefix("code/") for e in experiments for name in e.parameters if is_idea(name)}
    assert used <= set(names)
    assert {run.state for run in runs} == {RunState.REVIEWED} and len(runs) <= 12
    assert git(file.parent, "status", "--porcelain") == ""
    assert len(git(file.parent, "worktree", "list").splitlines()) == 1


def test_a_model_that_never_answers_holds_nothing_back_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "PATIENCE_SECONDS", 1.0)
    with ScriptedModel(lambda _request: Fault("hang")) as server:
        # From a rate that is far too low there is something to confirm.
        parameters, space = {"lr": 0.002, "steps": 400}, {"lr": {"levels": [0.05], "scale": "log"}}
        changes = {"budget": {"runs": 14}, "parameters": parameters, "space": space}
        file = make_code_repository(tmp_path / "repo", server.base_url, **changes)
        (file.parent / "params.json").write_text(json.dumps(parameters))
        commit_all(file.parent, "a lower rate")
        assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
        with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
            assert not [call for call in ledger.calls() if call.state is CallState.SETTLED]
            kept = [n for n, verdict in ledger.verdicts().items() if verdict.kind is VerdictKind.KEEP]
    assert kept == [1]
    # The server is gone, and with it what the threads have waited for: they add nothing to a story that has ended.
    for thread in threading.enumerate():
        if thread.name.startswith("nightlab-"):
            thread.join(60.0)
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        assert ledger.events()[-1].kind == "finished"
