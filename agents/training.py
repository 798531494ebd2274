"""The training agent: gives a planned run its branch, tree and files, and puts it on the backend."""

from __future__ import annotations

from pathlib import Path

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.cards import experiment_files
from nightlab.agents.code_space import accepted, code_of
from nightlab.agents.context import Lab
from nightlab.agents.failures import fail
from nightlab.agents.recovery import write_submission
from nightlab.configs.files import write_atomically
from nightlab.errors import LauncherError, PatchError
from nightlab.knowledge.records import Experiment, ExperimentState, Job, JobState, Run, RunState
from nightlab.knowledge.stress import IN_FLIGHT
from nightlab.tools.backends.base import JobSpec
from nightlab.worktrees.inputs import init_submodules, link_inputs

__all__ = ["TrainingState", "adopt_started", "free_slots", "training_agent"]


class TrainingState(TypedDict):
    keys: list[str]
    """Planned runs in the order they are due: those that find a free slot are submitted, the others prepared."""


def free_slots(lab: Lab) -> list[int]:
    """Slots without a job, lowest first."""
    taken = {job.slot for job in lab.ledger.jobs(states=(JobState.INTENDED, JobState.RUNNING))}
    if lab.study.stress:
        taken |= {stress.slot for stress in lab.ledger.stresses(states=IN_FLIGHT) if stress.slot is not None}
    return [slot for slot in range(lab.backend.slots) if slot not in taken]


def due(lab: Lab) -> list[str]:
    """Planned runs for which something can be done now: a slot is free, an intent waits, or a tree is still to make."""
    planned = [run.key for run in lab.ledger.runs(states=(RunState.PLANNED,))]
    if not planned or free_slots(lab) or lab.ledger.jobs(states=(JobState.INTENDED,)):
        return planned
    return [key for key in planned if key not in lab.prepared]


def adopt_started(lab: Lab) -> None:
    """Record the submissions that were made but never written down, because the lab was killed in between."""
    for job in lab.ledger.jobs(states=(JobState.INTENDED,)):
        native_id = lab.backend.find(job.key, Path(job.directory))
        if native_id is not None:
            record_submission(lab, lab.ledger.run(job.key), job.slot, native_id)


def _submit(state: TrainingState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    for key in state["keys"]:
        run = lab.ledger.run(key)
        if run.state is not RunState.PLANNED:
            continue
        slot = _slot_for(lab, lab.ledger.job(key))
        if slot is None or not lab.has_room:
            break
        _submit_or_fail(lab, run, slot)
        lab.on_change()
    return {}


def _slot_for(lab: Lab, intended: Job | None) -> int | None:
    """The slot of an intent that came to nothing, while there is one of its number; else the lowest free one."""
    if intended is not None and intended.slot < lab.backend.slots:
        return intended.slot
    return next(iter(free_slots(lab)), None)


def _submit_or_fail(lab: Lab, run: Run, slot: int) -> None:
    """A configuration that cannot be turned into a command is a failed run; the night goes on without it."""
    try:
        submit(lab, run, slot)
    except LauncherError as error:
        fail(lab, run, "launcher", str(error))
    except PatchError as error:
        fail(lab, run, "patch", str(error))


def _prepare(state: TrainingState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    for key in state["keys"]:
        run = lab.ledger.run(key)
        if run.state is RunState.PLANNED and key not in lab.prepared and lab.has_room:
            try:
                prepare(lab, run)
            except LauncherError as error:
                fail(lab, run, "launcher", str(error))
            except PatchError as error:
                fail(lab, run, "patch", str(error))
    return {}


def prepare(lab: Lab, run: Run) -> Path:
    """Make sure the run's tree stands, with the experiment's configuration committed in it; returns the tree."""
    ready = lab.prepared.get(run.key)
    if ready is not None and (ready / ".git").exists():
        return ready
    experiment = lab.ledger.experiment(run.number)
    if experiment.commit is None:
        experiment = _commit_configuration(lab, experiment)
    tree = tree_of(lab, experiment, run)
    link_inputs(lab.paths.root, tree, lab.study.inputs)
    init_submodules(tree)
    if run.overrides:
        # Only in this run's own tree: the experiment's commit stays what was asked for.
        for path, text in lab.launcher.files({**experiment.parameters, **run.overrides}, tree).items():
            write_atomically(tree / path, text)
    lab.prepared[run.key] = tree
    return tree


def _commit_configuration(lab: Lab, experiment: Experiment) -> Experiment:
    code = code_of(lab.git, experiment, accepted(lab.ledger))
    tree = lab.worktrees.ensure_branch_tree(experiment.number, experiment.branch, experiment.base_commit, None)
    files = experiment_files(lab.study, experiment, lab.launcher, tree, lab.redactor, code)
    files |= lab.launcher.files(experiment.parameters, tree) | dict(code.files)
    subject = f"experiment {experiment.number:02d}: {experiment.variable}"
    commit = lab.worktrees.commit_files(tree, files, f"{subject}\n\n{experiment.reason}")
    return lab.ledger.update_experiment(experiment.number, commit=commit, state=ExperimentState.PREPARED)


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
    tree = prepare(lab, run)
    experiment = lab.ledger.experiment(run.number)
    paths = lab.paths.job(run.number, run.seed, run.attempt)
    paths.output.mkdir(parents=True, exist_ok=True)
    parameters = {**experiment.parameters, **run.overrides}
    launch = lab.launcher.launch(parameters, seed=run.seed, tree=tree, output=paths.output)
    job = lab.ledger.intend_job(
        Job(key=run.key, backend=lab.backend.name, slot=slot, directory=str(paths.directory), worktree=str(tree))
    )
    write_submission(experiment, run, job)
    spec = JobSpec(
        key=run.key,
        command=launch.command,
        cwd=launch.cwd,
        env={**launch.env, **run.extra_env},
        directory=paths.directory,
        slot=slot,
        timeout_seconds=lab.study.backend.timeout_seconds,
    )
    record_submission(lab, run, slot, lab.backend.submit(spec))


def record_submission(lab: Lab, run: Run, slot: int, native_id: str) -> None:
    """Write that the backend has the run's job; an experiment that was judged before is open again."""
    with lab.ledger.transaction():
        lab.ledger.adopt(run.key, native_id)
        experiment = lab.ledger.update_experiment(run.number, state=ExperimentState.RUNNING)
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
