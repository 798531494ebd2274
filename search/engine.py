"""The seam of the search: `propose(study, history, seed)`, a pure function."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice

from nightlab.configs.code import is_idea
from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Phase, Proposal
from nightlab.search.confirmation import (
    ConfirmationSize,
    confirmation_size,
    due_confirmations,
    exploration_left,
    finalists,
    fresh_seeds,
    lendable,
    lent_size,
    needs_no_first_look,
    reserved_size,
)
from nightlab.search.coverage import Coverage
from nightlab.search.evidence import Evidence
from nightlab.search.fidelity import due_at_low, guesses, screened_at_low
from nightlab.search.history import Cell, History
from nightlab.search.landscape import Landscape
from nightlab.search.lattice import Lattice, Point
from nightlab.search.leaving_out import RUNS_EACH, left_out, winner
from nightlab.search.looks import standing
from nightlab.search.low_runs import total_runs
from nightlab.search.moves import joint_moves
from nightlab.search.orthogonal import ArrayPlan, array_plan, predicted_best, rows_by_promise
from nightlab.search.reasons import change_text, choice_reason, choice_variable
from nightlab.search.refinement import MOST_REPEATS, Choice, Chooser, recipe, repeat_due, worth_trying
from nightlab.search.saturation import data_first
from nightlab.search.screening import next_seed, opening_moves, settling_seeds
from nightlab.search.space import configuration_key, variable_slug, with_changes

__all__ = ["lookahead", "propose"]

SLOTS_AHEAD = 32
"""Of so many slots one more may end before anything is planned again."""
FEWEST_SCREENED = 7
"""Configurations to screen even where there are few factors."""
LEVELS_SCREENED = 2
"""Levels of each factor that are tried alone before anything is combined: both directions, or the two best guesses."""
MOST_SCREENED_SHARE = 0.5
"""Share of what there is to explore that screening takes at most."""
EXPLORED = (Phase.SCREEN, Phase.COMBINE, Phase.REFINE)
LATE_SHARE = 0.02
"""Share of exploration's runs that may still be out when the finalists are chosen."""
RACE_SHARE = 0.3
"""Last share of exploration in which the leaders are run again before anything new is tried."""
UNCONFIRMED_RACE_SHARE, FEWEST_RACE_RUNS = 0.15, 2
"""The same where nothing is confirmed afterwards; of a few runs none is to spare for it."""
FIRST_LOOK_SHARE = 0.3
"""Share of what is expected of the best choice from which a level that nothing has held yet is tried before it."""
RACE = (2, 2, 1, 1, 1)
"""Further runs of the first, the second … of the leaders before the finalists are chosen, times `replicate_ties`."""


def lookahead(study: Study) -> int:
    """How many runs are proposed beyond the free slots, so that the next ones are prepared when some end."""
    return 1 + study.backend.slots // SLOTS_AHEAD


def propose(study: Study, history: History, seed: int) -> list[Proposal]:
    """What may start now, best first, for the free slots and one more; the same arguments give the same proposals.

    Phases in order: baseline, single changes around the incumbent, orthogonal combination, refinement by the surrogate,
    confirmation. A phase that waits for the last runs of the one before lends its slots to the next. Where tuning gains
    no more, what is left to try of the data comes before whatever else explores.
    Empty with trials pending: wait for them. Empty with none pending: the search is over.
    """
    return data_first(study, history, _Planner(study, history, seed).plan())


