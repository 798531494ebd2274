"""Asking for ideas: what is sent, what is checked, what is written, and what a stop or a dead model leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.scripted_model import Fault, Script, ScriptedModel
from nightlab.agents.audit import check_diff
from nightlab.agents.code_space import accepted, code_faults, study_of
from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.agents.idea_checks import check_edits, checked
from nightlab.agents.idea_prompt import idea_prompt
from nightlab.agents.ideas import ASKED_PER_IDEA, Ideas, may_ask, think
from nightlab.agents.model_calls import reserve_call, settle_call
from nightlab.agents.training import prepare
from nightlab.configs.study import Scalar
from nightlab.errors import ModelError
from nightlab.knowledge.records import Edit, Idea, IdeaState, RunState
from nightlab.worktrees.git import Git
from nightlab.worktrees.trees import SCRATCH
from tests.agents.lab import executed, opened, planned
from tests.code_task import LAZY, SQUARE, Proposer, answer, make_code_repository
from tests.task import commit_all, git

FEATURES = "    return [1.0, x]\n"


@contextmanager
def lab_with(folder: Path, script: Script, **changes: Any) -> Iterator[tuple[Lab, ScriptedModel]]:
    with ScriptedModel(script) as server:
        file = make_code_repository(folder / "repo", server.base_url, **changes)
        with opened(file) as lab:
            yield lab, server


def proposing(*rounds: list[dict[str, Any]]) -> Proposer:
    return Proposer([list(one) for one in rounds])


def asked(lab: Lab) -> Idea:
    idea = think(lab, lambda: False)
    assert idea is not None and lab.ideas is not None
    lab.ideas.take(lab)
    return idea


def test_an_accepted_idea_is_a_parameter_of_the_study_and_code_on_the_branch(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        before = planned(lab, {"lr": 0.1})
        idea = asked(lab)
        assert (idea.state, idea.name, idea.model) == (IdeaState.ACCEPTED, "square-feature", "scripted")
        assert lab.study.parameters["code/square-feature"] is False
        assert study_of(lab.ledger).parameters == lab.study.parameters
        assert "code/square-feature" not in lab.ledger.study_row().study.parameters
        baseline, run = executed(lab, planned(lab, {}), planned(lab, {"code/square-feature": True}))
        assert (baseline.state, run.state) == (RunState.REVIEWED, RunState.REVIEWED)
        values = [lab.ledger.observation(one.key).values["val_loss"] for one in (baseline, run)]  # type: ignore[union-attr]
        assert values[1] < values[0] / 10
        # What was planned before the idea is the same configuration still.
        assert planned(lab, {"lr": 0.1}).key == before.key
        trials = {trial.number: trial.parameters for trial in history_of(lab.ledger).trials}
        assert trials[before.number]["code/square-feature"] is False
        assert trials[run.number]["code/square-feature"] is True


def test_two_ideas_and_a_setting_together_and_replicas_carry_the_code(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE], [answer("lazy steps", LAZY)])) as (lab, _):
        first, second = asked(lab), asked(lab)
        assert second.conflicts == [] and {idea.name for idea in accepted(lab.ledger)} == {first.name, second.name}
        both: dict[str, Scalar] = {"code/square-feature": True, "code/lazy-steps": True, "lr": 0.1}
        runs = [planned(lab, both, seed) for seed in (0, 1)]
        assert [run.state for run in executed(lab, *runs)] == [RunState.REVIEWED] * 2
        for run in runs:
            job = lab.ledger.job(run.key)
            assert job is not None
            text = (Path(job.worktree) / "train.py").read_text()
            assert "x * x" in text and "// 20" in text


def test_ideas_that_cannot_stand_together_are_forbidden_together_and_fail_as_a_patch(tmp_path: Path) -> None:
    other = answer("cube", (FEATURES, "    return [1.0, x, x ** 3]\n"))
    with lab_with(tmp_path, proposing([SQUARE], [other])) as (lab, _):
        asked(lab)
        assert asked(lab).conflicts == ["square-feature"]
        both = {"code/square-feature": True, "code/cube": True}
        assert history_of(lab.ledger).forbidden == (both,)
        run = executed_at_most(lab, both)
        assert (run.state, run.cause) == (RunState.FAILED, "patch")
        assert "idea cube" in run.detail and run.next_step == "give_up"


def executed_at_most(lab: Lab, changed: dict[str, Any]) -> Any:
    from nightlab.agents.training import training_agent

    run = planned(lab, changed)
    training_agent.invoke({"keys": [run.key]}, context=lab)
    return lab.ledger.run(run.key)


def test_a_branch_with_other_code_than_its_ideas_is_not_believed(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        asked(lab)
        run = planned(lab, {"code/square-feature": True})
        tree = prepare(lab, run)
        experiment = lab.ledger.experiment(run.number)
        assert check_diff(lab, experiment, Git(tree).head()) is None
        for path, text in (("train.py", "print('val_loss: 0')\n"), ("evaluation.py", "x = 1\n")):
            (tree / path).write_text(text)
            git(tree, "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "more")
            told = check_diff(lab, experiment, Git(tree).head())
            assert told is not None and path in told
        # Without an idea no code may change at all.
        plain = planned(lab, {"lr": 0.1})
        (prepare(lab, plain) / "train.py").write_text("print('val_loss: 0')\n")
        git(prepare(lab, plain), "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "more")
        told = check_diff(lab, lab.ledger.experiment(plain.number), Git(prepare(lab, plain)).head())
        assert told == "the branch changes files beyond the configuration: train.py"


def test_what_fails_is_sent_back_twice_with_the_reason_and_then_refused(tmp_path: Path) -> None:
    wrong = [answer(f"try {n}", (f"nothing {n}", "x")) for n in range(4)]
    sent: list[str] = []

    def script(request: dict[str, Any]) -> dict[str, Any]:
        sent.append(str(request["messages"][-1]["content"]))
        return wrong[len(sent) - 1]

    with lab_with(tmp_path, script) as (lab, _):
        idea = asked(lab)
        assert (idea.state, idea.cause, idea.rounds) == (IdeaState.REFUSED, "not-found", 2)
        assert len(sent) == 3 and "nothing 0" in sent[1] and "is not in the file" in sent[1]
        keys = [call.key for call in lab.ledger.calls()]
        assert keys == ["idea/1", "idea/1/1", "idea/1/2"]


def test_the_short_run_has_to_end_well_and_to_measure(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):

        def cause(search: str, replace: str) -> str:
            found = checked(lab, [Edit(path="train.py", search=search, replace=replace)])
            return found.refusals[0].reason if found.refusals else ""

        assert "NameError" in cause(FEATURES, "    return [1.0, y]\n")
        assert "gave no value" in cause("val_loss = evaluate(", "sys.exit()\nval_loss = evaluate(")
        assert cause(FEATURES, "    return [1.0, x, 1.0]\n") == ""
        assert git(lab.paths.root, "worktree", "list").count("\n") == 0
        assert list(lab.paths.worktrees.glob("*")) == []


@pytest.mark.parametrize("short_run", [True, False])
def test_no_edit_goes_through_a_link_or_a_file(tmp_path: Path, short_run: bool) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        root = lab.paths.root
        (root / "link.py").symlink_to("train.py")
        (root / "away").symlink_to(tmp_path)
        commit_all(root, "links")
        lab.base_commit = lab.git.head()
        code = lab.study.code.model_copy(update={"mutable": ["**/*.py"], "short_run": short_run})
        lab.study = lab.study.model_copy(update={"code": code})
        for paths in (["link.py"], ["away/new.py"], ["train.py/new.py"], ["new.py", "new.py/new.py"]):
            found = checked(lab, [Edit(path=path, search="", replace="x = 1\n") for path in paths])
            assert [refusal.cause for refusal in found.refusals] == ["path"], paths
        assert not (tmp_path / "new.py").exists()


def test_the_end_of_the_baseline_leaves_a_short_run_its_tree(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        scratch = lab.worktrees.ensure_replica_tree(0, lab.base_commit, f"{SCRATCH}1")
        replica = lab.worktrees.ensure_replica_tree(0, lab.base_commit, "seed-1-attempt-1")
        assert lab.worktrees.remove_experiment(0) == [replica]
        assert (scratch / "train.py").exists()


def test_the_short_run_is_bounded_in_time(tmp_path: Path) -> None:
    code = {"mutable": ["train.py"], "smoke": {"steps": 5}, "smoke_timeout": "1s"}
    with lab_with(tmp_path, proposing([SQUARE]), code=code) as (lab, _):
        edits = [Edit(path="train.py", search=FEATURES, replace=f"    while True: pass\n{FEATURES}")]
        refusal = checked(lab, edits).refusals[0]
        assert refusal.cause == "smoke" and "still going after 1 s" in refusal.reason


def test_an_edit_of_what_a_winner_added_builds_on_it(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        winner = asked(lab)
        edits = [Edit(path="train.py", search="x * x]", replace="x * x, x ** 3]")]
        assert [refusal.cause for refusal in check_edits(lab, edits)] == ["not-found"]
        found = checked(lab, edits, winners=[winner])
        assert found.requires == ("square-feature",) and found.lines == (1, 1)


def test_the_prompt_is_bounded_whatever_the_code_and_the_number_of_ideas(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        for number in range(60):
            idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
            changes = {"name": f"n{number}", "title": "t" * 120, "cause": "x", "reason": "r" * 900}
            lab.ledger.update_idea(idea.number, state=IdeaState.REFUSED, **changes)
        prompt = idea_prompt(lab)
        assert len(prompt.text) < 3 * lab.study.brain.max_prompt_tokens
        assert "def features(x):" in prompt.text and "Improve the fit. Keep it simple." in prompt.text
        assert idea_prompt(lab).digest == prompt.digest, "neither times nor commits stand in it"


def test_a_stop_while_the_model_thinks_loses_nothing_and_asks_nothing_twice(tmp_path: Path) -> None:
    may_answer, is_asked = threading.Event(), threading.Event()

    def slow(_request: dict[str, Any]) -> dict[str, Any]:
        is_asked.set()
        assert may_answer.wait(30)
        return SQUARE

    with lab_with(tmp_path, slow) as (lab, server):
        ideas = Ideas()
        ideas.ask(lab)
        assert is_asked.wait(30) and ideas.is_thinking and not ideas.has_news
        ideas.close(seconds=0.0)
        may_answer.set()
        ideas.close()
        assert [idea.state for idea in lab.ledger.ideas()] == [IdeaState.ASKING]
        assert asked(lab).state is IdeaState.ACCEPTED
        assert len(server.requests) == 1


def test_a_model_that_does_not_answer_is_left_alone_and_the_idea_is_kept_for_later(tmp_path: Path) -> None:
    with lab_with(tmp_path, lambda _: Fault("status", 401)) as (lab, _):
        ideas = Ideas()
        ideas.ask(lab)
        assert ideas.wait(60)
        ideas.take(lab)
        ideas.ask(lab)
        assert not ideas.is_thinking, "not again at once"
        assert [idea.state for idea in lab.ledger.ideas()] == [IdeaState.ASKING]
        with pytest.raises(ModelError):
            think(lab, lambda: False)


def test_a_budget_that_another_call_holds_may_come_back(tmp_path: Path) -> None:
    def told(lab: Lab) -> str:
        ideas = Ideas()
        ideas.ask(lab)
        assert ideas.wait(60)
        ideas.take(lab)
        return [event.text for event in lab.ledger.events() if event.kind == "idea"][-1]

    with lab_with(tmp_path, proposing([SQUARE]), budget={"runs": 60, "llm_tokens": 30_000}) as (lab, server):
        held = reserve_call(
            lab, "review", purpose="", model="m", prompt_hash="", prompt_tokens=29_000, max_output_tokens=1_000
        )
        assert told(lab).startswith("no idea for now: a call of")
        settle_call(lab, held, input_tokens=30_000, output_tokens=0, seconds=1.0)
        assert told(lab).startswith("no more ideas: a call of") and server.requests == []


def test_what_the_thread_cannot_bear_reaches_the_supervisor(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        ideas = Ideas()
        lab.base_commit = "0" * 40
        ideas.ask(lab)
        assert ideas.wait(60)
        with pytest.raises(Exception, match="ls-tree"):
            ideas.take(lab)


def test_the_preflight_looks_for_what_the_section_names(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):

        def keys(**code: Any) -> list[str | None]:
            study = lab.study.model_copy(update={"code": lab.study.code.model_copy(update=code)})
            return [fault.key for fault in code_faults(study, lab.git, lab.base_commit, lab.study_file)]

        assert keys() == []
        assert keys(mutable=["trian.py"]) == ["code.mutable"]
        assert keys(instructions="programme.md") == ["code.instructions"]
        assert keys(required_calls=["evaluate", "measure"]) == ["code.required_calls"]


def test_no_more_is_asked_than_the_study_takes(tmp_path: Path) -> None:
    with lab_with(tmp_path, proposing([SQUARE])) as (lab, _):
        assert may_ask(lab)
        for number in range(2):
            idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
            lab.ledger.update_idea(idea.number, state=IdeaState.ACCEPTED, name=f"n{number}")
        assert not may_ask(lab), "two wait to be tried"
        planned(lab, {"code/n0": True})
        assert may_ask(lab)
        for number in range(2, ASKED_PER_IDEA * lab.study.code.ideas):
            idea = lab.ledger.begin_idea(asked={}, prompt="idea 1")
            lab.ledger.update_idea(idea.number, state=IdeaState.REFUSED, name=f"n{number}", cause="x")
        assert not may_ask(lab)
        lab.models = None
        assert not may_ask(lab)
