"""Which failed runs a model may mend: those of one code idea that has never run to its end, once an idea."""

from __future__ import annotations

from nightlab.agents.code_space import accepted, ideas_in
from nightlab.agents.context import Lab
from nightlab.agents.history import LOST
from nightlab.configs.code import idea_parameter, is_idea
from nightlab.errors import ConfigError
from nightlab.knowledge.records import Experiment, Idea, Run, RunState

__all__ = ["fails_by_the_code", "idea_to_mend", "users_of"]

NOT_OF_THE_CODE = frozenset({LOST, "timeout", "deadline", "stopped", "launcher", "patch", "signal", "no-progress"})
"""Causes that say nothing of the code, or that only fewer steps would mend."""
NOT_OF_THE_CODE_CATEGORIES = frozenset(
    {"env", "network", "hardware", "scheduler", "distributed", "platform", "ark", "openai"}
)
NOTHING_SAID = (RunState.FAILED, RunState.CANCELLED)


def fails_by_the_code(lab: Lab, cause: str) -> bool:
    """Whether the cause may lie in the code that ran, rather than in machine, network or time."""
    if cause in NOT_OF_THE_CODE:
        return False
    try:
        return lab.signatures.get(cause).category not in NOT_OF_THE_CODE_CATEGORIES
    except ConfigError:
        # No signature: an exit status, a metric that is absent or not finite.
        return True


def idea_to_mend(lab: Lab, run: Run, cause: str) -> Idea | None:
    """The idea that a model may mend after this failure; None where there is none.

    Whatever ran to its end with an idea ran with its edits as they are: they are not changed any more then.
    """
    if lab.models is None or not lab.study.code.mutable or not fails_by_the_code(lab, cause):
        return None
    experiment = lab.ledger.experiment(run.number)
    idea = _only_idea(lab, experiment)
    if idea is None or idea.mended:
        return None
    users = users_of(lab, idea)
    runs = [one for user in users for one in lab.ledger.runs(user.number) if one.key != run.key]
    return idea if all(one.state in NOTHING_SAID for one in runs) else None


def _only_idea(lab: Lab, experiment: Experiment) -> Idea | None:
    """The one that is tried: all else that is changed is what it builds on, or ran to its end without it."""
    applied = ideas_in(experiment, accepted(lab.ledger))
    on_top = [one for one in applied if {other.name for other in applied} - {one.name} == set(one.requires)]
    if len(on_top) == 1 and all(is_idea(name) for name in experiment.changed):
        return on_top[0]
    beside = [one for one in applied if _ran_without(lab, experiment, one)]
    return beside[0] if len(beside) == 1 else None


def _ran_without(lab: Lab, experiment: Experiment, idea: Idea) -> bool:
    without = {name: value for name, value in experiment.parameters.items() if name != idea_parameter(idea.name)}
    alike = [one.number for one in lab.ledger.experiments() if one.parameters == without]
    return any(lab.ledger.runs(number, states=(RunState.REVIEWED,)) for number in alike)


def users_of(lab: Lab, idea: Idea) -> list[Experiment]:
    """The experiments that apply an idea."""
    return [one for one in lab.ledger.experiments() if idea in ideas_in(one, [idea])]
