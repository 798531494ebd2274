"""The records every room speaks: plain data, units in names, times in UTC."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from nightlab.configs.study import Scalar, Study

__all__ = [
    "CallState",
    "Edit",
    "Effect",
    "Event",
    "Experiment",
    "ExperimentState",
    "Idea",
    "IdeaState",
    "Job",
    "JobState",
    "Lesson",
    "ModelCall",
    "Observation",
    "Phase",
    "Proposal",
    "Question",
    "Review",
    "ReviewItem",
    "ReviewState",
    "Run",
    "RunState",
    "Spend",
    "StudyRow",
    "StudyStatus",
    "Verdict",
    "VerdictKind",
    "configuration_key",
    "run_key",
    "utc_now",
]


def utc_now() -> datetime:
    return datetime.now(UTC)


def run_key(study: str, number: int, attempt: int, seed: int) -> str:
    """The deterministic key of a side effect: `study/NN/attempt/seed`."""
    return f"{study}/{number:02d}/{attempt}/{seed}"


def configuration_key(parameters: Mapping[str, Scalar]) -> str:
    """Identity of a configuration: equal for `{"a": 1, "b": 2.5}` and `{"b": 2.5, "a": 1.0}`, not for `a: true`."""

    def canonical(value: Scalar) -> Scalar:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    text = json.dumps({name: canonical(value) for name, value in parameters.items()}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class Phase(StrEnum):
    """Why a run is made."""

    BASELINE = "baseline"
    SCREEN = "screen"
    COMBINE = "combine"
    REFINE = "refine"
    CONFIRM = "confirm"


class ExperimentState(StrEnum):
    """Where an experiment stands (design.md section 3)."""

    PLANNED = "planned"
    PREPARED = "prepared"
    SUBMITTED = "submitted"
    RUNNING = "running"
    FINISHED = "finished"
    MEASURED = "measured"
    REVIEWED = "reviewed"
    KEPT = "kept"
    DISCARDED = "discarded"
    INCONCLUSIVE = "inconclusive"
    REJECTED = "rejected"
    FAILED = "failed"
    CANCELLED = "cancelled"


class RunState(StrEnum):
    """Where one run stands; `reviewed`, `rejected`, `failed`, `pruned` and `cancelled` are ends."""

    PLANNED = "planned"
    SUBMITTED = "submitted"
    FINISHED = "finished"
    """The job has ended; its metrics are not read yet."""
    MEASURED = "measured"
    REVIEWED = "reviewed"
    """Measured, audited and believed."""
    REJECTED = "rejected"
    """Measured, but the audit found a reason not to believe it (`cause`, `detail`)."""
    FAILED = "failed"
    PRUNED = "pruned"
    """Ended before its time because it had fallen behind (`detail`); what it would have come to is an estimate."""
    CANCELLED = "cancelled"


class JobState(StrEnum):
    """A run as the backend knows it."""

    INTENDED = "intended"
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"


class VerdictKind(StrEnum):
    """Computed, never judged."""

    KEEP = "keep"
    DISCARD = "discard"
    INCONCLUSIVE = "inconclusive"
    REJECTED = "rejected"
    FAILED = "failed"
    PRUNED = "pruned"


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Proposal(Record):
    """What to run next: a whole configuration, a seed, and the reason in one line."""

    parameters: dict[str, Scalar]
    """Every parameter with its value."""
    changed: dict[str, Scalar]
    """Only what differs from the baseline."""
    variable: str
    """The variable under test as a slug, for the branch: `baseline`, `learning-rate-0-003`, `combine-3`."""
    technique: str | None = None
    """Catalog id of the technique, where one stands behind the change."""
    phase: Phase
    seed: int
    reason: str


class Experiment(Record):
    """One configuration under test."""

    study: str
    number: int
    scenario: str
    method: str
    base_model: str
    variable: str
    technique: str | None = None
    parameters: dict[str, Scalar]
    changed: dict[str, Scalar]
    phase: Phase
    reason: str
    state: ExperimentState = ExperimentState.PLANNED
    branch: str
    base_commit: str
    """The commit every experiment of the study starts from."""
    commit: str | None = None
    """The commit with the rendered configuration: what every run of the experiment executes."""
    card_commit: str | None = None
    """The commit with the latest result card."""
    note: str = ""
    created_at: AwareDatetime = Field(default_factory=utc_now)


class Run(Record):
    """One execution of an experiment with one seed."""

    key: str
    study: str
    number: int
    seed: int
    attempt: int = 1
    phase: Phase
    reason: str
    state: RunState = RunState.PLANNED
    cause: str | None = None
    """Short identifier of why it failed: `exit-status`, `timeout`, `metric-absent`, `metric-not-finite`, `lost` …"""
    detail: str = ""
    next_step: str | None = None
    """What follows from its failure: `retry`, `retry_changed`, `repair`, `give_up`, `ask` or `stop`; None unless it
    failed."""
    overrides: dict[str, Scalar] = Field(default_factory=dict)
    """Parameters a remedy turned for this attempt, the experiment's meaning kept (e.g. the effective batch)."""
    extra_env: dict[str, str] = Field(default_factory=dict)
    """Environment variables a remedy set for this attempt."""
    remedies: list[str] = Field(default_factory=list)
    """Signatures whose remedies led to `overrides` and `extra_env`, in the order they were applied."""
    created_at: AwareDatetime = Field(default_factory=utc_now)
    ended_at: AwareDatetime | None = None


