"""Belief: the verdict on each experiment, computed from the runs and nothing else (design: section 5)."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.knowledge.records import Effect, Phase, Verdict, VerdictKind
from nightlab.search.effects import estimate_effect, paired_effect
from nightlab.search.evidence import Evidence
from nightlab.search.fidelity import low_effect
from nightlab.search.history import Cell, History, Trial, cells_of
from nightlab.search.looks import early_look, last_look, most_seeds, standing

__all__ = ["BEHIND", "describe", "discard_label", "estimate_effect", "judge", "judge_all", "paired_effect"]

BEHIND = "clearly behind"
"""Label of what was ended before its time."""


def judge_all(study: Study, history: History) -> dict[int, Verdict]:
    """The verdict on every experiment that has one."""
    evidence = Evidence.of(study, history.trials)
    verdicts = [_judge(evidence, history, cell) for cell in evidence.changes]
    verdicts += [_judge_low(study, history, cell) for cell in cells_of(history.low)]
    return {verdict.number: verdict for verdict in verdicts if verdict}


def judge(study: Study, history: History, number: int) -> Verdict | None:
    """The verdict on one experiment; None for the baseline and while none of its runs has ended."""
    return judge_all(study, history).get(number)


def describe(effect: Effect) -> str:
    """`+0.0123 bits/byte [+0.008, +0.016]`."""
    unit = f" {effect.unit}" if effect.unit else ""
    if effect.low is None or effect.high is None:
        return f"{effect.delta:+.3g}{unit} (no interval yet)"
    return f"{effect.delta:+.3g}{unit} [{effect.low:+.3g}, {effect.high:+.3g}]"


def discard_label(effect: Effect, min_effect: float) -> str | None:
    """`worse`, `without effect` or `no worthwhile gain`; None where a worthwhile gain is still possible."""
    if effect.low is None or effect.high is None:
        return None
    if (-min_effect < effect.low and effect.high < min_effect) or effect.low == effect.high == 0:
        return "without effect"
    if effect.high >= min_effect:
        return None
    return "worse" if effect.high < 0 else "no worthwhile gain"


def _judge(evidence: Evidence, history: History, cell: Cell) -> Verdict | None:
    ended = [trial for trial in cell.trials if trial.state != "pending"]
    if not ended:
        return None
    if outcome := _without_value(cell, ended):
        return outcome
    if any(trial.phase == Phase.CONFIRM for trial in cell.trials):
        return _judge_finalist(evidence, history, cell)
    return _judge_found(evidence, cell, "not tested on fresh seeds")


def _without_value(cell: Cell, ended: list[Trial]) -> Verdict | None:
    """The verdict on what was rejected, pruned or failed; None where there is a value to compare."""
    basis = cell.trials[0].phase
    if cell.rejected:
        return _verdict(cell, VerdictKind.REJECTED, basis, "rejected", "review rejected a run of it: see its audit")
    if not cell.values and any(trial.state == "pruned" for trial in ended):
        reason = "ended before its time: it had fallen clearly behind"
        return _verdict(cell, VerdictKind.PRUNED, basis, BEHIND, reason)
    if not cell.values:
        runs = "its run" if len(ended) == 1 else f"all {len(ended)} runs"
        return _verdict(cell, VerdictKind.FAILED, basis, "failed", f"{runs} failed: no value to compare")
    return None


def _judge_low(study: Study, history: History, cell: Cell) -> Verdict | None:
    """A cheap run proves nothing: what it says of the change is a hint to the search. None for the baseline's own."""
    ended = [trial for trial in cell.trials if trial.state != "pending"]
    if not ended or cell.trials[0].phase == Phase.BASELINE:
        return None
    if outcome := _without_value(cell, ended):
        return outcome
    effect = low_effect(study, history, cell.number)
    text = f"{effect.delta:+.3g}" if effect else "nothing to compare with"
    reason = f"{text} against the baseline at low fidelity too: where to look, nothing to believe"
    return _verdict(cell, VerdictKind.INCONCLUSIVE, cell.trials[0].phase, "low fidelity", reason)


