"""How busy the slots are: simulated nights with 8, 64 and 512 of them and heavy-tailed runs.

`python -m bench.utilisation` plays them with the real search and writes `bench/results/utilisation.md`. The seconds
that planning takes on this machine are seconds of the night, during which ended runs leave their slots empty.
"""

from __future__ import annotations

import argparse
import heapq
import math
import sys
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.search_report import machine_line
from nightlab.configs.study import Factor, Scalar, Study
from nightlab.search.engine import lookahead, propose
from nightlab.search.history import History, Trial
from nightlab.search.ranking import rank_factors
from nightlab.search.space import configuration_key
from tests.search.simulate import make_study

__all__ = ["DURATIONS", "SlotNight", "Use", "main", "response", "slot_study"]

RESULTS = Path(__file__).with_name("results") / "utilisation.md"
SLOTS = (8, 64, 512)
RUNS_PER_SLOT = 20
MEAN_SECONDS = 600.0
"""Of a run."""
GOAL = 0.97
PAUSE_SECONDS = 10.0
"""The lab plans once in so long at most, as it reads and reviews results in between."""
NOISE_SD = 0.02
BASELINE: Mapping[str, Scalar] = {f"factor_{index}": 2 for index in range(10)} | {"schedule": "a", "optimizer": "a"}
SPACE: Mapping[str, Factor] = {f"factor_{index}": Factor(levels=[0, 1, 3, 4]) for index in range(10)} | {
    "schedule": Factor(levels=["b", "c"]),
    "optimizer": Factor(levels=["b", "c"]),
}

Duration = Callable[[np.random.Generator], float]
DURATIONS: Mapping[str, Duration] = {
    "lognormal, σ 0.5": lambda random: float(random.lognormal(-0.125, 0.5)),
    "lognormal, σ 1": lambda random: float(random.lognormal(-0.5, 1.0)),
    "Pareto, α 2.5": lambda random: 0.6 * float(1 + random.pareto(2.5)),
}
"""Draws with mean 1."""


def slot_study(slots: int) -> Study:
    """Twelve factors with 5^10 · 3^2 configurations, for so many runs side by side."""
    study = make_study(dict(BASELINE), dict(SPACE), min_effect=0.01)
    return study.model_copy(update={"backend": study.backend.model_copy(update={"slots": slots})})


def response(parameters: Mapping[str, Scalar]) -> float:
    """A bowl whose sides differ, with one interaction and a cost for each wrong category."""
    places = [float(parameters[f"factor_{index}"]) for index in range(10)]
    value = sum(0.03 / (1 + index) * (place - 1.0 - 0.2 * index) ** 2 for index, place in enumerate(places))
    value += 0.01 * (places[0] - places[1]) ** 2
    return value + 0.03 * (parameters["schedule"] != "b") + 0.02 * (parameters["optimizer"] != "c")


@dataclass(frozen=True)
class Use:
    """What became of the slots' time between the first submission and the last end, in shares of it."""

    busy: float
    ceiling: float
    """The same runs in the same order, each started the moment a slot is free."""
    before_last: float
    """Busy, up to the last submission."""
    planning: float
    """Empty while a plan was being made."""
    waiting: float
    """Empty before the last submission, as nothing was proposed."""
    tail: float
    """Empty after the last submission."""
    runs: int
    plan_seconds: tuple[float, float]
    """Of one call of `propose`: median and longest."""


