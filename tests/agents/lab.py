"""An open lab on the scripted task, and its agents called one by one as the supervisor does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nightlab.agents.context import Lab
from nightlab.agents.evaluation import evaluation_agent, observe_jobs
from nightlab.agents.review import review_agent
from nightlab.agents.training import training_agent
from nightlab.configs.loading import load_study
from nightlab.configs.study import Scalar
from nightlab.graph.opening import begin_study, locate, open_lab
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Phase, Proposal, Run
from nightlab.worktrees.git import Git
from nightlab.worktrees.names import branch_name, variable_slug
from tests.task import commit_all, make_repository

__all__ = ["executed", "finish", "new_lab", "opened", "planned"]


@contextmanager
def opened(file: Path) -> Iterator[Lab]:
    """The lab of a study, begun without a preflight where it has not begun."""
    loaded = load_study(file)
    place = locate(loaded)
    place.paths.folder.mkdir(parents=True, exist_ok=True)
    with Ledger.open(place.paths.ledger) as ledger:
        if not ledger.has_study():
            git = Git(place.root)
            git.exclude("/.nightlab/")
            begin_study(ledger, loaded.study, git, git.head())
    with open_lab(place, loaded.study) as lab:
        yield lab


@contextmanager
def new_lab(folder: Path, *, append: str = "", extra: Mapping[str, str] | None = None, **changes: Any) -> Iterator[Lab]:
    """`opened` on a fresh repository of the task; `append` is added to train.py, `extra` are files (path → text)."""
    file = make_repository(folder / "repo", **changes)
    if append or extra:
        with (file.parent / "train.py").open("a") as script:
            script.write(append)
        for path, text in (extra or {}).items():
            (file.parent / path).parent.mkdir(parents=True, exist_ok=True)
            (file.parent / path).write_text(text)
        commit_all(file.parent, "more")
    with opened(file) as lab:
        yield lab


def planned(lab: Lab, changed: dict[str, Scalar], seed: int = 0, *, retry: bool = False) -> Run:
    """A planned run of the configuration that differs from the baseline by `changed`."""
    proposal = Proposal(
        parameters={**lab.study.parameters, **changed},
        changed=changed,
        variable=variable_slug(changed),
        phase=Phase.SCREEN if changed else Phase.BASELINE,
        seed=seed,
        reason="to see",
    )
    return lab.ledger.plan(
        proposal,
        scenario=lab.study.scenario,
        method=lab.study.method,
        base_model=lab.study.base_model,
        base_commit=lab.base_commit,
        branch_for=lambda number, variable: branch_name(number, lab.study.scenario, lab.study.method, variable),
        retry=retry,
    )


def executed(lab: Lab, *runs: Run) -> list[Run]:
    """The runs after their jobs have ended and were measured and audited."""
    training_agent.invoke({"keys": [run.key for run in runs]}, context=lab)
    return finish(lab, *runs)


def finish(lab: Lab, *runs: Run) -> list[Run]:
    """Wait for the runs' jobs, record their end, measure and audit."""
    keys = [run.key for run in runs]
    jobs = {key: Path(job.directory) for key in keys if (job := lab.ledger.job(key))}
    for key, directory in jobs.items():
        assert lab.backend.wait({key: directory}, 60.0)
    observe_jobs(lab)
    evaluation_agent.invoke({"keys": keys}, context=lab)
    review_agent.invoke({"keys": keys}, context=lab)
    return [lab.ledger.run(key) for key in keys]