class Job(Record):
    """A run as the backend knows it; the intent is written before the submission."""

    key: str
    backend: str
    native_id: str | None = None
    slot: int
    directory: str
    worktree: str
    state: JobState = JobState.INTENDED
    intent_at: AwareDatetime = Field(default_factory=utc_now)
    started_at: AwareDatetime | None = None
    ended_at: AwareDatetime | None = None
    exit_code: int | None = None
    timed_out: bool = False
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None


class Observation(Record):
    """The typed metrics read from one run."""

    key: str
    values: dict[str, float]
    """Metric name → finite value, the objective included."""
    sources: dict[str, str] = Field(default_factory=dict)
    """Metric name → where it was read, e.g. `stdout.log`."""
    read_at: AwareDatetime = Field(default_factory=utc_now)


class Effect(Record):
    """An improvement over the baseline with its interval, in the metric's unit; above 0 is better, always."""

    delta: float
    low: float | None = None
    high: float | None = None
    confidence: float = 0.95
    unit: str = ""
    runs: int
    """Runs of the experiment behind it."""
    baseline_runs: int
    """Runs of the baseline behind it."""
    paired: bool = False


class Verdict(Record):
    """What the lab believes of an experiment, and why."""

    number: int
    kind: VerdictKind
    effect: Effect | None = None
    basis: Phase
    """The phase whose runs it rests on."""
    label: str
    """One or two plain words: `confirmed`, `promising`, `without effect`, `worse`, `too close to call`, `failed` …"""
    reason: str
    decided_at: AwareDatetime = Field(default_factory=utc_now)


class Lesson(Record):
    """One line of `lessons.jsonl`: what was tried, where, what it did, with evidence."""

    id: str
    """Hash of everything but `id` and `time`."""
    time: AwareDatetime
    study: str
    scenario: str
    base_model: str
    base_model_size: str | None = None
    method: str
    technique: str | None = None
    parameters: dict[str, Scalar]
    """What was changed, with the value tried."""
    baseline: dict[str, Scalar] = Field(default_factory=dict)
    """The same parameters' baseline values."""
    metric: str
    effect: Effect | None = None
    verdict: VerdictKind
    label: str
    cause: str | None = None
    remedy: str | None = None
    scope: str = ""
    """Where it may be expected to hold, e.g. `pydoc/pretrain`."""
    evidence: dict[str, str]
    """`branch`, `commit`, `experiment`."""
    author: str = ""
    supersedes: list[str] = Field(default_factory=list)


