"""The reviewer's checks: each looks at one claim without the proposer's reasons and returns why it fails, or None."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nightlab.agents.cards import CARD, CONFIGURATION, EXPERIMENT
from nightlab.agents.context import Lab
from nightlab.configs.levels import same_value
from nightlab.configs.study import Scalar, Study
from nightlab.errors import GitError
from nightlab.knowledge.records import Experiment, Job, Observation
from nightlab.worktrees.git import Git

__all__ = ["audit", "check_guardrails", "check_plausible"]


def audit(
    lab: Lab,
    experiment: Experiment,
    job: Job,
    observation: Observation,
    *,
    overrides: Mapping[str, Scalar] | None = None,
) -> list[str]:
    """Every reason not to believe this run; empty when there is none.

    `overrides` are the parameters a remedy turned for it, as the ledger recorded them before it started.
    """
    tree = Path(job.worktree)
    reasons = [
        check_locked(lab.study, experiment),
        *_check_tree(lab, experiment, tree, {**experiment.parameters, **(overrides or {})}),
        check_plausible(lab.study, observation),
        *check_guardrails(lab.study, observation),
    ]
    return [reason for reason in reasons if reason]


def check_locked(study: Study, experiment: Experiment) -> str | None:
    """No locked parameter differs from the baseline, and what differs is what was declared."""
    differing = {name for name in study.parameters if not _agree(study.parameters, experiment.parameters, name)}
    differing |= experiment.parameters.keys() - study.parameters.keys()
    locked = [name for name in study.locked if name in differing]
    if locked:
        return f"locked parameter changed: {', '.join(locked)}"
    undeclared = differing ^ experiment.changed.keys()
    return f"changes beyond the declared variable: {', '.join(sorted(undeclared))}" if undeclared else None


def _agree(one: Mapping[str, Scalar], other: Mapping[str, Scalar], name: str) -> bool:
    return name in one and name in other and same_value(one[name], other[name])


def _check_tree(lab: Lab, experiment: Experiment, tree: Path, requested: Mapping[str, Scalar]) -> list[str | None]:
    if experiment.commit is None:
        return ["the experiment has no commit"]
    if not tree.is_dir():
        return ["its worktree was removed before review: nothing it did there can be checked"]
    try:
        head = Git(tree).head()
    except GitError:
        return ["the run took its worktree's link to git away: nothing it did there can be checked"]
    return [
        check_diff(lab, experiment, head),
        check_committed_parameters(lab, requested, tree),
        check_frozen(lab, experiment, tree, head),
    ]


def check_diff(lab: Lab, experiment: Experiment, head: str) -> str | None:
    """The tree's branch, at `head` now, changes only the lab's own documents and the parameter file.

    A run can commit too: what it commits would come along with a merge of the winner.
    """
    allowed = {EXPERIMENT, CONFIGURATION, CARD}
    if lab.study.launcher.parameters.via == "file":
        allowed.add(str(Path(lab.study.launcher.parameters.path)))
    extra = sorted(set(lab.git.diff_names(experiment.base_commit, head)) - allowed)
    return f"the branch changes files beyond the configuration: {', '.join(extra[:5])}" if extra else None


def check_committed_parameters(lab: Lab, requested: Mapping[str, Scalar], tree: Path) -> str | None:
    """The parameter file in the tree, after the run, still says what was requested."""
    stated = lab.launcher.read_back(tree)
    if stated is None:
        return None
    wrong = [name for name in requested if not _agree(requested, stated, name)]
    return f"the parameter file differs from the request: {', '.join(wrong)}" if wrong else None


def check_frozen(lab: Lab, experiment: Experiment, tree: Path, head: str) -> str | None:
    """Frozen paths are the base commit's: in the branch at `head`, and on disk after the run."""
    frozen = lab.study.frozen
    if not frozen:
        return None
    base, now = (lab.git.hash_paths(commit, frozen) for commit in (experiment.base_commit, head))
    changed = [path for path in frozen if base.get(path) != now.get(path)]
    changed = changed or Git(tree).differing(experiment.base_commit, frozen, leave_out=lab.study.inputs)
    return f"frozen path changed: {', '.join(changed[:5])}" if changed else None


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
