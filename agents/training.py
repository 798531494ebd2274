"""The training agent: gives a planned run its branch, tree and files, and puts it on the backend."""

from __future__ import annotations

from pathlib import Path

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.cards import experiment_files
from nightlab.agents.context import Lab
from nightlab.knowledge.records import Experiment, ExperimentState, Job, JobState, Run, RunState
from nightlab.tools.backends.base import JobSpec
from nightlab.worktrees.inputs import init_submodules, link_inputs

__all__ = ["TrainingState", "free_slots", "training_agent"]


class TrainingState(TypedDict):
    keys: list[str]
    """Planned runs in the order they are due: those that find a free slot are submitted, the others prepared."""


def free_slots(lab: Lab) -> list[int]:
    """Slots without a job, lowest first."""
    taken = {job.slot for job in lab.ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING))}
    return [slot for slot in range(lab.backend.slots) if slot not in taken]


def _submit(state: TrainingState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    for key in state["keys"]:
        run = lab.ledger.run(key)
        if run.state is not RunState.PLANNED:
            continue
        intended = lab.ledger.job(key)
        slots = free_slots(lab)
        if intended is None and not slots:
            break
        submit(lab, run, intended.slot if intended else slots[0])
        lab.on_change()
    return {}


def _prepare(state: TrainingState, runtime: Runtime[Lab]) -> dict[str, object]:
    for key in state["keys"]:
        run = runtime.context.ledger.run(key)
        if run.state is RunState.PLANNED:
            prepare(runtime.context, run)
    return {}


def prepare(lab: Lab, run: Run) -> Path:
    """Make sure the run's tree stands, with the experiment's configuration committed in it; returns the tree."""
    experiment = lab.ledger.experiment(run.number)
    if experiment.commit is None:
        experiment = _commit_configuration(lab, experiment)
    tree = tree_of(lab, experiment, run)
    link_inputs(lab.paths.root, tree, lab.study.inputs)
    init_submodules(tree)
    return tree


def _commit_configuration(lab: Lab, experiment: Experiment) -> Experiment:
    tree = lab.worktrees.ensure_branch_tree(experiment.number, experiment.branch, experiment.base_commit, None)
    launch = lab.launcher.launch(experiment.parameters, seed=0, tree=tree, output=Path("{output_dir}"))
    command = tuple(part.replace(str(tree) + "/", "") for part in launch.command)
    files = experiment_files(lab.study, experiment, command)
    files |= lab.launcher.files(experiment.parameters, tree)
    subject = f"experiment {experiment.number:02d}: {experiment.variable}"
    commit = lab.worktrees.commit_files(tree, files, f"{subject}\n\n{experiment.reason}")
    lab.ledger.update_experiment(experiment.number, commit=commit, state=ExperimentState.PREPARED)
    return lab.ledger.experiment(experiment.number)


def tree_of(lab: Lab, experiment: Experiment, run: Run) -> Path:
    """Where this run executes: the first run on the experiment's own branch, every further one in a detached tree of
    the same commit, so that seeds can run side by side without sharing files."""
    first = lab.ledger.runs(number=experiment.number)[0]
    if run.key == first.key:
        return lab.worktrees.ensure_branch_tree(
            experiment.number, experiment.branch, experiment.base_commit, experiment.commit
        )
    assert experiment.commit is not None
    replica = f"seed-{run.seed}-attempt-{run.attempt}"
    return lab.worktrees.ensure_replica_tree(experiment.number, experiment.commit, replica)


def submit(lab: Lab, run: Run, slot: int) -> None:
    """Record the intent, start the job (or find it started already), record the result."""
    experiment = lab.ledger.experiment(run.number)
    tree = prepare(lab, run)
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    paths.output.mkdir(parents=True, exist_ok=True)
    launch = lab.launcher.launch(experiment.parameters, seed=run.seed, tree=tree, output=paths.output)
    lab.ledger.intend_job(
        Job(key=run.key, backend=lab.backend.name, slot=slot, directory=str(paths.directory), worktree=str(tree))
    )
    spec = JobSpec(
        key=run.key,
        command=launch.command,
        cwd=launch.cwd,
        env=launch.env,
        directory=paths.directory,
        slot=slot,
        timeout_seconds=lab.study.backend.timeout_seconds,
    )
    native_id = lab.backend.submit(spec)
    with lab.ledger.transaction():
        lab.ledger.adopt(run.key, native_id)
        lab.ledger.update_experiment(experiment.number, state=ExperimentState.RUNNING)
        lab.ledger.add_event("submitted", f"{experiment.variable} seed {run.seed} on slot {slot}", run.number)


training_agent = (
    StateGraph(TrainingState, context_schema=Lab)
    .add_node("submit", _submit)
    .add_node("prepare", _prepare)
    .add_edge(START, "submit")
    .add_edge("submit", "prepare")
    .add_edge("prepare", END)
    .compile()
)
