"""Each check of the reviewer on a repository that was really tampered with, and on an honest one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nightlab.agents.audit import audit, check_guardrails, check_locked, check_plausible
from nightlab.agents.context import Lab
from nightlab.agents.factors import ranked
from nightlab.agents.training import prepare
from nightlab.configs.fidelity import FidelitySettings
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Experiment, Job, Observation, Phase, Run, RunState
from nightlab.search.levels import changed_from, setting
from tests.agents.lab import executed, new_lab, planned
from tests.task import commit_all, git, study_data


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with new_lab(tmp_path, frozen=["prepare.py", "data"], extra={"data/held_out.txt": "truth\n"}) as lab:
        yield lab


class Case:
    """An experiment in its tree, as it stands after an honest run."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.run: Run = planned(lab, {"lr": 0.01})
        self.tree = prepare(lab, self.run)
        self.observation = Observation(key=self.run.key, values={"val_loss": 1.8, "memory_mb": 12.5})

    @property
    def experiment(self) -> Experiment:
        return self.lab.ledger.experiment(self.run.number)

    def reasons(self, experiment: Experiment | None = None) -> list[str]:
        job = Job(key=self.run.key, backend="local", slot=0, directory="unused", worktree=str(self.tree))
        return audit(self.lab, experiment or self.experiment, job, self.observation)


@pytest.fixture
def case(lab: Lab) -> Case:
    return Case(lab)


def test_an_honest_run_passes_with_what_runs_leave_behind(case: Case) -> None:
    (case.tree / "__pycache__").mkdir()
    (case.tree / "data" / "__pycache__").mkdir()
    (case.tree / "data" / "__pycache__" / "x.pyc").write_bytes(b"x")
    (case.tree / "checkpoint.bin").write_bytes(b"weights")
    assert case.reasons() == []


def test_a_bundle_passes_with_exactly_what_it_declares(tmp_path: Path) -> None:
    space = {"recipe": {"settings": {"fast": {"lr": 0.01, "width": 64, "color": "red"}}}}
    with new_lab(tmp_path, space=space) as lab:
        (factor,) = ranked(lab, [], [])
        changed = changed_from(lab.study, setting(lab.study, factor, "fast"))
        assert changed == {"lr": 0.01, "width": 64}
        (run,) = executed(lab, planned(lab, changed))
        experiment = lab.ledger.experiment(run.number)
        assert (run.state, experiment.changed) == (RunState.REVIEWED, changed)
        observation = lab.ledger.observation(run.key)
        assert observation and observation.values["val_loss"] == pytest.approx(1.65, abs=0.05), "both reached the run"
        more = {**experiment.parameters, "color": "blue"}
        undeclared = check_locked(lab.study, experiment.model_copy(update={"parameters": more}))
        assert undeclared == "changes beyond the declared variable: color"


def overwrite(path: str, text: str) -> Callable[[Path], None]:
    def tamper(tree: Path) -> None:
        (tree / path).write_text(text)

    return tamper


def touch_back(tree: Path) -> None:
    """Change the evaluation data and hide it from git's own bookkeeping."""
    file = tree / "prepare.py"
    before = file.stat()
    file.write_text("# evaluation DATA\n")
    import os

    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    git(tree, "update-index", "--assume-unchanged", "prepare.py")


def commit_a_helper(tree: Path) -> None:
    (tree / "helper.py").write_text("x = 1\n")
    commit_all(tree, "the run's own commit")


def commit_easier_data(tree: Path) -> None:
    (tree / "prepare.py").write_text("# easier\n")
    commit_all(tree, "easier")


def unlink_git(tree: Path) -> None:
    (tree / ".git").unlink()


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (overwrite("prepare.py", "# easier evaluation\n"), "frozen path changed: prepare.py"),
        (overwrite("data/held_out.txt", "easy\n"), "frozen path changed: data/held_out.txt"),
        (overwrite("data/more.txt", "answers\n"), "frozen path changed: data/more.txt"),
        (lambda tree: (tree / "data" / "held_out.txt").unlink(), "frozen path changed: data/held_out.txt"),
        (touch_back, "frozen path changed: prepare.py"),
        (
            overwrite("params.json", '{"lr": 0.5, "width": 32}'),
            "the parameter file differs from the request: lr, color",
        ),
        (overwrite("params.json", "not json"), "the parameter file differs from the request: lr, width"),
        (commit_a_helper, "the branch changes files beyond the configuration: helper.py"),
        (commit_easier_data, "the branch changes files beyond the configuration: prepare.py"),
        (unlink_git, "the run took its worktree's link to git away"),
    ],
)
def test_tampering_is_found_and_named(case: Case, tamper: Callable[[Path], None], reason: str) -> None:
    tamper(case.tree)
    found = case.reasons()
    assert any(one.startswith(reason) for one in found), found


