"""A history seen as evidence: configurations with their runs, the noise, and the effect of each so far."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Effect, Phase
from nightlab.search.effects import estimate_effect, shrunk, standard_error
from nightlab.search.history import Cell, Trial, cells_of
from nightlab.search.noise import Noise, pooled_noise
from nightlab.search.space import configuration_key

__all__ = ["Evidence"]


@dataclass(frozen=True)
class Evidence:
    """Everything measured so far, by configuration."""

    study: Study
    cells: tuple[Cell, ...]
    confirming: tuple[int, ...] = ()
    """Numbers of the configurations in confirmation, the baseline left out, in the order they entered it."""
    before: tuple[Trial, ...] = ()
    """The runs planned before the first of these had one for confirmation."""

    @classmethod
    def of(cls, study: Study, trials: Iterable[Trial]) -> Evidence:
        planned = tuple(trials)
        fresh = [place for place, trial in enumerate(planned) if trial.phase == Phase.CONFIRM and trial.changed]
        confirming = dict.fromkeys(planned[place].number for place in fresh)
        return cls(study, cells_of(planned), tuple(confirming), planned[: fresh[0]] if fresh else planned)

    @cached_property
    def baseline(self) -> Cell:
        """The baseline with its runs; one without runs when none is planned yet."""
        unchanged = (cell for cell in self.cells if not cell.changed)
        return next(unchanged, Cell(0, dict(self.study.parameters), {}, ()))

    @cached_property
    def changes(self) -> tuple[Cell, ...]:
        """Every configuration but the baseline."""
        return tuple(cell for cell in self.cells if cell.changed)

    @cached_property
    def _by_changes(self) -> dict[str, Cell]:
        return {configuration_key(cell.changed): cell for cell in self.cells}

    def cell(self, changed: Mapping[str, Scalar]) -> Cell | None:
        """The configuration that differs from the baseline by exactly `changed`."""
        return self._by_changes.get(configuration_key(changed))

    @cached_property
    def noise(self) -> Noise:
        """Noise from all believable runs."""
        return pooled_noise(self.study, self.baseline.values, [cell.values for cell in self.changes])

    @cached_property
    def exploration_noise(self) -> Noise:
        """Noise from the runs before confirmation only."""
        return pooled_noise(self.study, self.baseline.explored, [cell.explored for cell in self.changes])

    @cached_property
    def look_noise(self) -> Noise:
        """Noise that the looks at finalists may use: what is tried while they run must not move the line they pass."""
        cells = cells_of(self.before)
        baseline = next((cell.explored for cell in cells if not cell.changed), ())
        return pooled_noise(self.study, baseline, [cell.explored for cell in cells if cell.changed])

    def effect(self, cell: Cell) -> Effect | None:
        """Improvement of `cell` over the baseline from all runs, unpaired; None without a run on either side."""
        if not cell.values or not self.baseline.values:
            return None
        return estimate_effect(self.study, cell.values, self.baseline.values, self.noise)

    def found_effect(self, cell: Cell) -> Effect | None:
        """The same from the runs before confirmation only: what finalists are chosen by."""
        if not cell.explored or not self.baseline.explored:
            return None
        return estimate_effect(self.study, cell.explored, self.baseline.explored, self.exploration_noise)

    def found_error(self, cell: Cell) -> float:
        """Standard error of `found_effect`."""
        return standard_error(self.exploration_noise, len(cell.explored), len(self.baseline.explored))

    @cached_property
    def _tried(self) -> list[tuple[float, float]]:
        """Effect and standard error of every change that has both."""
        effects = ((cell, self.effect(cell)) for cell in self.changes)
        return [(effect.delta, self._error(cell)) for cell, effect in effects if effect]

    def _error(self, cell: Cell) -> float:
        return standard_error(self.noise, len(cell.values), len(self.baseline.values))

    def likely_gain(self, cell: Cell) -> float | None:
        """The effect of `cell` shrunk towards those of all that was tried: what the luck of the best leaves of it."""
        effect = self.effect(cell)
        return shrunk(effect.delta, self._error(cell), self._tried) if effect and self.noise.degrees else None

    def improvement(self, value: float) -> float:
        """How much better `value` is than the baseline's mean."""
        return (1.0 if self.study.maximize else -1.0) * (value - fmean(self.baseline.values))
