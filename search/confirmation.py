"""Confirmation: the finalists against the baseline on fresh, common seeds, from runs held in reserve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice

from nightlab.configs.study import Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History
from nightlab.search.looks import early_look, most_seeds, standing
from nightlab.search.low_runs import total_runs

__all__ = [
    "ConfirmationSize",
    "confirmation_size",
    "due_confirmations",
    "exploration_left",
    "finalists",
    "fresh_seeds",
    "lendable",
    "lent_size",
    "needs_no_first_look",
    "reserved_size",
]

RESERVED_SHARE = 0.4
"""Largest share of the runs after the baseline's replicates that is held back for a second finalist and beyond."""
FIRST_FRESH_SEED = 1000
LENT_EACH = 4
"""Runs a slot that may be lent: where durations have heavy tails one run takes as long as several others."""
SMALL_SHARE = 1 / 12
"""Share of the runs that counts for little: so much may be lent to slots that would wait, or saved by waiting."""


@dataclass(frozen=True)
class ConfirmationSize:
    """How many finalists, on how many fresh seeds; the baseline runs beside them.

    All run on the `first` seeds; the most promising one that is undecided then goes on to `seeds`.
    """

    finalists: int
    seeds: int
    first: int

    @property
    def runs(self) -> int:
        return self.first * (self.finalists + 1) + 2 * (self.seeds - self.first) if self.finalists else 0


def _sizes(study: Study) -> list[ConfirmationSize]:
    """Most finalists first; none with fewer seeds than `confirm_seeds`, on all of which a win stands."""
    first, most = study.search.confirm_seeds, most_seeds(study)
    several = [ConfirmationSize(n, most, first) for n in range(study.search.confirm_candidates, 1, -1)]
    return [*several, *(ConfirmationSize(1, seeds, first) for seeds in range(most, first - 1, -1))]


def reserved_size(study: Study, total_runs: int) -> ConfirmationSize:
    """What confirmation is planned to be in a budget of `total_runs`.

    One finalist on `confirm_seeds` wherever a change can be run besides; more where their share of the budget is small.
    """
    if not study.search.confirm:
        return ConfirmationSize(0, 0, 0)
    free = total_runs - study.search.baseline_replicates
    sizes = _sizes(study)
    fitting = (size for size in sizes if size.runs <= RESERVED_SHARE * free)
    smallest = sizes[-1]
    return next(fitting, smallest if smallest.runs < free else ConfirmationSize(0, 0, 0))


def confirmation_size(study: Study, runs: int) -> ConfirmationSize:
    """The most that `runs` allow, confirmation runs already planned counted among them.

    One finalist even where they do not suffice: its pairs count once a larger budget completes them.
    """
    sizes = _sizes(study)
    return next((size for size in sizes if size.runs <= runs), sizes[-1])


def exploration_left(study: Study, history: History) -> int:
    """Runs that may still go into finding something: what is left without confirmation's reserve and what is lent."""
    return max(0, lendable(study, history) - lent_size(study, total_runs(study, history)))


def lendable(study: Study, history: History) -> int:
    """The same, with the runs for slots that wait for others."""
    reserve = reserved_size(study, total_runs(study, history)).runs
    planned = sum(trial.phase == Phase.CONFIRM for trial in history.trials)
    return max(0, history.runs_left - history.margin - max(0, reserve - planned))


def lent_size(study: Study, total_runs: int) -> int:
    """Runs kept for slots that would wait for the runs that choose the finalists, or for a look at them.

    Where that is a small part of the budget; the baseline's own half of the first pairs comes before.
    """
    if not study.search.confirm:
        return 0
    return max(0, min(LENT_EACH * study.backend.slots, int(SMALL_SHARE * total_runs)) - study.search.confirm_seeds)


def needs_no_first_look(study: Study, total_runs: int) -> bool:
    """Whether all of confirmation costs so little, and finds so many slots, that waiting for the first look is dear."""
    size = reserved_size(study, total_runs)
    return size.runs <= SMALL_SHARE * total_runs and study.backend.slots >= size.first * (size.finalists + 1)


def fresh_seeds(history: History, seed: int, number: int) -> list[int]:
    """`number` seeds that nothing but confirmation has run with; a function of the search's seed and the history."""
    used = {trial.seed for trial in history.trials if trial.phase != Phase.CONFIRM}
    start = FIRST_FRESH_SEED * (1 + seed % FIRST_FRESH_SEED)
    return list(islice((fresh for fresh in count(start) if fresh not in used), number))