@dataclass
class _Planner:
    """One call of `propose`: what is known, and what has been proposed so far in this call."""

    study: Study
    history: History
    seed: int
    proposals: list[Proposal] = field(default_factory=list)
    new: set[str] = field(default_factory=set)
    """Configurations proposed in this call that were never run."""
    points: list[Point] = field(default_factory=list)
    """Where they lie."""
    spare: bool = False
    """Whether exploration takes what was kept for a confirmation that has nothing to confirm."""
    lending: bool = False
    """Whether exploration takes what is kept for slots that wait."""

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence.of(self.study, self.history.trials)

    @cached_property
    def found(self) -> Evidence:
        """The evidence without confirmation's runs, which must not choose what is confirmed."""
        return Evidence.of(self.study, [t for t in self.history.trials if t.phase != Phase.CONFIRM])

    @cached_property
    def lattice(self) -> Lattice:
        return Lattice.of(self.study, self.history.factors, self.history.forbidden)

    @cached_property
    def landscape(self) -> Landscape:
        return Landscape.of(self.lattice, self.found, guesses(self.study, self.history, self.lattice, self.found))

    @cached_property
    def array(self) -> ArrayPlan | None:
        return array_plan(self.study, self.history) if self.study.search.combine else None

    @cached_property
    def technique(self) -> dict[str, str | None]:
        return {factor.name: factor.technique for factor in self.history.factors}

    def plan(self) -> list[Proposal]:
        baseline = self.evidence.baseline
        given_up = len(baseline.trials) >= self.study.search.baseline_replicates and not baseline.pending
        if given_up and not baseline.values:
            return []
        self._baseline()
        if not self.lattice.axes:
            return self.proposals
        self._look_first()
        if not baseline.values:
            self._open()
        elif not self._confirming:
            self._explore()
        if self.proposals:
            return self.proposals
        choosing = not self._confirming and (self._is_choosing or self._expecting)
        if choosing:
            self._confirm_ahead()
        else:
            self._confirm()
            self._settle(self.history.runs_left - len(self.proposals) - self._kept_for_looks())
        if self._wanted > 0 and self._pending:
            self.lending = True
            self._explore()
        if not self.proposals and not self._pending and not self._confirming and not self._expecting:
            # There is nothing to confirm: what was kept for it may find something yet.
            self.spare = True
            self._explore()
        return self.proposals

    @cached_property
    def _pending(self) -> int:
        return sum(trial.state == "pending" for trial in (*self.history.trials, *self.history.low))

    def _waiting(self, *phases: Phase) -> bool:
        return any(trial.state == "pending" and trial.phase in phases for trial in self.history.trials)

    @property
    def _is_choosing(self) -> bool:
        """Whether runs are out that should tell who the finalists are; of many the last few do not matter."""
        if self._waiting(Phase.BASELINE):
            return True
        found = [trial for trial in self.history.trials if trial.phase in EXPLORED]
        kept = lent_size(self.study, self._total_runs)
        lent = max(0, kept - lendable(self.study, self.history))
        counted = found[: len(found) - lent]
        return sum(trial.state == "pending" for trial in counted) > int(LATE_SHARE * len(counted))

    @property
    def _expecting(self) -> bool:
        """Whether an idea may come that could still be tried."""
        return self.history.expecting and self._exploration_left > 0 and self.history.experiments_left != 0

    @property
    def _racing(self) -> list[Cell]:
        """The finalists that are not decided yet."""
        started = [cell for cell in self.evidence.changes if cell.number in self.evidence.confirming]
        return [cell for cell in started if standing(self.evidence, cell) in ("started", "open")]

    @property
    def _confirming(self) -> bool:
        return any(trial.phase == Phase.CONFIRM for cell in self.evidence.changes for trial in cell.trials)

    @property
    def _left(self) -> int:
        """Runs that exploration may still take."""
        if self.spare:
            return self.history.runs_left
        return self._lendable if self.lending else self._exploration_left

    @cached_property
    def _exploration_left(self) -> int:
        return exploration_left(self.study, self.history)

    @property
    def _lendable(self) -> int:
        """Runs, those of this call among them, that leave enough for all that confirmation may need."""
        reserved = reserved_size(self.study, self._total_runs).runs - self._confirm_runs
        left_out = self._kept_for_leaving_out(winner(self.evidence) if self._looking else None, *self._racing)
        after = self._kept_for_looks() + left_out if self._confirming else 0
        planned = sum(proposal.phase == Phase.CONFIRM for proposal in self.proposals)
        kept = max(0, max(reserved, after) - planned)
        return max(0, self.history.runs_left - self.history.margin - kept)

    @property
    def _wanted(self) -> int:
        """How many more configurations to think about."""
        return self.study.backend.slots + lookahead(self.study) - self._pending - len(self.proposals)

    def _baseline(self) -> None:
        """Replicates; one that failed is made up for, at most once each."""
        wanted = self.study.search.baseline_replicates
        own = [trial for trial in self.evidence.baseline.trials if trial.phase == Phase.BASELINE]
        failed = sum(trial.state != "pending" and trial.usable is None for trial in own)
        missing = min(wanted - (len(own) - failed), 2 * wanted - len(own))
        if failed and not any(trial.usable is not None for trial in own):
            # As long as it has never run well, more seeds would only tell so again.
            missing = wanted - len(own)
        unused = (seed for seed in count() if seed not in self.evidence.baseline.seeds)
        for seed in islice(unused, max(0, missing)):
            reason = f"baseline replicate {seed + 1}: what to beat, and how much the metric varies between seeds"
            self._add({}, seed, Phase.BASELINE, reason, runs=self.history.runs_left)

    def _look_first(self) -> None:
        """Single changes at low fidelity, before anything is combined."""
        if self._combining or self._confirming:
            return
        due = due_at_low(self.study, self.history, self.lattice, self._explorable)
        self.proposals += due[: max(0, min(self._wanted, self._exploration_left - len(self.proposals)))]

    def _open(self) -> None:
        """Before the baseline has a value: what is to be run in any case."""
        for point in self._opening:
            if self._wanted <= 0:
                break
            if self.evidence.cell(self.lattice.changed(point)) is None:
                self._try(Choice(point, 0.0, self._moves(point, self.lattice.baseline)), Phase.SCREEN)

    @cached_property
    def _opening(self) -> list[Point]:
        together = recipe(self.lattice)
        pairs = joint_moves(self.lattice, self.lattice.baseline)
        few = islice((pair for pair in pairs if self.lattice.allowed(pair)), self.study.backend.slots)
        return list(dict.fromkeys([*([together] if together else []), *opening_moves(self.lattice), *few]))

    def _explore(self) -> None:
        self._try_ideas()
        screened = sum(any(t.phase == Phase.SCREEN for t in cell.trials) for cell in self.evidence.changes)
        if not self._combining and screened < self._screen_size:
            self._screen(self._screen_size - screened)
        else:
            self._combine()
        if self._wanted > 0:
            self._refine()

    def _try_ideas(self) -> None:
        """Each code idea that no configuration has held yet, alone beside the incumbent: it was asked for to be tried.

        Beside the baseline where it cannot stand beside the incumbent.
        """
        axes = list(enumerate(self.lattice.axes))
        for index, axis in axes:
            name = axis.factor.name
            held = (*(cell.parameters for cell in self.evidence.cells), *(one.parameters for one in self.proposals))
            if not is_idea(name) or self._wanted <= 0 or any(parameters.get(name) is True for parameters in held):
                continue
            moves = [
                (at, other.preferred[0]) for at, other in axes if other.factor.name in (name, *axis.factor.requires)
            ]
            points = [
                self.lattice.moved(centre, *moves) for centre in (self.landscape.incumbent, self.lattice.baseline)
            ]
            fitting = [point for point in points if self.lattice.allowed(point) and point[index] != axis.baseline]
            if fitting:
                centre = self.landscape.incumbent if fitting[0] == points[0] else self.lattice.baseline
                self._try(Choice(fitting[0], 0.0, self._moves(fitting[0], centre)), Phase.SCREEN)

    @property
    def _combining(self) -> bool:
        return any(trial.phase == Phase.COMBINE for trial in self.history.trials)

    @property
    def _screen_size(self) -> int:
        """Configurations to screen: two levels a factor where the budget bears it, and one a slot."""
        levels = sum(min(LEVELS_SCREENED, len(axis.preferred)) for axis in self.lattice.axes)
        wanted = max(FEWEST_SCREENED, levels, self.study.backend.slots)
        if self.history.low:
            wanted = min(wanted, max(FEWEST_SCREENED, screened_at_low(self.history), self.study.backend.slots))
        free = self._explorable
        if self.history.experiments_left is not None:
            free = min(free, self.history.experiments_left + len(self.evidence.changes))
        return min(wanted, max(1, int(MOST_SCREENED_SHARE * free)))

    @property
    def _explorable(self) -> int:
        """Runs that exploration has in all."""
        reserved = reserved_size(self.study, self._total_runs).runs
        return self._total_runs - self.study.search.baseline_replicates - reserved

    def _screen(self, left: int) -> None:
        """Moves of one variable around the incumbent; the factors never moved before the end of screening."""
        together = recipe(self.lattice)
        if together and self._wanted > 0 and together not in self.landscape.known:
            self._try(Choice(together, 0.0, self._moves(together, self.lattice.baseline)), Phase.SCREEN)
        left -= sum(proposal.phase == Phase.SCREEN for proposal in self.proposals)
        if left <= 0 or self._wanted <= 0:
            return
        chooser = self._chooser(alone=True)
        # One at a time, as a lab that was killed after the first would plan the second.
        for _ in range(left):
            choice = (chooser.holding(self._untried()) or chooser.best()) if self._wanted > 0 else None
            if choice is None or not self._try(choice, Phase.SCREEN):
                break
            chooser.take(choice)

    @cached_property
    def _coverage(self) -> Coverage:
        return Coverage(self.lattice, [*self.landscape.known, *(seen.point for seen in self.landscape.guesses)])

    def _untried(self) -> list[tuple[int, int]]:
        """Levels that no configuration has held yet, `(axis, position)`, of what means something at the incumbent."""
        incumbent = self.landscape.incumbent
        active = [axis for axis in range(len(incumbent)) if self.lattice.active(incumbent, axis)]
        return self._coverage.untried(self.points, active)

    @property
    def _proposed(self) -> list[Point]:
        """Points that this call proposes and that were never run."""
        return [point for point in self.points if point not in self.landscape.known]

    def _chooser(self, *, alone: bool) -> Chooser:
        flying = [seen.point for seen in self.landscape.seen if seen.pending and seen.value is None]
        most = max(1, self._wanted)
        return Chooser(self.landscape, [*flying, *self._proposed], self.seed, alone=alone, most=most)

    def _combine(self) -> None:
        """The rows of the array, then the best that they predict."""
        if self.array is None:
            return
        begun = any(trial.phase == Phase.COMBINE for trial in self.history.trials)
        if not begun and self._waiting(Phase.BASELINE, Phase.SCREEN):
            # The array depends on all of screening; the slots try what comes after it meanwhile.
            return
        runs, experiments = self._left, self.history.experiments_left
        for row in rows_by_promise(self.evidence, self.landscape, self.array):
            reason = f"row {row} of {self.array.name}: {change_text(self.array.changed(row), self.study)} together"
            self._add(self.array.changed(row), 0, Phase.COMBINE, reason, runs=runs, experiments=experiments)
        best = predicted_best(self.found, self.array) if not self.proposals and not self._waiting(Phase.COMBINE) else {}
        if best and self.evidence.cell(best) is None and not self._predicted_was_run(self.array):
            reason = f"the main effects predict the best from {change_text(best, self.study)} together"
            self._add(best, 0, Phase.COMBINE, reason, runs=runs, experiments=experiments)

    def _predicted_was_run(self, array: ArrayPlan) -> bool:
        combined = [trial.changed for trial in self.history.trials if trial.phase == Phase.COMBINE]
        return any(array.row_of(changed) is None for changed in combined)

    def _refine(self) -> None:
        """The most promising configurations by the surrogate; at the end of exploration its leaders again."""
        chooser: Chooser | None = None
        # One at a time, as a lab that was killed after the first would plan the second.
        while self._wanted > 0:
            if self._race():
                continue
            chooser = chooser or self._chooser(alone=False)
            if not self._refine_once(chooser):
                break

    def _refine_once(self, chooser: Chooser) -> bool:
        choice = chooser.best()
        if choice is None:
            return False
        if first := self._first_look(chooser, choice):
            return self._take(chooser, first)
        leader = self.evidence.cell(self.lattice.changed(self.landscape.incumbent))
        further = self.study.search.replicate_ties > 0
        due = further and leader is not None and repeat_due(self.landscape, choice.expected_improvement)
        if due and leader and self._repeat(leader, "the best so far, on too few runs to be sure of"):
            return True
        if not worth_trying(self.landscape, choice, self.study.objective.min_effect):
            if self.history.expecting or self.spare:
                # An idea that is being thought of is worth more than what nothing is expected of; and where there is
                # nothing to confirm, the night may as well be over.
                return False
            if further and self._repeat_leader([MOST_REPEATS] * len(RACE)):
                return True
            # The surrogate may be wrong, and the runs are there to be used: next to the best it is wrong most often.
            choice = chooser.nearest() or choice
        return self._take(chooser, choice)

    def _take(self, chooser: Chooser, choice: Choice) -> bool:
        if not self._try(choice, Phase.REFINE):
            return False
        chooser.take(choice)
        return True

    def _first_look(self, chooser: Chooser, choice: Choice) -> Choice | None:
        """A move to a level that no configuration has held yet, before `choice` of which not much more is expected.

        Of such a level the surrogate knows only what others tell, and where noise is large it takes all for equal.
        Where it expects more than the noise of a run, it is followed.
        """
        if choice.expected_improvement > self.landscape.run_noise:
            return None
        first = chooser.holding(self._untried())
        if first is None or first.expected_improvement >= FIRST_LOOK_SHARE * choice.expected_improvement:
            return first
        hopeless = not worth_trying(self.landscape, choice, self.study.objective.min_effect)
        return first if hopeless and not self.history.expecting else None

    def _race(self) -> bool:
        """The end of exploration: a further seed for those that may be the best, so that luck picks no finalist."""
        left = self._left - len(self.proposals)
        found = sum(trial.phase in EXPLORED for trial in self.history.trials) + len(self.proposals)
        confirms = self.study.search.confirm
        runs = (RACE_SHARE if confirms else UNCONFIRMED_RACE_SHARE) * (left + found)
        if left > runs or (runs < FEWEST_RACE_RUNS and not confirms):
            return False
        return self._repeat_leader([1 + self.study.search.replicate_ties * further for further in RACE])

    def _repeat_leader(self, most: Sequence[int]) -> bool:
        """A further seed for the first of those that may be the best that has fewer than so many runs."""
        for point, runs in zip(self.landscape.leaders(len(most)), most, strict=False):
            cell = self.evidence.cell(self.lattice.changed(point))
            if cell and len(cell.trials) < runs and self._repeat(cell, "is its lead more than luck?"):
                return True
        return False

    def _repeat(self, cell: Cell, why: str) -> bool:
        """Another seed for a configuration; False where one is already on its way."""
        if not cell.changed or cell.pending or cell.rejected or cell.number in self._repeated:
            return False
        self._repeated.add(cell.number)
        seed = next_seed(cell)
        reason = f"seed {seed} for {change_text(cell.changed, self.study)}: {why}"
        return self._add(cell.changed, seed, Phase.REFINE, reason, runs=self._left)

    def _try(self, choice: Choice, phase: Phase) -> bool:
        """Propose a point of the lattice, within exploration's budget; False where that is used up."""
        runs, experiments = self._left, self.history.experiments_left
        centre = self.landscape.incumbent if self.evidence.baseline.values else self.lattice.baseline
        changed = self.lattice.changed(choice.point)
        reason = choice_reason(self.lattice, choice, centre)
        variable = choice_variable(self.lattice, choice)
        alone = self.lattice.axes[choice.moved[0]].factor.technique if len(choice.moved) == 1 else None
        return self._add(
            changed, 0, phase, reason, runs=runs, experiments=experiments, variable=variable, technique=alone
        )

    def _moves(self, point: Point, centre: Point) -> tuple[int, ...]:
        return tuple(axis for axis in range(len(point)) if point[axis] != centre[axis])

    @cached_property
    def _confirm_runs(self) -> int:
        return sum(trial.phase == Phase.CONFIRM for trial in self.history.trials)

    @cached_property
    def _size(self) -> ConfirmationSize:
        return confirmation_size(self.study, self.history.runs_left + self._confirm_runs)

    def _kept_for_looks(self) -> int:
        """Runs that a finalist who is not decided yet may still need, and which nothing else may take before."""
        fresh = [sum(trial.phase == Phase.CONFIRM for trial in cell.trials) for cell in self._racing]
        return 2 * max((self._size.seeds - pairs for pairs in fresh), default=0)

    def _confirm(self) -> None:
        if not self.study.search.confirm:
            return
        size = self._size
        chosen = finalists(self.evidence, size.finalists, self._predicted_cell())
        if any(standing(self.evidence, cell) == "won" for cell in chosen):
            # Another winner tells less than what the first one needs of its changes, and what is without effect.
            chosen = [cell for cell in chosen if cell.number in self.evidence.confirming]
        seeds, left = self._fresh(size.seeds), self.history.runs_left
        for cell, seed in due_confirmations(self.evidence, chosen, seeds, left, at_once=self._at_once):
            what = change_text(cell.changed, self.study) if cell.changed else "the baseline beside the finalists"
            reason = f"confirm {what} on fresh seed {seed}"
            self._add(cell.changed, seed, Phase.CONFIRM, reason, runs=self.history.runs_left)

    def _confirm_ahead(self) -> None:
        """Until the last runs tell who the finalists are, the baseline's own half of their first pairs."""
        size = self._size
        affordable = size.runs <= self.history.runs_left + self._confirm_runs
        if not self.study.search.confirm or not affordable or not finalists(self.found, 1):
            return
        seeds = self._fresh(size.seeds if self._at_once else size.first)
        missing = [seed for seed in seeds if seed not in self.evidence.baseline.seeds]
        for seed in missing[: max(0, self._wanted)]:
            reason = f"confirm the baseline beside the finalists on fresh seed {seed}"
            self._add({}, seed, Phase.CONFIRM, reason, runs=self.history.runs_left)

    @cached_property
    def _at_once(self) -> bool:
        return needs_no_first_look(self.study, self._total_runs)

    def _predicted_cell(self) -> Cell | None:
        """The incumbent: what its neighbours tell of it counts, so that luck with a single run does not choose.

        Without the changes that gain it nothing.
        """
        if not self.landscape.measured:
            return None
        changed = self.lattice.changed(self.landscape.simplest(self.study.objective.min_effect))
        return self.evidence.cell(changed) if changed else None

    def _settle(self, runs: int) -> None:
        """What the winner needs of its changes, and which are without effect, from runs that nothing else needs."""
        limit = len(self.proposals) + max(0, runs)
        if self._looking:
            # Another one may win by more: until that is known the runs are kept for whoever it is.
            limit -= self._kept_for_leaving_out(winner(self.evidence))
        else:
            self._leave_out(limit)
        for cell, seed in settling_seeds(self.evidence):
            reason = f"seed {seed} for {change_text(cell.changed, self.study)}: is it without effect?"
            self._add(cell.changed, seed, Phase.SCREEN, reason, runs=limit)

    @property
    def _looking(self) -> bool:
        """Whether a run for confirmation is out or to come, so that more may be confirmed."""
        return self._waiting(Phase.CONFIRM) or any(proposal.phase == Phase.CONFIRM for proposal in self.proposals)

    def _leave_out(self, limit: int) -> None:
        """The winner without each of its changes."""
        whole, left = winner(self.evidence), self.history.experiments_left
        for name, changed, seed in left_out(self.evidence, self.lattice, whole) if whole else ():
            reason = f"the winner without its change of {name}, seed {seed}: does it need it?"
            variable = variable_slug("without", name)
            self._add(changed, seed, Phase.REFINE, reason, runs=limit, experiments=left, variable=variable)

    @staticmethod
    def _kept_for_leaving_out(*cells: Cell | None) -> int:
        return RUNS_EACH * max((len(cell.changed) for cell in cells if cell), default=0)

    @cached_property
    def _repeated(self) -> set[int]:
        return set()

    @cached_property
    def _total_runs(self) -> int:
        return total_runs(self.study, self.history)

    def _fresh(self, number: int) -> list[int]:
        return fresh_seeds(self.history, self.seed, number)

    def _add(
        self,
        changed: dict[str, Scalar],
        seed: int,
        phase: Phase,
        reason: str,
        *,
        runs: int,
        experiments: int | None = None,
        variable: str | None = None,
        technique: str | None = None,
    ) -> bool:
        """Append a proposal unless this call would then exceed `runs`, or `experiments` new configurations."""
        cell = self.evidence.cell(changed)
        if cell and seed in cell.seeds:
            # The ledger would take it for the run that there is, and the night would wait for it for ever.
            return False
        is_new = bool(changed) and cell is None
        if len(self.proposals) >= runs or (is_new and experiments is not None and len(self.new) >= experiments):
            return False
        if is_new:
            self._hold(changed)
        alone = next(iter(changed)) if len(changed) == 1 else None
        self.proposals.append(
            Proposal(
                parameters=with_changes(self.study, changed),
                changed=changed,
                variable=variable or self._variable(changed),
                technique=technique or (self.technique.get(alone) if alone else None),
                phase=phase,
                seed=seed,
                reason=reason,
            )
        )
        return True

    def _hold(self, changed: dict[str, Scalar]) -> None:
        """A configuration that was never run is proposed."""
        self.new.add(configuration_key(changed))
        point = self.lattice.point_of(with_changes(self.study, changed))
        if point is not None:
            self.points.append(point)

    def _variable(self, changed: dict[str, Scalar]) -> str:
        if not changed:
            return "baseline"
        if len(changed) == 1:
            return variable_slug(*next(iter(changed.items())))
        row = self.array.row_of(changed) if self.array else None
        return "combine-best" if row is None else f"combine-{row}"
