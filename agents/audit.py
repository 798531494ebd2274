"""The reviewer's checks: each looks at one claim without the proposer's reasons and returns why it fails, or None."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from nightlab.agents.cards import CARD, CONFIGURATION, EXPERIMENT
from nightlab.agents.code_space import accepted, code_files, reading
from nightlab.agents.context import Lab
from nightlab.agents.fairness import check_same
from nightlab.agents.scores import check_examples
from nightlab.configs.code import is_idea, settings_of, with_ideas_unused
from nightlab.configs.levels import same_value
from nightlab.configs.paths import JobPaths
from nightlab.configs.study import Scalar, Study
from nightlab.errors import GitError, LauncherError, PatchError
from nightlab.knowledge.records import Experiment, Job, Observation, Phase
from nightlab.search.low_runs import at_low, whole_changes
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.effective import effective_mismatches, read_seen
from nightlab.worktrees.git import Git

__all__ = ["audit", "check_guardrails", "check_plausible"]

LOOKING = (Phase.BASELINE, Phase.SCREEN)
"""The phases in which a run may be at low fidelity."""


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
        *check_examples(lab, experiment, JobPaths(Path(job.directory))),
        *check_same(lab, experiment, observation),
        check_effective(lab, job, {**experiment.parameters, **(overrides or {})}),
    ]
    return [reason for reason in reasons if reason]


def check_locked(study: Study, experiment: Experiment) -> str | None:
    """No locked parameter differs from the baseline, and what differs is what was declared."""
    parameters = with_ideas_unused(experiment.parameters, filter(is_idea, study.parameters))
    differing = {name for name in study.parameters if not _agree(study.parameters, parameters, name)}
    differing |= parameters.keys() - study.parameters.keys()
    if at_low(study, {}).items() <= experiment.changed.items() and experiment.phase in LOOKING:
        # A look at low fidelity: of it nothing is believed.
        differing -= at_low(study, {}).keys()
        experiment = experiment.model_copy(update={"changed": whole_changes(study, experiment.changed)})
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
    """The tree's branch, at `head` now, changes only the lab's own documents, the parameter file and its ideas' code.

    A run can commit too: what it commits would come along with a merge of the winner.
    """
    try:
        code = code_files(lab.git, experiment, accepted(lab.ledger))
        held = {path: reading(lab.git, head)(path) for path in code}
    except PatchError as error:
        return f"its code is not that of its ideas: {error}"
    allowed = {EXPERIMENT, CONFIGURATION, CARD}
    allowed |= {str(Path(file)) for file in lab.study.launcher.files}
    extra = sorted(set(lab.git.diff_names(experiment.base_commit, head)) - allowed - code.keys())
    if extra:
        return f"the branch changes files beyond the configuration: {', '.join(extra[:5])}"
    # Git may have changed line ends on the way, as the repository's attributes say.
    wrong = sorted(path for path, text in code.items() if (held[path] or "").splitlines() != text.splitlines())
    return f"the branch's code is not that of its ideas: {', '.join(wrong[:5])}" if wrong else None


def check_committed_parameters(lab: Lab, requested: Mapping[str, Scalar], tree: Path) -> str | None:
    """The parameter file in the tree, after the run, still says what was requested."""
    stated = lab.launcher.read_back(tree)
    if stated is None:
        return None
    wrong = [name for name in settings_of(requested) if not _agree(requested, stated, name)]
    return f"the parameter file differs from the request: {', '.join(wrong)}" if wrong else None


@runtime_checkable
class TellsArguments(Protocol):
    """A launcher that knows a framework's own arguments by heart."""

    def document(self, parameters: Mapping[str, Scalar], tree: Path) -> Mapping[str, object]:
        """The framework's arguments for a configuration. Raises LauncherError."""
        ...


def check_effective(lab: Lab, job: Job, requested: Mapping[str, Scalar]) -> str | None:
    """The run's own log, trainer state and adapter say nothing else than what it was asked to run with."""
    tree, paths = Path(job.worktree), JobPaths(Path(job.directory))
    if not isinstance(lab.launcher, TellsArguments) or not tree.is_dir():
        return None
    try:
        arguments = lab.launcher.document(requested, tree)
    except LauncherError:
        return None
    files = RunFiles(paths.stdout, paths.stderr, tree, paths.output, job.started_at)
    seen = read_seen(files, lab.study.source_of(lab.study.objective.metric))
    wrong = effective_mismatches(arguments, seen)
    return f"the run was not the one asked for: {'; '.join(wrong)}" if wrong else None


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