def finalists(evidence: Evidence, number: int, predicted: Cell | None = None) -> list[Cell]:
    """The configurations to confirm: those in confirmation, then the most promising, so that `number` are in the race.

    Whoever is decided by the first look makes room for another, but for no more than `number` in all: every further one
    may claim less. `predicted`: the best combination by the array's main effects; it goes first unless its own runs
    speak against it.
    """
    by_number = {cell.number: cell for cell in evidence.changes}
    started = [by_number[number] for number in evidence.confirming]
    racing = sum(standing(evidence, cell) in ("started", "open") for cell in started)
    room = max(0, min(number - racing, 2 * number - len(started)))
    ranked = sorted(_scored(evidence), key=lambda entry: -entry[0])
    others = [cell for _, cell in ranked if cell not in started]
    if predicted in others and _holds_up(evidence, predicted, others[0]):
        others.remove(predicted)
        others.insert(0, predicted)
    return [*started, *others[:room]]


def _scored(evidence: Evidence) -> list[tuple[float, Cell]]:
    line, found = evidence.study.objective.min_effect, []
    for cell in evidence.changes:
        effect = evidence.found_effect(cell) if cell.sound else None
        if effect is not None and _may_win(effect, line):
            # One standard error off: of two equal means the one behind more runs is the safer choice.
            found.append((effect.delta - evidence.found_error(cell), cell))
    return found


def _may_win(effect: Effect, line: float) -> bool:
    return effect.delta > 0 and (effect.high is None or effect.high > line)


def _holds_up(evidence: Evidence, predicted: Cell, best: Cell) -> bool:
    ours, theirs = evidence.found_effect(predicted), evidence.found_effect(best)
    if ours is None or theirs is None:
        return False
    spread = evidence.exploration_noise.sd * math.sqrt(1 / len(predicted.explored) + 1 / len(best.explored))
    return ours.delta >= theirs.delta - 2 * spread


def due_confirmations(
    evidence: Evidence, chosen: list[Cell], seeds: list[int], runs: int, *, at_once: bool = False
) -> list[tuple[Cell, int]]:
    """Runs still to be planned, at most `runs`: finalist by finalist, whole pairs only.

    First everyone's pairs up to the first look; when all of them have ended those of the undecided, the most promising
    first. `at_once`: without waiting for the first look, which is taken all the same.
    """
    first = seeds[: evidence.study.search.confirm_seeds]
    due = _pairs_due(evidence, chosen, first, runs)
    pending = (trial for cell in (evidence.baseline, *chosen) for trial in cell.trials if trial.state == "pending")
    if at_once:
        racing = [cell for cell in chosen if standing(evidence, cell) in ("started", "open")]
        return _pairs_due(evidence, racing, seeds, runs, besides=due)
    if due or any(trial.seed in first for trial in pending):
        return due
    return _pairs_due(evidence, _undecided(evidence, chosen), seeds, runs)


def _pairs_due(
    evidence: Evidence, chosen: list[Cell], seeds: list[int], runs: int, besides: Sequence[tuple[Cell, int]] = ()
) -> list[tuple[Cell, int]]:
    due = {(cell.number, seed): (cell, seed) for cell, seed in besides}
    for finalist in chosen:
        for place, seed in enumerate(seeds):
            # Taking turns at who goes first, so that a slow drift of the machine favours neither.
            sides = (evidence.baseline, finalist) if place % 2 == 0 else (finalist, evidence.baseline)
            pair = {(cell.number, seed): (cell, seed) for cell in sides if seed not in cell.seeds}
            if len(due | pair) > runs:
                return list(due.values())
            due |= pair
    return list(due.values())


def _undecided(evidence: Evidence, chosen: list[Cell]) -> list[Cell]:
    """Those whose first look decided nothing, or never came because the baseline failed on a seed."""
    looked = [(early_look(evidence, cell), cell) for cell in chosen if cell.number in evidence.confirming]
    left = [(look, cell) for look, cell in looked if standing(evidence, cell) in ("open", "started")]
    return [cell for look, cell in sorted(left, key=lambda entry: -(entry[0].delta if entry[0] else 0.0))]