class Question(Record):
    """Something only a person may decide."""

    id: str
    study: str
    kind: str
    text: str
    options: list[str]
    default: str
    """The safe answer."""
    evidence: str = ""
    blocks: list[str] = Field(default_factory=list)
    """What waits for the answer; everything else goes on."""
    deadline: AwareDatetime | None = None
    """When the safe answer holds; None: never by itself."""
    asked_at: AwareDatetime = Field(default_factory=utc_now)
    answer: str | None = None
    answered_by: str | None = None
    answered_at: AwareDatetime | None = None


class Spend(Record):
    """What one run reserved and then used of the budget."""

    key: str
    reserved_runs: int = 1
    settled: bool = False
    wall_seconds: float = 0.0
    gpu_hours: float = 0.0
    cost_usd: float = 0.0
    reserved_gpu_hours: float = 0.0
    """At the pace known when it was planned."""
    reserved_cost_usd: float = 0.0


class CallState(StrEnum):
    """Where a call of a language model stands."""

    RESERVED = "reserved"
    """It may be under way; what it may take at most counts as spent."""
    SETTLED = "settled"
    RELEASED = "released"
    """Never sent: nothing was spent."""
    LOST = "lost"
    """Its lab died or its answer never came: it may have been worked on, so all that was reserved counts as spent."""


class ModelCall(Record):
    """One call of a language model: what it may take at most, reserved before, and what it took."""

    id: int
    key: str
    """Which call of the study this is, the same after a crash; one made again under it is a record of its own."""
    purpose: str
    """What it is for, in a word: `analysis`, `propose`, `explain` …"""
    model: str
    prompt_hash: str
    """SHA-256 of the whole prompt, hexadecimal; a call that sends a faulty answer back has that of the first."""
    prompt: str = ""
    """Name and version of the prompt, `analysis@3`."""
    endpoint: str = ""
    """Whom it was sent to: host, port and path, never a key."""
    method: str = ""
    """How JSON was asked for."""
    state: CallState = CallState.RESERVED
    reserved_input_tokens: int = Field(ge=0)
    reserved_output_tokens: int = Field(ge=0)
    reserved_cost_usd: float = Field(default=0.0, ge=0)
    input_tokens: int = Field(default=0, ge=0)
    """The cached ones among them."""
    cached_tokens: int = Field(default=0, ge=0)
    output_tokens: int = Field(default=0, ge=0)
    cost_usd: float = Field(default=0.0, ge=0)
    seconds: float | None = None
    outcome: str = ""
    """What went wrong, in a few words; empty where nothing did."""
    answer: str | None = None
    """The answer that was taken, as JSON, so that nobody is asked again after a crash."""
    reserved_at: AwareDatetime = Field(default_factory=utc_now)
    ended_at: AwareDatetime | None = None

    @property
    def tokens(self) -> int:
        """Input and output together, as the budget counts them."""
        return self.input_tokens + self.output_tokens


class IdeaState(StrEnum):
    """Where a code idea stands."""

    ASKING = "asking"
    """A model is being asked, or its answer is being checked."""
    ACCEPTED = "accepted"
    """It passed every check: a factor of the study."""
    REFUSED = "refused"


class Edit(Record):
    """One change of a file: the text `search`, which stands in it exactly once, becomes `replace`.

    An empty `search` makes the file anew.
    """

    path: str
    """Relative to the repository's top folder, as git writes it."""
    search: str
    replace: str


