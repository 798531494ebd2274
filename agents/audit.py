"""The reviewer's checks: each looks at one claim without the proposer's reasons and returns why it fails, or None."""

from __future__ import annotations

from pathlib import Path

from nightlab.agents.cards import CARD, CONFIGURATION, EXPERIMENT
from nightlab.agents.context import Lab
from nightlab.configs.study import Study
from nightlab.knowledge.records import Experiment, Job, Observation
from nightlab.worktrees.git import Git

__all__ = ["audit", "check_guardrails", "check_plausible"]


def audit(lab: Lab, experiment: Experiment, job: Job, observation: Observation) -> list[str]:
    """Every reason not to believe this run; empty when there is none."""
    tree = Path(job.worktree)
    reasons = [
        check_locked(lab.study, experiment),
        check_diff(lab, experiment),
        check_committed_parameters(lab, experiment, tree),
        check_frozen(lab, experiment, tree),
        check_plausible(lab.study, observation),
        *check_guardrails(lab.study, observation),
    ]
    return [reason for reason in reasons if reason]


def check_locked(study: Study, experiment: Experiment) -> str | None:
    """No locked parameter differs from the baseline, and what differs is what was declared."""
    locked = [name for name in study.locked if experiment.parameters.get(name) != study.parameters.get(name)]
    if locked:
        return f"locked parameter changed: {', '.join(locked)}"
    differing = {name for name, value in experiment.parameters.items() if study.parameters.get(name) != value}
    undeclared = differing ^ set(experiment.changed)
    return f"changes beyond the declared variable: {', '.join(sorted(undeclared))}" if undeclared else None


def check_diff(lab: Lab, experiment: Experiment) -> str | None:
    """The branch changes only the lab's own documents and the parameter file."""
    if experiment.commit is None:
        return "the experiment has no commit"
    allowed = {EXPERIMENT, CONFIGURATION, CARD}
    if lab.study.launcher.parameters.via == "file":
        allowed.add(str(Path(lab.study.launcher.parameters.path)))
    extra = sorted(set(lab.git.diff_names(experiment.base_commit, experiment.commit)) - allowed)
    return f"the branch changes files beyond the configuration: {', '.join(extra[:5])}" if extra else None


def check_committed_parameters(lab: Lab, experiment: Experiment, tree: Path) -> str | None:
    """The parameter file in the tree, after the run, still says what was requested."""
    stated = lab.launcher.read_back(tree)
    if stated is None:
        return None
    wrong = [name for name, value in experiment.parameters.items() if stated.get(name) != value]
    return f"the parameter file differs from the request: {', '.join(wrong)}" if wrong else None


def check_frozen(lab: Lab, experiment: Experiment, tree: Path) -> str | None:
    """Frozen paths are the base commit's, in the experiment's commit and on disk after the run."""
    frozen = lab.study.frozen
    if not frozen or experiment.commit is None:
        return None
    base, now = (lab.git.hash_paths(commit, frozen) for commit in (experiment.base_commit, experiment.commit))
    changed = [path for path in frozen if base.get(path) != now.get(path)]
    changed = changed or Git(tree).differing(experiment.commit, frozen)
    return f"frozen path changed: {', '.join(changed)}" if changed else None


def check_plausible(study: Study, observation: Observation) -> str | None:
    """The objective lies in its plausible range."""
    if study.objective.plausible is None:
        return None
    low, high = study.objective.plausible
    value = observation.values[study.objective.metric]
    if low <= value <= high:
        return None
    return f"{study.objective.metric} {value:.6g} lies outside the plausible range {low:g} … {high:g}"


def check_guardrails(study: Study, observation: Observation) -> list[str]:
    """Every guardrail the run breaks."""
    broken = []
    for rail in study.guardrails:
        value = observation.values[rail.metric]
        if rail.min is not None and value < rail.min:
            broken.append(f"guardrail: {rail.metric} {value:.6g} is below {rail.min:g}")
        if rail.max is not None and value > rail.max:
            broken.append(f"guardrail: {rail.metric} {value:.6g} is above {rail.max:g}")
    return broken