def _judge_finalist(evidence: Evidence, history: History, cell: Cell) -> Verdict:
    """The verdict of confirmation at its first or last look; between them that of the runs that found it."""
    runs = [trial for trial in cell.trials if trial.phase == Phase.CONFIRM]
    if failed := sum(trial.usable is None and trial.state != "pending" for trial in runs):
        reason = f"failed on {failed} of {len(runs)} fresh seeds"
        effect = last_look(evidence, cell)
        return _verdict(cell, VerdictKind.INCONCLUSIVE, Phase.CONFIRM, "unstable", reason, effect)
    stands = standing(evidence, cell)
    effect = early_look(evidence, cell) if stands in ("won", "out") else last_look(evidence, cell)
    if effect is None or (stands not in ("won", "out") and _incomplete(evidence, history, cell)):
        return _judge_found(evidence, cell, "confirmation on fresh seeds is not complete")
    return _judge_confirmed(evidence, cell, effect)


def _incomplete(evidence: Evidence, history: History, cell: Cell) -> bool:
    """Whether pairs are still to come: a verdict at every look would let luck pick the moment."""
    pending = any(
        trial.state == "pending" and trial.phase == Phase.CONFIRM
        for side in (cell, evidence.baseline)
        for trial in side.trials
    )
    started = sum(trial.phase == Phase.CONFIRM for trial in cell.trials)
    return pending or (started < most_seeds(evidence.study) and history.runs_left >= 2)


def _judge_confirmed(evidence: Evidence, cell: Cell, effect: Effect) -> Verdict:
    study, comparisons = evidence.study, len(evidence.confirming)
    line = study.objective.min_effect
    text = f"{describe(effect)} on {effect.runs} fresh seeds"
    if comparisons > 1:
        text += f", corrected for {comparisons} finalists"
    if effect.low is not None and effect.low > line:
        reason = f"{text}: beyond the least worthwhile gain of {line:g}"
        if effect.runs < study.search.confirm_seeds:
            reason += f", but the study asks for {study.search.confirm_seeds} fresh seeds"
            return _verdict(cell, VerdictKind.INCONCLUSIVE, Phase.CONFIRM, "not confirmed", reason, effect)
        return _verdict(cell, VerdictKind.KEEP, Phase.CONFIRM, "confirmed", reason, effect)
    if label := discard_label(effect, line):
        return _verdict(cell, VerdictKind.DISCARD, Phase.CONFIRM, label, f"{text}: {_why(label, line)}", effect)
    reason = f"{text}: not surely beyond the least worthwhile gain of {line:g}"
    return _verdict(cell, VerdictKind.INCONCLUSIVE, Phase.CONFIRM, "not confirmed", reason, effect)


def _judge_found(evidence: Evidence, cell: Cell, missing: str) -> Verdict:
    """The verdict without confirmation: never a win."""
    basis, line = cell.trials[0].phase, evidence.study.objective.min_effect
    effect = evidence.effect(cell)
    if effect is None:
        reason = "the baseline has no value to compare with"
        return _verdict(cell, VerdictKind.INCONCLUSIVE, basis, "too close to call", reason)
    runs = "1 run" if effect.runs == 1 else f"{effect.runs} runs"
    text = f"{describe(effect)} from {runs} against {effect.baseline_runs} of the baseline"
    if label := discard_label(effect, line):
        return _verdict(cell, VerdictKind.DISCARD, basis, label, f"{text}: {_why(label, line)}", effect)
    if effect.low is not None and effect.low > 0:
        likely = evidence.likely_gain(cell)
        left = "" if likely is None else f"; among all that was tried, {likely:+.3g} is likely to be left of it"
        reason = f"{text}: looks better, but {missing}{left}"
        return _verdict(cell, VerdictKind.INCONCLUSIVE, basis, "promising", reason, effect)
    reason = f"{text}: noise allows both a gain worth having and none"
    return _verdict(cell, VerdictKind.INCONCLUSIVE, basis, "too close to call", reason, effect)


def _why(label: str, line: float) -> str:
    return {
        "worse": "worse than the baseline",
        "without effect": f"inside ±{line:g}, no difference that matters",
        "no worthwhile gain": f"a gain of {line:g} is ruled out",
    }[label]


def _verdict(
    cell: Cell, kind: VerdictKind, basis: Phase, label: str, reason: str, effect: Effect | None = None
) -> Verdict:
    return Verdict(number=cell.number, kind=kind, effect=effect, basis=basis, label=label, reason=reason)