@dataclass
class SlotNight:
    """One night: runs that end, one planner, and what was planned ahead for the next free slots."""

    study: Study
    runs: int
    duration: Duration
    seed: int = 0
    planning_scale: float = 1.0
    """Seconds of the night for one second of planning; 0: planning takes no time."""
    trials: list[Trial] = field(default_factory=list)
    plan_seconds: list[float] = field(default_factory=list)
    starts: list[tuple[float, float]] = field(default_factory=list)
    """Start and end of each run, seconds."""
    idle: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Empty slot-seconds by their cause."""
    clock: float = 0.0

    def __post_init__(self) -> None:
        self._factors = rank_factors(self.study, self.study.space, tiers={}, priors={})
        self._numbers: dict[str, int] = {configuration_key(self.study.parameters): 0}
        self._ends: list[tuple[float, int]] = []
        self._ahead: deque[int] = deque()
        self._planned_at = 0.0
        self._since_last: dict[str, float] = defaultdict(float)

    @property
    def _slots(self) -> int:
        return self.study.backend.slots

    def play(self) -> Use:
        """The whole night."""
        while self.step():
            pass
        return self._use()

    def step(self) -> bool:
        """Plans, and lets the next run end; False when the night is over."""
        if not self._plan() and not self._ends:
            return False
        self._until(max(self._ends[0][0], self._planned_at + PAUSE_SECONDS), "waiting")
        return True

    @property
    def history(self) -> History:
        return History(self._factors, tuple(self.trials), runs_left=self.runs - len(self.trials))

    def _plan(self) -> bool:
        """One call of the planner and what it leads to; False where it has nothing to propose."""
        history = self.history
        self._planned_at = self.clock
        before = time.process_time()
        proposals = propose(self.study, history, 0)
        seconds = time.process_time() - before
        self.plan_seconds.append(seconds)
        self._until(self.clock + seconds * self.planning_scale, "planning")
        flying = sum(trial.state == "pending" for trial in history.trials)
        for proposal in proposals[: self._slots + lookahead(self.study) - flying]:
            number = self._numbers.setdefault(configuration_key(proposal.parameters), len(self._numbers))
            self._ahead.append(len(self.trials))
            self.trials.append(
                Trial(number, proposal.parameters, proposal.changed, proposal.seed, proposal.phase, "pending")
            )
        self._fill()
        return bool(proposals)

    def _until(self, then: float, cause: str) -> None:
        """Lets the time pass; whatever ends makes room for what was planned ahead."""
        while self._ends and self._ends[0][0] <= then:
            end, index = heapq.heappop(self._ends)
            self._pass(end, cause, 1)
            self.trials[index] = self._outcome(self.trials[index])
            self._fill()
        self._pass(then, cause, 0)

    def _pass(self, then: float, cause: str, ending: int) -> None:
        empty = self._slots - len(self._ends) - ending
        if self.starts:
            self._since_last[cause] += empty * (then - self.clock)
        self.clock = then

    def _fill(self) -> None:
        while self._ahead and len(self._ends) < self._slots:
            index = self._ahead.popleft()
            end = self.clock + MEAN_SECONDS * self.duration(self._random(self.trials[index], 1))
            heapq.heappush(self._ends, (end, index))
            self.starts.append((self.clock, end))
            for cause, seconds in self._since_last.items():
                self.idle[cause] += seconds
            self._since_last.clear()

    def _random(self, trial: Trial, stream: int) -> np.random.Generator:
        configuration = zlib.crc32(configuration_key(trial.parameters).encode())
        return np.random.default_rng([self.seed, configuration, trial.seed, stream])

    def _outcome(self, trial: Trial) -> Trial:
        value = response(trial.parameters) + float(self._random(trial, 0).normal(0.0, NOISE_SD))
        return replace(trial, state="measured", value=value)

    def _use(self) -> Use:
        first, last = self.starts[0][0], self.starts[-1][0]
        end = max(end for _, end in self.starts)
        busy = sum(end - start for start, end in self.starts)
        early = sum(min(end, last) - start for start, end in self.starts)
        whole, before = self._slots * (end - first), self._slots * (last - first)
        return Use(
            busy=busy / whole,
            ceiling=busy / (self._slots * self._shortest()),
            before_last=early / before if before else 1.0,
            planning=self.idle["planning"] / whole,
            waiting=self.idle["waiting"] / whole,
            tail=(whole - busy - sum(self.idle.values())) / whole,
            runs=len(self.starts),
            plan_seconds=(float(np.median(self.plan_seconds)), max(self.plan_seconds)),
        )

    def _shortest(self) -> float:
        """Seconds that the runs take in their order where no slot is ever empty before the last of them has started."""
        free = [0.0] * self._slots
        for start, end in self.starts:
            heapq.heapreplace(free, free[0] + end - start)
        return max(free)


def measure(slots: int, name: str, runs_per_slot: int, nights: int) -> list[Use]:
    """How the slots were used in each of some nights; one of many slots is as good a mean as several of few."""
    study = slot_study(slots)
    seeds = range(max(1, math.ceil(nights * SLOTS[0] / slots)))
    return [SlotNight(study, slots * runs_per_slot, DURATIONS[name], seed).play() for seed in seeds]


def _row(slots: int, name: str, uses: Sequence[Use]) -> str:
    parts = ("busy", "ceiling", "before_last", "planning", "waiting", "tail")
    shares = [f"{np.mean([getattr(use, part) for use in uses]):.3f}" for part in parts]
    median = np.median([use.plan_seconds[0] for use in uses])
    longest = max(use.plan_seconds[1] for use in uses)
    runs = np.mean([use.runs for use in uses])
    return f"| {slots} | {name} | {len(uses)} | {runs:.0f} | {' | '.join(shares)} | {median:.2f} | {longest:.2f} |"


COLUMNS = (
    "slots",
    "durations",
    "nights",
    "runs",
    "busy",
    "ceiling",
    "up to the last submission",
    "lost: planning",
    "lost: waiting",
    "lost: tail",
    "seconds a plan, median",
    "longest",
)


def page(rows: Sequence[str]) -> str:
    """The results as a Markdown page."""
    lines = [
        "# How busy the slots are",
        "",
        machine_line(),
        "",
        f"Share of slot-seconds with a run on it, between first submission and last end; the goal is {GOAL:g}.",
        f"Runs last {MEAN_SECONDS:.0f} s on average. The time that planning takes on this machine (CPU seconds of",
        f"one core) counts as it is. The lab plans once in {PAUSE_SECONDS:.0f} s at most.",
        "`make bench-utilisation` measures again.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|" + " ---: |" * len(COLUMNS),
        *rows,
        "",
        "*Ceiling*: the same runs in the same order, each started the moment a slot is free, planned in no time. What",
        "does not know how long a run will take cannot do much better: at the end of a night slots are empty while the",
        "last runs end. *Up to the last submission*: without that end. *Lost*: empty while a plan is made, while",
        "nothing is proposed until some run ends, and after the last submission.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.utilisation")
    parser.add_argument("--slots", default=",".join(map(str, SLOTS)), help="comma-separated")
    parser.add_argument("--runs-per-slot", type=int, default=RUNS_PER_SLOT)
    parser.add_argument("--nights", type=int, default=8, help="nights with 8 slots; of more slots fewer")
    parser.add_argument(
        "--durations", default="", help="kinds of durations by their beginnings, separated by `;` [all]"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args(arguments)
    wanted = [name for name in DURATIONS if name.startswith(tuple(options.durations.split(";")))]
    rows = []
    for slots in map(int, options.slots.split(",")):
        for name in wanted:
            rows.append(_row(slots, name, measure(slots, name, options.runs_per_slot, options.nights)))
            print(rows[-1], flush=True)
    options.out.write_text(page(rows), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
