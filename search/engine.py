"""The seam of the search: `propose(study, history, seed)`, a pure function."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, islice

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Phase, Proposal
from nightlab.search.confirmation import (
    confirmation_size,
    due_confirmations,
    exploration_left,
    finalists,
    fresh_seeds,
    reserved_size,
)
from nightlab.search.evidence import Evidence
from nightlab.search.history import Cell, History
from nightlab.search.orthogonal import ArrayPlan, array_plan, predicted_best
from nightlab.search.screening import new_levels, settling_seeds, tie_seeds
from nightlab.search.space import configuration_key, variable_slug, with_changes

__all__ = ["propose"]

HELD_FOR_ARRAY_SHARE = 0.25
HELD_FOR_ARRAY_RUNS = 8


def propose(study: Study, history: History, seed: int) -> list[Proposal]:
    """Everything that may start now, best first; the same arguments give the same proposals.

    Phases in order: baseline, single changes, further seeds for ties, orthogonal combination, confirmation. A phase
    that waits for the last runs of the one before lends its slots to runs that will be needed anyway.
    Empty with trials pending: wait for them. Empty with none pending: the search is over.
    """
    return _Planner(study, history, seed).plan()


@dataclass
class _Planner:
    """One call of `propose`: what is known, and what has been proposed so far in this call."""

    study: Study
    history: History
    seed: int
    proposals: list[Proposal] = field(default_factory=list)
    new: set[str] = field(default_factory=set)
    """Configurations proposed in this call that were never run."""

    @cached_property
    def evidence(self) -> Evidence:
        return Evidence.of(self.study, self.history.trials)

    @cached_property
    def found(self) -> Evidence:
        """The evidence without confirmation's runs, which must not choose what is confirmed."""
        return Evidence.of(self.study, [t for t in self.history.trials if t.phase != Phase.CONFIRM])

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
        self._screen()
        screening = not (self._combining or self._confirming)
        if screening and (self.proposals or self._waiting(Phase.BASELINE, Phase.SCREEN)):
            self._fill()
            return self.proposals
        self._combine()
        if self.proposals or self._waiting(Phase.COMBINE):
            # One run is kept for the predicted best.
            self._settle(exploration_left(self.study, self.history) - len(self.proposals) - 1)
            self._fill()
            return self.proposals
        self._confirm()
        self._settle(self.history.runs_left - len(self.proposals))
        if not self.proposals and not any(trial.state == "pending" for trial in self.history.trials):
            # There is nothing to confirm: what was kept for it may find something yet.
            spare = self.history.runs_left - reserved_size(self.study, self._total_runs).runs
            self._screen(spare if spare > 0 else self.history.runs_left)
        return self.proposals

    def _waiting(self, *phases: Phase) -> bool:
        return any(trial.state == "pending" and trial.phase in phases for trial in self.history.trials)

    @property
    def _combining(self) -> bool:
        return any(trial.phase == Phase.COMBINE for trial in self.history.trials)

    @property
    def _confirming(self) -> bool:
        return any(trial.phase == Phase.CONFIRM for cell in self.evidence.changes for trial in cell.trials)

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

    def _screen(self, spare: int = 0) -> None:
        """New levels and ties, from exploration's runs, or from `spare` ones where those are used up."""
        if self._combining or self._confirming:
            return
        runs = max(spare, exploration_left(self.study, self.history) - self._held_for_array(self._total_runs))
        experiments = self._experiments_left(self._held_for_array(self._total_experiments))
        for change in new_levels(self.evidence, self.history.factors):
            reason = f"single change: {_change(change.changed, self.study)} ({change.factor.reason or 'next in order'})"
            self._add(change.changed, 0, Phase.SCREEN, reason, runs=runs, experiments=experiments)
        for cell, seed in tie_seeds(self.evidence):
            reason = f"seed {seed} for {_change(cell.changed, self.study)}: too close to call so far"
            self._add(cell.changed, seed, Phase.SCREEN, reason, runs=runs)

    def _combine(self) -> None:
        if self.array is None or self._confirming:
            return
        runs, experiments = exploration_left(self.study, self.history), self._experiments_left(0)
        for row in self._rows_by_promise(self.array):
            reason = f"row {row} of {self.array.name}: {_change(self.array.changed(row), self.study)} together"
            self._add(self.array.changed(row), 0, Phase.COMBINE, reason, runs=runs, experiments=experiments)
        best = predicted_best(self.found, self.array) if not self.proposals and not self._waiting(Phase.COMBINE) else {}
        if best and self.evidence.cell(best) is None and not self._predicted_was_run(self.array):
            reason = f"the main effects predict the best from {_change(best, self.study)} together"
            self._add(best, 0, Phase.COMBINE, reason, runs=runs, experiments=experiments)

    def _rows_by_promise(self, array: ArrayPlan) -> list[int]:
        """Rows not yet run, those first whose single changes did best, so that a short budget sees the best ones."""
        cells = [self.found.cell(change.changed) for change in array.changes]
        effects = [self.found.found_effect(cell) if cell else None for cell in cells]
        gains = [effect.delta if effect else 0.0 for effect in effects]
        rows = [row for row in range(len(array.rows)) if self.evidence.cell(array.changed(row)) is None]
        promise = {row: sum(gain * on for gain, on in zip(gains, array.rows[row], strict=True)) for row in rows}
        return sorted(rows, key=lambda row: -promise[row])

    def _predicted_was_run(self, array: ArrayPlan) -> bool:
        combined = [trial.changed for trial in self.history.trials if trial.phase == Phase.COMBINE]
        return any(array.row_of(changed) is None for changed in combined)

    def _confirm(self) -> None:
        planned = sum(trial.phase == Phase.CONFIRM for trial in self.history.trials)
        size = confirmation_size(self.study, self.history.runs_left + planned)
        chosen = finalists(self.evidence, size.finalists, self._predicted_cell())
        for cell, seed in due_confirmations(self.evidence, chosen, self._fresh(size.seeds), self.history.runs_left):
            what = _change(cell.changed, self.study) if cell.changed else "the baseline beside the finalists"
            reason = f"confirm {what} on fresh seed {seed}"
            self._add(cell.changed, seed, Phase.CONFIRM, reason, runs=self.history.runs_left)

    def _predicted_cell(self) -> Cell | None:
        best = predicted_best(self.found, self.array) if self.array else {}
        return self.evidence.cell(best) if best else None

    def _settle(self, runs: int) -> None:
        """Further seeds for changes that may be without effect, from runs that nothing else needs."""
        limit = len(self.proposals) + max(0, runs)
        for cell, seed in settling_seeds(self.evidence):
            reason = f"seed {seed} for {_change(cell.changed, self.study)}: is it without effect?"
            self._add(cell.changed, seed, Phase.SCREEN, reason, runs=limit)

    def _fill(self) -> None:
        """The baseline on the fresh seeds of a confirmation that is sure to come, while slots would wait for it."""
        size = reserved_size(self.study, self._total_runs)
        if self.proposals or not size.finalists or not finalists(self.evidence, 1):
            return
        fresh, runs = self._fresh(size.seeds), self.history.runs_left
        for cell, seed in due_confirmations(self.evidence, [self.evidence.baseline], fresh, runs):
            reason = f"the baseline on fresh seed {seed}, for the confirmation to come"
            self._add(cell.changed, seed, Phase.CONFIRM, reason, runs=self.history.runs_left)

    def _fresh(self, number: int) -> list[int]:
        return fresh_seeds(self.history, self.seed, number)

    @cached_property
    def _total_runs(self) -> int:
        return self.history.runs_left + len(self.history.trials)

    @cached_property
    def _total_experiments(self) -> int | None:
        left = self.history.experiments_left
        return None if left is None else left + len(self.evidence.changes)

    def _held_for_array(self, total: int | None) -> int:
        """What screening leaves for the array, in runs or experiments."""
        if total is None or not self.study.search.combine:
            return 0
        free = total - self.study.search.baseline_replicates - reserved_size(self.study, total).runs
        return max(0, min(HELD_FOR_ARRAY_RUNS, int(free * HELD_FOR_ARRAY_SHARE)))

    def _experiments_left(self, held: int) -> int | None:
        left = self.history.experiments_left
        return None if left is None else left - held

    def _add(
        self,
        changed: dict[str, Scalar],
        seed: int,
        phase: Phase,
        reason: str,
        *,
        runs: int,
        experiments: int | None = None,
    ) -> None:
        """Append a proposal unless this call would then exceed `runs`, or `experiments` new configurations."""
        is_new = bool(changed) and self.evidence.cell(changed) is None
        if len(self.proposals) >= runs or (is_new and experiments is not None and len(self.new) >= experiments):
            return
        if is_new:
            self.new.add(configuration_key(changed))
        alone = next(iter(changed)) if len(changed) == 1 else None
        self.proposals.append(
            Proposal(
                parameters=with_changes(self.study, changed),
                changed=changed,
                variable=self._variable(changed),
                technique=self.technique.get(alone) if alone else None,
                phase=phase,
                seed=seed,
                reason=reason,
            )
        )

    def _variable(self, changed: dict[str, Scalar]) -> str:
        if not changed:
            return "baseline"
        if len(changed) == 1:
            return variable_slug(*next(iter(changed.items())))
        row = self.array.row_of(changed) if self.array else None
        return "combine-best" if row is None else f"combine-{row}"


def _change(changed: dict[str, Scalar], study: Study) -> str:
    return ", ".join(f"{name} {study.parameters[name]} → {value}" for name, value in changed.items())
