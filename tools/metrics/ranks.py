"""One value of what several processes of a run report: rank 0 speaks for all."""

from __future__ import annotations

from nightlab.configs.metric_source import MetricSource
from nightlab.errors import MetricError
from nightlab.tools.metrics.picks import Outcome, Tally

__all__ = ["RankTally"]

MOST_SOURCES = 1024
SPEAKERS = ("rank 0", "")
"""Who is believed, the first before the second: '' is a line that names no process."""


class RankTally:
    """As `Tally`, kept for each process; where rank 0 is silent and the others disagree there is no value."""

    def __init__(self, pick: MetricSource, *, maximize: bool) -> None:
        self._pick = pick.pick
        self._maximize = maximize
        self._tallies: dict[str, Tally] = {}

    def add(self, outcome: Outcome, source: str) -> None:
        if source not in self._tallies and (source in SPEAKERS or len(self._tallies) < MOST_SOURCES):
            self._tallies[source] = Tally(self._pick, maximize=self._maximize)
        if source in self._tallies:
            self._tallies[source].add(outcome)

    def result(self) -> float | None:
        """The value that counts; None when nothing was added. Raises the MetricError of a value that counts."""
        for speaker in SPEAKERS:
            if speaker in self._tallies:
                return self._tallies[speaker].result()
        values = {source: tally.result() for source, tally in self._tallies.items()}
        if len(set(values.values())) > 1:
            said = ", ".join(f"{source}: {value:.6g}" for source, value in [*values.items()][:4])
            raise MetricError(f"processes disagree and none is rank 0 ({said})", cause="metric-ambiguous")
        return next(iter(values.values()), None)
