"""Between two nights: ending jobs of a stopped lab, clearing trees nothing needs and branches of what was not kept."""

from __future__ import annotations

from pathlib import Path

from nightlab.agents.evaluation import observe_jobs
from nightlab.agents.stress import adopt_stresses, observe_stresses, running_stresses
from nightlab.agents.training import adopt_started
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.graph.opening import Place, open_lab
from nightlab.graph.process import hold_study
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Experiment, ExperimentState, JobState, RunState, StudyStatus
from nightlab.knowledge.stress import IN_FLIGHT
from nightlab.worktrees.trees import Worktrees

__all__ = ["clear_branches", "clear_trees", "end_jobs"]

UNREAD = (RunState.SUBMITTED, RunState.FINISHED, RunState.MEASURED)
"""Runs whose tree is still worked in, or still to be read and audited."""
REFUTED = frozenset({ExperimentState.DISCARDED, ExperimentState.REJECTED, ExperimentState.FAILED})
OPEN_UNTIL_THE_END = frozenset({ExperimentState.INCONCLUSIVE, ExperimentState.CANCELLED})


def end_jobs(place: Place, study: Study) -> int:
    """End the jobs that a stopped lab left running, and record it; returns how many there were.

    The search asks again for what they ran. Raises StudyBusyError while a lab runs the study.
    """
    with hold_study(place.paths), open_lab(place, study) as lab:
        adopt_started(lab)
        adopt_stresses(lab)
        jobs = {job.key: Path(job.directory) for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
        jobs |= running_stresses(lab)
        ended = list(lab.backend.cancel(jobs))
        observe_jobs(lab)
        observe_stresses(lab)
        return len(ended)


def clear_trees(ledger: Ledger, paths: StudyPaths) -> list[Path]:
    """Heal what a killed lab left and remove all trees but those of jobs that run or are yet to be read.

    To be called by the holder of the study; returns what was removed.
    """
    trees = Worktrees(paths)
    healed = trees.heal()
    unread = {run.key for run in ledger.runs(states=UNREAD)}
    needed = [Path(job.worktree) for job in ledger.jobs() if job.key in unread or job.state is JobState.INTENDED]
    needed += [Path(stress.worktree) for stress in ledger.stresses(states=IN_FLIGHT)]
    return healed + trees.remove_all(keep=needed)


def clear_branches(ledger: Ledger, paths: StudyPaths) -> dict[str, str]:
    """Delete the branches of ended experiments that were not kept; returns branch → the commit it was at.

    A branch that is checked out, or holds commits of somebody else, stays; so does that of an experiment the study may
    still come back to.
    """
    ended = REFUTED | (OPEN_UNTIL_THE_END if ledger.study_row().status is StudyStatus.FINISHED else frozenset())
    trees = Worktrees(paths)
    deleted = {}
    for experiment in ledger.experiments(states=ended):
        tip = _tip(experiment)
        if experiment.number > 0 and tip and trees.delete_branch(experiment.branch, tip):
            deleted[experiment.branch] = tip
    return deleted


def _tip(experiment: Experiment) -> str | None:
    """Where the lab left the branch."""
    return experiment.card_commit or experiment.commit
