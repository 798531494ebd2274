"""Everything a morning report shows, as plain data; what renders it decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Effect, ExperimentState, IdeaState, Phase, VerdictKind
from nightlab.report.examples import ScoreCompared
from nightlab.report.numbers import level
from nightlab.report.others import OtherMetric

__all__ = [
    "Advice",
    "Bar",
    "Change",
    "EffectRow",
    "ExperimentRow",
    "FactorEffectLike",
    "FactorGroup",
    "FailureGroup",
    "Headline",
    "IdeaRow",
    "Influence",
    "MainEffectLike",
    "MainEffectRow",
    "Metric",
    "ModelUse",
    "ModelUseRow",
    "MoveLike",
    "Noise",
    "Point",
    "ResultLine",
    "Setup",
    "SpendLine",
    "Status",
    "Step",
    "StressRow",
    "StudyReport",
    "Timeline",
]

Status = Literal["running", "finished", "stopped"]
Influence = Literal["helped", "promising", "no effect", "hurt", "unknown"]


class FactorEffectLike(Protocol):
    """What the search believes of one level of a factor, or of the factor as a whole (level None)."""

    @property
    def factor(self) -> str: ...
    @property
    def level(self) -> Scalar | None: ...
    @property
    def effect(self) -> Effect | None: ...
    @property
    def label(self) -> str: ...
    @property
    def importance(self) -> float | None: ...
    @property
    def confounded_with(self) -> Sequence[str]: ...
    @property
    def interactions(self) -> Sequence[str]: ...


class MoveLike(Protocol):
    """By which one variable an experiment differs from an earlier one; a level of None is the baseline's."""

    @property
    def factor(self) -> str: ...
    @property
    def before(self) -> Scalar | None: ...
    @property
    def after(self) -> Scalar | None: ...
    @property
    def parent(self) -> int: ...
    @property
    def effect(self) -> Effect | None: ...


