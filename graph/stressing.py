"""When confirmed finalists go through the study's stress checks: beside the loop, before their verdict stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from nightlab.agents.context import Lab
from nightlab.agents.review import PENDING
from nightlab.agents.spending import usage_of
from nightlab.agents.stress import cancel_stresses, plan_checks
from nightlab.configs.stress import StressCheck
from nightlab.configs.study import Study
from nightlab.graph.budget import spending_refusal
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Experiment, Phase, Verdict, VerdictKind
from nightlab.knowledge.stress import ENDED, StressState
from nightlab.search.belief import judge_all
from nightlab.search.history import History
from nightlab.search.spending import stress_refusal
from nightlab.search.stress import after_stress, findings

__all__ = [
    "is_stressing",
    "is_under_stress",
    "start_stress",
    "stress_verdict",
    "stressed",
    "under_stress",
    "without_broken",
]


def start_stress(lab: Lab, verdicts: Mapping[int, Verdict], settled: Iterable[Experiment]) -> None:
    """Plan the checks of every finalist among `settled` that is due for them; repeating it changes nothing."""
    for experiment in settled if lab.study.stress else ():
        due = _due(lab, verdicts.get(experiment.number))
        if not due:
            continue
        plan_checks(lab, experiment.number, due)
        if refusal := _refusal(lab):
            cancel_stresses(lab, refusal, states=(StressState.PLANNED,))


def _refusal(lab: Lab) -> str | None:
    """Why what was just planned cannot be afforded; None where it can."""
    if lab.is_overdue:
        return "the wall-clock budget ran out"
    return spending_refusal(lab) or stress_refusal(lab.study, usage_of(lab.ledger, lab.now()))


def _due(lab: Lab, verdict: Verdict | None) -> list[StressCheck]:
    """The checks that a verdict calls for and that were not planned yet."""
    if verdict is None or verdict.basis is not Phase.CONFIRM:
        return []
    is_kept = verdict.kind is VerdictKind.KEEP
    called = [check for check in lab.study.stress if is_kept or check.when == "finalists"]
    return [check for check in called if not lab.ledger.stresses(verdict.number, check=check.name)]


def is_stressing(lab: Lab, history: History) -> bool:
    """Whether a check is under way that may change what is believed."""
    if not lab.study.stress or lab.is_overdue:
        return False
    verdicts = judge_all(lab.study, replace(history, runs_left=0))
    ended = [number for number in verdicts if not lab.ledger.runs(number, states=PENDING)]
    start_stress(lab, verdicts, [lab.ledger.experiment(number) for number in ended])
    return bool(under_stress(lab))


def is_under_stress(lab: Lab, number: int) -> bool:
    """Whether a repeat of it has not ended, whose tree must stay."""
    return number in under_stress(lab)


def under_stress(lab: Lab) -> list[int]:
    """The experiments with a repeat that has not ended, each as often as it has such repeats."""
    if not lab.study.stress:
        return []
    unended = [state for state in StressState if state not in ENDED]
    return [one.number for one in lab.ledger.stresses(states=unended)]


def stressed(lab: Lab, verdict: Verdict | None) -> Verdict | None:
    """The verdict with what its checks take from it; None of one that is due for them while they are to come."""
    if verdict is None or not lab.study.stress or not _is_called(lab, verdict):
        return verdict
    unended = set(under_stress(lab))
    if not lab.is_overdue and (_due(lab, verdict) or {0, verdict.number} & unended):
        return None
    return stress_verdict(lab.study, lab.ledger, verdict)


def _is_called(lab: Lab, verdict: Verdict) -> bool:
    kept = verdict.kind is VerdictKind.KEEP
    return verdict.basis is Phase.CONFIRM and (kept or any(one.when == "finalists" for one in lab.study.stress))


def stress_verdict(study: Study, ledger: Ledger, verdict: Verdict) -> Verdict:
    """The verdict as the checks leave it, from what the ledger holds of them."""
    if not study.stress or verdict.kind is not VerdictKind.KEEP:
        return verdict
    return after_stress(verdict, findings(study.stress, ledger.stresses(), verdict.number))


def without_broken(lab: Lab, history: History) -> History:
    """The history in which what breaks a bound is not to be tried again: the next best may be confirmed."""
    if not lab.study.stress:
        return history
    # From the checks themselves: the verdict is written only after the next runs are planned.
    stresses, unended = lab.ledger.stresses(), set(under_stress(lab))
    tried = {one.number for one in stresses} - {0} - unended if 0 not in unended else set()
    found = {number: findings(lab.study.stress, stresses, number) for number in tried}
    broken = {number for number, against in found.items() if any(one.is_broken for one in against)}
    if not broken:
        return history
    trials = tuple(replace(trial, valid=trial.valid and trial.number not in broken) for trial in history.trials)
    return replace(history, trials=trials)