def test_a_tree_that_is_gone_proves_nothing(case: Case) -> None:
    case.lab.worktrees.remove_experiment(case.run.number)
    assert case.reasons() == ["its worktree was removed before review: nothing it did there can be checked"]


def test_an_experiment_that_was_never_prepared_is_not_believed(case: Case) -> None:
    assert case.reasons(case.experiment.model_copy(update={"commit": None})) == ["the experiment has no commit"]


def changed_experiment(case: Case, parameters: dict[str, Scalar], changed: dict[str, Scalar]) -> Experiment:
    update = {"parameters": {**case.experiment.parameters, **parameters}, "changed": changed}
    return case.experiment.model_copy(update=update)


def test_locked_and_undeclared_changes_are_named(case: Case) -> None:
    study = case.lab.study
    locked = changed_experiment(case, {"steps": 20}, {"lr": 0.01, "steps": 20})
    assert check_locked(study, locked) == "locked parameter changed: steps"
    more = changed_experiment(case, {"width": 64}, {"lr": 0.01})
    assert check_locked(study, more) == "changes beyond the declared variable: width"
    less = changed_experiment(case, {}, {"lr": 0.01, "width": 64})
    assert check_locked(study, less) == "changes beyond the declared variable: width"
    unknown = changed_experiment(case, {"made_up": 1}, {"lr": 0.01})
    assert check_locked(study, unknown) == "changes beyond the declared variable: made_up"
    assert check_locked(study, case.experiment) is None


def test_the_fidelity_may_change_where_it_is_only_looked_at(case: Case) -> None:
    cheap = FidelitySettings(parameter="steps", low=2)
    search = case.lab.study.search.model_copy(update={"fidelity": cheap})
    study = case.lab.study.model_copy(update={"search": search})
    look = changed_experiment(case, {"steps": 2}, {"lr": 0.01, "steps": 2}).model_copy(update={"phase": Phase.SCREEN})
    assert check_locked(study, look) is None
    assert check_locked(case.lab.study, look) == "locked parameter changed: steps"
    for phase in (Phase.COMBINE, Phase.REFINE, Phase.CONFIRM):
        assert check_locked(study, look.model_copy(update={"phase": phase})) == "locked parameter changed: steps"
    other = changed_experiment(case, {"steps": 3}, {"lr": 0.01, "steps": 3}).model_copy(update={"phase": Phase.SCREEN})
    assert check_locked(study, other) == "locked parameter changed: steps"
    more = look.model_copy(update={"parameters": {**look.parameters, "seconds": 1}})
    assert check_locked(study, more) == "locked parameter changed: seconds"


def test_true_is_not_one_and_one_is_one_point_nought(case: Case) -> None:
    as_float = changed_experiment(case, {"width": 32.0}, {"lr": 0.01})
    assert check_locked(case.lab.study, as_float) is None
    boolean = changed_experiment(case, {"seconds": False}, {"lr": 0.01})
    assert check_locked(case.lab.study, boolean) == "locked parameter changed: seconds"


@pytest.mark.parametrize(
    ("value", "is_plausible"), [(0.0, True), (10.0, True), (1.8, True), (-0.001, False), (10.5, False)]
)
def test_values_outside_the_plausible_range_are_refused(value: float, is_plausible: bool) -> None:
    study = Study.model_validate(study_data())
    reason = check_plausible(study, Observation(key="k", values={"val_loss": value}))
    assert (reason is None) is is_plausible
    assert reason is None or reason.startswith(f"val_loss {value:.6g} lies outside the plausible range 0 … 10")


def test_without_a_range_everything_finite_is_plausible() -> None:
    objective = study_data()["objective"] | {"plausible": None}
    study = Study.model_validate(study_data(objective=objective))
    assert check_plausible(study, Observation(key="k", values={"val_loss": -1e9})) is None


def test_every_broken_guardrail_is_named() -> None:
    rails = [{"metric": "memory_mb", "max": 100}, {"metric": "accuracy", "min": 0.5}]
    study = Study.model_validate(study_data(guardrails=rails))
    bad = Observation(key="k", values={"val_loss": 1.0, "memory_mb": 100.5, "accuracy": 0.4})
    assert check_guardrails(study, bad) == [
        "guardrail: memory_mb 100.5 is above 100",
        "guardrail: accuracy 0.4 is below 0.5",
    ]
    good = Observation(key="k", values={"val_loss": 1.0, "memory_mb": 100.0, "accuracy": 0.5})
    assert check_guardrails(study, good) == []


def test_a_run_that_rewrites_its_parameter_file_is_rejected(tmp_path: Path) -> None:
    cheat = 'p["lr"] = 0.01\njson.dump(p, open(options.params, "w"))\n'
    with new_lab(tmp_path, append=cheat) as lab:
        (run,) = executed(lab, planned(lab, {"width": 64}))
        assert run.state is RunState.REJECTED and run.cause == "review"
        assert run.detail == "the parameter file differs from the request: lr"
        assert [event.kind for event in lab.ledger.events()][-1] == "rejected"