class MainEffectLike(Protocol):
    """What one change does on average over the rows of the orthogonal array."""

    @property
    def factor(self) -> str: ...
    @property
    def level(self) -> Scalar: ...
    @property
    def effect(self) -> Effect: ...
    @property
    def confounded_with(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Metric:
    """The objective. Effects are stored with above 0 as better; people read the metric's own change."""

    name: str
    unit: str
    maximize: bool
    min_effect: float

    def change(self, effect: Effect) -> tuple[float, float | None, float | None]:
        """The metric's own change (delta, low, high), in its true sign."""
        if self.maximize:
            return effect.delta, effect.low, effect.high
        low = None if effect.high is None else -effect.high
        high = None if effect.low is None else -effect.low
        return -effect.delta, low, high

    @property
    def change_unit(self) -> str:
        """A change of a percentage is counted in points."""
        return "points" if self.unit == "%" else self.unit

    @property
    def better(self) -> str:
        return "higher is better" if self.maximize else "lower is better"


@dataclass(frozen=True)
class Change:
    """One parameter's way from the baseline's value."""

    name: str
    before: Scalar | None
    after: Scalar


@dataclass(frozen=True)
class Step:
    """The one variable by which an experiment differs from an earlier one, and what that alone did."""

    parent: int
    title: str
    """`learning_rate 0.001 → 0.003`."""
    effect: Effect | None
    """From all runs; None where they do not tell it apart."""


@dataclass(frozen=True)
class Point:
    """One measured run of an experiment; `value` in the metric's unit."""

    number: int
    seed: int
    phase: Phase
    value: float
    believed: bool


@dataclass(frozen=True)
class ExperimentRow:
    """One experiment with everything the tables say of it."""

    number: int
    scenario: str
    method: str
    base_model: str
    variable: str
    technique: str | None
    title: str
    """What it changed, in the study's words: `learning_rate = 0.003`."""
    parameters: dict[str, Scalar]
    changes: tuple[Change, ...]
    phase: Phase
    state: ExperimentState
    why: str
    """Why it was tried."""
    points: tuple[Point, ...]
    mean: float | None
    """Mean of the believed runs the verdict rests on, else of all believed runs."""
    runs: int
    failed_runs: int
    seeds: tuple[int, ...]
    guardrails: dict[str, float]
    """Guardrail metric → mean of the believed runs."""
    breaches: tuple[str, ...]
    """Guardrails that do not hold, in words."""
    effect: Effect | None
    verdict: VerdictKind | None
    label: str
    reason: str
    """Why the verdict is what it is."""
    basis: Phase | None
    job_ids: tuple[str, ...]
    branch: str
    commit: str | None
    peak_memory_bytes: int | None
    wall_seconds: float | None
    note: str
    step: Step | None = None
    """Where more than one variable differs from the baseline and one only from an earlier experiment."""
    lines: int = 0
    """By how many lines its ideas make the code grow."""

    @property
    def is_baseline(self) -> bool:
        return self.number == 0


@dataclass(frozen=True)
class Headline:
    """The night in one sentence; `tone` is what it comes to."""

    tone: Literal["won", "open", "none", "running"]
    status: str
    title: str
    detail: str


@dataclass(frozen=True)
class Advice:
    """One thing to do next, most useful first."""

    title: str
    why: str
    command: str | None = None


@dataclass(frozen=True)
class Noise:
    """The baseline on several seeds: how far a change of seed alone moves the metric."""

    mean: float
    deviation: float | None
    """Sample standard deviation over seeds; None below two runs."""
    runs: int
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class EffectRow:
    """One level of a factor against the baseline."""

    factor: str
    level: Scalar
    baseline: Scalar | None
    """None: a bundle, which has no value there."""
    effect: Effect
    influence: Influence
    label: str
    confounded_with: tuple[str, ...] = ()
    """What always changed together with it."""
    interactions: tuple[str, ...] = ()
    """Levels with which it does clearly more or less than the two add up to."""

    @property
    def title(self) -> str:
        return f"{self.factor} = {level(self.level)}"


@dataclass(frozen=True)
class FactorGroup:
    """The factors of which the same is to be said."""

    label: str
    factors: tuple[str, ...]


@dataclass(frozen=True)
class ResultLine:
    """One experiment as a terminal shows it; `record` holds the same with full precision, by the table's columns."""

    number: int
    variable: str
    value: str
    runs: int
    effect: str
    interval: str
    verdict: str
    record: dict[str, object]

    def as_dict(self) -> dict[str, object]:
        return self.record


@dataclass(frozen=True)
class MainEffectRow:
    """One factor's main effect in the array."""

    factor: str
    level: Scalar
    baseline: Scalar | None
    """None: a bundle, which has no value there."""
    effect: Effect
    influence: Influence
    confounded_with: tuple[str, ...]

    @property
    def title(self) -> str:
        before = "" if self.baseline is None else f"{level(self.baseline)} → "
        return f"{self.factor}: {before}{level(self.level)}"


@dataclass(frozen=True)
class FrontRow:
    """One experiment that no other one beats in every metric."""

    number: int
    title: str
    cells: tuple[str, ...]
    """By metric, mean and interval in words."""
    means: tuple[float, ...]
    runs: int


@dataclass(frozen=True)
class Front:
    """The Pareto front that the study asks for."""

    metrics: tuple[str, ...]
    """The objective first."""
    ways: tuple[str, ...]
    """Of each metric which direction is better, in words."""
    rows: tuple[FrontRow, ...]
    """The best in the objective first."""


@dataclass(frozen=True)
class FailureGroup:
    """Runs that ended the same way."""

    cause: str
    meaning: str
    runs: int
    experiments: tuple[int, ...]
    example: str
    """The last line of one run's trace, shortened."""


@dataclass(frozen=True)
class Bar:
    """One job on its slot; times in seconds after the first submission."""

    slot: int
    start_seconds: float
    end_seconds: float
    number: int
    seed: int
    phase: Phase
    outcome: Literal["measured", "failed", "running"]
    check: str = ""
    """The stress check, where it is no run."""

    @property
    def kind(self) -> str:
        """What it is drawn as: its phase, or `stress`."""
        return "stress" if self.check else self.phase.value


@dataclass(frozen=True)
class Timeline:
    """What each slot did."""

    slots: int
    bars: tuple[Bar, ...]
    span_seconds: float
    utilisation: float | None
    """Share of slot-seconds with a job on it between first submission and last end."""


@dataclass(frozen=True)
class SpendLine:
    """One resource: used and allowed, in words."""

    name: str
    used: str
    allowed: str
    share: float | None
    reserved: str = "–"
    """For runs in flight."""
    forecast: str = "–"
    """The most at the end, by the pace seen so far."""


@dataclass(frozen=True)
class ModelUseRow:
    """What language models were asked for one purpose, in words."""

    purpose: str
    calls: str
    tokens: str
    cost: str
    answers: str
    refused: str
    """Answers that could not be used."""
    unanswered: str
    by_rules: str
    """How often the rules decided in their place."""


@dataclass(frozen=True)
class ModelUse:
    """The language models' part in the study."""

    sentence: str
    rows: tuple[ModelUseRow, ...]


@dataclass(frozen=True)
class Setup:
    """How the study was run: enough to run it again."""

    base_commit: str
    command: str
    slots: int
    locked: tuple[str, ...]
    frozen: tuple[str, ...]
    guardrails: tuple[str, ...]
    seeds: tuple[int, ...]
    versions: dict[str, str]
    factors: int
    confidence: float


@dataclass(frozen=True)
class IdeaRow:
    """One idea."""

    name: str
    title: str
    state: IdeaState
    size: str
    """Lines added and removed; empty where it was not accepted."""
    verdict: str
    """What is believed of it, or why it was refused."""
    effect: Effect | None
    reason: str
    """Why it was refused; else what the proposer expected."""
    experiments: tuple[int, ...]
    """Those that apply it."""
    in_winner: bool
    gain: str
    """What it takes away at no cost, in words; empty where it does not."""


@dataclass(frozen=True)
class ReviewRow:
    """What the reviewer said of one claim."""

    number: int
    told: str
    items: tuple[tuple[str, str, str, str], ...]
    """Check, answer, what it quotes, reason."""
    pair: str
    """What became of the pair of runs it asked for; empty where it asked for none."""


@dataclass(frozen=True)
class StressRow:
    """What one stress check measured of one experiment."""

    number: int
    check: str
    repeats: int
    failed: int
    """Repeats without values."""
    values: tuple[tuple[str, float], ...]
    """Metric and its middle value over the repeats."""
    why: str
    """Of the first repeat that failed."""


@dataclass(frozen=True)
class StudyReport:
    """The whole report."""

    study: str
    goal: str
    scenario: str
    method: str
    base_model: str
    metric: Metric
    status: Status
    started_at: datetime | None
    finished_at: datetime | None
    summary: Headline
    certainty: tuple[str, ...]
    winner: ExperimentRow | None
    other_winners: tuple[ExperimentRow, ...]
    candidate: ExperimentRow | None
    """The best that is not confirmed, when there is no winner."""
    baseline: ExperimentRow | None
    noise: Noise | None
    advice: tuple[Advice, ...]
    experiments: tuple[ExperimentRow, ...]
    rows: tuple[ResultLine, ...]
    """The experiments again, each as one line."""
    factors: tuple[FactorGroup, ...]
    shares: tuple[tuple[str, float], ...]
    """Factor → its share of the differences between the experiments, the largest first."""
    effects: tuple[EffectRow, ...]
    main_effects: tuple[MainEffectRow, ...]
    failures: tuple[FailureGroup, ...]
    timeline: Timeline
    pruned: str
    """What ending runs early has saved, in a sentence; empty where none was."""
    spend: tuple[SpendLine, ...]
    setup: Setup
    events: tuple[str, ...]
    ideas: tuple[IdeaRow, ...] = ()
    """Changes to the code that a language model proposed."""
    reviews: tuple[ReviewRow, ...] = ()
    """Of claims, by a model."""
    stress: tuple[StressRow, ...] = ()
    """By check, the baseline first."""
    models: ModelUse | None = None
    """None where the rules decided alone."""
    front: Front | None = None
    """None where the study asks for none."""
    others: tuple[OtherMetric, ...] = ()
    """The winner's other metrics."""
    examples: tuple[ScoreCompared, ...] = ()
    """The winner example by example, where the lab scored predictions itself."""

    @property
    def headline(self) -> str:
        """The night in one line, for a terminal."""
        return f"{self.summary.title}. {self.summary.detail}".strip()

    @property
    def baseline_failed(self) -> bool:
        """Whether the baseline ran and gave no value: then nothing could be compared."""
        return self.baseline is not None and self.baseline.failed_runs > 0 and self.baseline.mean is None