class Idea(Record):
    """A change to the code that a language model proposed."""

    number: int
    """From 1, in the order they were asked for."""
    state: IdeaState = IdeaState.ASKING
    name: str = ""
    """A slug; an accepted idea is the parameter `code/<name>`."""
    title: str = ""
    rationale: str = ""
    """Why the proposer expects something of it; the reviewer never sees it."""
    expected: str = ""
    """The effect that the proposer expects, in its own words."""
    edits: list[Edit] = Field(default_factory=list)
    lines_added: int = 0
    lines_removed: int = 0
    fingerprint: str = ""
    """Hash of what it changes, names and layout not counted."""
    requires: list[str] = Field(default_factory=list)
    """Names of the accepted ideas that it builds on."""
    conflicts: list[str] = Field(default_factory=list)
    """Names of earlier accepted ideas beside which its edits cannot be applied."""
    cause: str = ""
    """Why it was refused, in a word: `not-found`, `frozen`, `seed-only`, `near-duplicate` …"""
    reason: str = ""
    rounds: int = 0
    """How often it was sent back with what was wrong."""
    asked: dict[str, Any] | None = None
    """The prompt under way, so that after a crash the same is asked; None once the idea is decided."""
    model: str = ""
    prompt: str = ""
    """Name and version of the prompt."""
    mended: str = ""
    """Cause of the failure for which its edits were amended once; empty while they are as first accepted."""
    created_at: AwareDatetime = Field(default_factory=utc_now)

    @property
    def lines(self) -> int:
        """By how many lines the code grows; below 0 where it shrinks."""
        return self.lines_added - self.lines_removed


class ReviewState(StrEnum):
    """Where the review of a claim stands."""

    ASKING = "asking"
    ANSWERED = "answered"
    UNANSWERED = "unanswered"
    """No model answered, or the budget did not bear it: the claim stands as it was computed (`note`)."""


class ReviewItem(Record):
    """One point of the reviewer's checklist."""

    check: str
    """`leakage`, `metric gaming`, `confounding`, `unfair comparison` or `simpler explanation`."""
    answer: str
    """`passed`, `failed` or `unclear`; unclear too where what it quotes is not in what it was shown."""
    evidence: str = ""
    """What it quotes."""
    reason: str = ""


class Review(Record):
    """What an independent reviewer says of one claim; it may lower a verdict, never raise one."""

    key: str
    """`review/NN/basis`, the key of the call too."""
    number: int
    basis: str
    """The phase whose runs the claim rests on."""
    state: ReviewState = ReviewState.ASKING
    asked: dict[str, Any] | None = None
    """The prompt under way, so that after a crash the same is asked; None once there is an answer."""
    model: str = ""
    independent: bool = True
    """Whether it is another model than the one that proposed."""
    items: list[ReviewItem] = Field(default_factory=list)
    another_run: bool = False
    """Whether it asked for one more pair of runs."""
    pair_seed: int | None = None
    """Of that pair, once the budget bears it."""
    note: str = ""
    """Why there is no answer, or what became of what it asked for."""
    asked_at: AwareDatetime = Field(default_factory=utc_now)

    @property
    def accusations(self) -> list[ReviewItem]:
        """The points that failed, each with evidence that was checked."""
        return [item for item in self.items if item.answer == "failed"]


class StudyStatus(StrEnum):
    """Where a study stands."""

    NEW = "new"
    RUNNING = "running"
    STOPPED = "stopped"
    WAITING = "waiting"
    """Nothing can go on before a question is answered."""
    FINISHED = "finished"


class StudyRow(Record):
    """The study as the ledger holds it."""

    name: str
    study: Study
    """The study as loaded."""
    base_commit: str
    status: StudyStatus = StudyStatus.NEW
    phase: str = ""
    """The lab's phase, for people: `understand`, `design`, `verify`."""
    deadline: AwareDatetime | None = None
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None
    graph_version: str = ""
    """Version of the graph that wrote the checkpoints."""
    design: dict[str, Any] | list[dict[str, Any]] | None = None
    """The ranked factors and the forbidden combinations, None until the design document is written; in old ledgers the
    factors alone."""
    paused: bool = False
    """No new job is started; what runs goes on."""
    notices: dict[str, int] = Field(default_factory=dict)
    """What became of the notifications so far."""
    frozen_hashes: dict[str, str] = Field(default_factory=dict)
    """Frozen path → hash at the base commit."""


class Event(Record):
    """One line of the study's story; `id` grows with time."""

    id: int
    time: AwareDatetime
    kind: str
    number: int | None = None
    """The experiment it belongs to."""
    text: str
