"""The night so far in few words for a model: as long after two thousand experiments as after ten."""

from __future__ import annotations

import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nightlab.agents.context import Lab
from nightlab.agents.factors import lessons_for
from nightlab.agents.scores import shown_cases
from nightlab.configs.study import Scalar
from nightlab.knowledge.ledger import Outcome
from nightlab.knowledge.records import Experiment, Lesson, RunState, Verdict, VerdictKind
from nightlab.search.belief import describe

__all__ = ["digest_of"]

LONGEST_ENTRY = 240
LONGEST_NAME = 100
MOST_ENTRIES = 12
"""Entries of one kind, however much room there is."""
MOST_CASES = 4
WORST = "worst answers of the best experiment, else of the baseline (data)"
IN_FLIGHT = (RunState.PLANNED, RunState.SUBMITTED, RunState.FINISHED, RunState.MEASURED)
RANK = {VerdictKind.KEEP: 0, VerdictKind.INCONCLUSIVE: 1}


def digest_of(lab: Lab, limit: int = 6000) -> str:
    """What the ledger and earlier studies tell, as one JSON object of at most `limit` characters (above some 2,000).

    The most important first: what does not fit is counted and left out. Every text of the study, its runs or its
    lessons stands inside a JSON string; it is still other people's text.
    """
    night = _Night(lab)
    waiting = {title: list(entries[:MOST_ENTRIES]) for title, entries in night.sections().items()}
    digest: dict[str, Any] = {**night.head(), **{title: [] for title in waiting}}
    # One entry of each kind in turn, so that none crowds out the others.
    while waiting:
        for title in list(waiting):
            if not waiting[title] or not _fits(digest, title, waiting[title][0], limit):
                del waiting[title]
            else:
                digest[title].append(waiting[title].pop(0))
    return _text(digest)


def _text(digest: Mapping[str, Any]) -> str:
    return json.dumps(digest, ensure_ascii=False, indent=1)


def _fits(digest: dict[str, Any], title: str, entry: str, limit: int) -> bool:
    return len(_text({**digest, title: [*digest[title], entry]})) <= limit


class _Night:
    """The ledger, read once."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.experiments = {one.number: one for one in lab.ledger.experiments()}
        self.verdicts = {n: v for n, v in lab.ledger.verdicts().items() if n > 0}
        self.outcomes = lab.ledger.outcomes()

    def head(self) -> dict[str, Any]:
        """What is always told, of a length that does not grow."""
        study = self.lab.study
        verdicts = Counter(verdict.kind.value for verdict in self.verdicts.values())
        return {
            "goal": _short(study.goal, LONGEST_ENTRY),
            "metric": _short(study.objective.metric, LONGEST_NAME),
            "direction": study.objective.direction,
            "unit": _short(study.objective.unit, LONGEST_NAME),
            "least gain worth having": study.objective.min_effect,
            "baseline": self._baseline(),
            "experiments": len(self.experiments),
            "verdicts": dict(sorted(verdicts.items())),
        }

    def _baseline(self) -> dict[str, Any]:
        believed = [o for o in self.outcomes if o.number == 0 and o.state is RunState.REVIEWED]
        values = [outcome.value for outcome in believed if outcome.value is not None]
        spread = _number(statistics.stdev(values)) if len(values) > 1 else None
        mean = _number(statistics.fmean(values)) if values else None
        return {"mean": mean, "standard deviation between seeds": spread, "runs": len(values)}

    def sections(self) -> dict[str, Sequence[str]]:
        """Title → entries, the most important first."""
        ranked = self._ranked()
        better = [v for v in ranked if v.effect and v.effect.delta > 0 and v.kind is not VerdictKind.REJECTED]
        worse = [v for v in reversed(ranked) if v.effect and v.effect.delta <= 0]
        rejected = sorted((v for v in ranked if v.kind is VerdictKind.REJECTED), key=lambda v: -v.number)
        return {
            "confirmed or promising, best first (gains above 0 are better)": [self._judged(v) for v in better],
            "worse or without effect, worst first": [self._judged(v) for v in worse],
            "rejected by review, newest first": [self._judged(v) for v in rejected],
            "failures by cause, most frequent first": _failures(self.outcomes),
            "in flight": self._in_flight(),
            **({WORST: cases} if (cases := self._worst_answers(ranked)) else {}),
            "lessons of earlier studies": _lessons(lessons_for(self.lab), self.lab.study.study),
        }

    def _worst_answers(self, ranked: Sequence[Verdict]) -> list[str]:
        """Of the newest believed run of the best experiment, else of the baseline."""
        better = [v.number for v in ranked if v.kind in RANK and v.effect and v.effect.delta > 0]
        believed = self.lab.ledger.runs(better[0] if better else 0, states=(RunState.REVIEWED,))
        return shown_cases(self.lab, believed[-1], most=MOST_CASES, longest=LONGEST_ENTRY) if believed else []

    def _ranked(self) -> list[Verdict]:
        def rank(verdict: Verdict) -> tuple[int, float, int]:
            gain = verdict.effect.delta if verdict.effect else 0.0
            return RANK.get(verdict.kind, 2), -gain, verdict.number

        return sorted(self.verdicts.values(), key=rank)

    def _judged(self, verdict: Verdict) -> str:
        effect = f", {describe(verdict.effect)} from {verdict.effect.runs} runs" if verdict.effect else ""
        why = f": {_short(verdict.reason, LONGEST_NAME)}" if verdict.kind is VerdictKind.REJECTED else ""
        return f"{self._named(verdict.number)}: {verdict.label}{effect}{why}"

    def _in_flight(self) -> list[str]:
        pending = Counter(outcome.number for outcome in self.outcomes if outcome.state in IN_FLIGHT)
        return [f"{self._named(number)}, {runs} runs" for number, runs in pending.items() if number in self.experiments]

    def _named(self, number: int) -> str:
        return f"experiment {number:02d} ({_short(_changes(self.experiments[number]), LONGEST_NAME)})"


def _changes(experiment: Experiment) -> str:
    return _settings(experiment.changed) or experiment.variable


def _settings(changed: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name}={value}" for name, value in changed.items())


def _failures(outcomes: Iterable[Outcome]) -> list[str]:
    numbers: dict[str, list[int]] = defaultdict(list)
    for outcome in outcomes:
        if outcome.state is RunState.FAILED:
            numbers[outcome.cause or "unknown"].append(outcome.number)
    ordered = sorted(numbers.items(), key=lambda item: (-len(item[1]), item[0]))
    return [f"{_short(cause, LONGEST_NAME)}: {len(of)} runs, last experiment {of[-1]:02d}" for cause, of in ordered]


def _lessons(lessons: Iterable[Lesson], study: str) -> list[str]:
    # The file's order is that of time: the newest first, what was confirmed before everything else.
    told = [lesson for lesson in lessons if lesson.study != study][::-1]
    told.sort(key=lambda lesson: lesson.verdict is not VerdictKind.KEEP)
    return [_short(f"{_settings(one.parameters)}: {one.label} ({one.scope})", LONGEST_ENTRY) for one in told]


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _number(value: float) -> float:
    return float(f"{value:.6g}")
