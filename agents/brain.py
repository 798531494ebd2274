"""The seam of judgement: what an agent may ask, and the built-in answers that need no key.

A brain proposes and explains. It never sets a verdict, a metric, a budget or a locked parameter (design.md section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nightlab.configs.study import Scalar
from nightlab.knowledge.records import Verdict
from nightlab.tools.datasets.findings import Finding

__all__ = ["Advice", "Advised", "Brain", "Diagnosis", "Dimension", "Facts", "NewLevels", "RulesBrain"]


@dataclass(frozen=True)
class Facts:
    """What was seen of the task before any experiment but the baseline."""

    base_model: str
    method: str
    metric: str
    unit: str
    input_bytes: int
    """Size of the study's `inputs`, 0 when there are none."""
    tracked_files: int
    repository_bytes: int
    cores: int
    memory_bytes: int
    gpus: tuple[str, ...]
    slots: int
    baseline_values: tuple[float, ...]
    """The objective of each baseline run measured so far."""
    baseline_wall_seconds: float | None
    baseline_peak_memory_bytes: int | None
    losses: tuple[float, ...]
    """The training loss as the first baseline run logged it, in order; empty when it logged none."""
    evaluation_frozen: tuple[str, ...]
    prompt_parameters: tuple[str, ...]
    """Parameters whose names speak of prompts or templates."""
    data_parameters: tuple[str, ...]
    """Parameters whose names speak of data."""
    min_effect: float = 0.0
    """Smallest improvement worth having, in the metric's unit."""
    held_out_losses: tuple[float, ...] = ()
    """The loss on held-out data as the first baseline run logged it, in order."""
    gpu_memory_bytes: int | None = None
    """Memory of one GPU, as the study or the driver says."""
    findings: tuple[Finding, ...] = ()
    """What was measured of data, batch and memory. Their texts may hold words of the data."""


@dataclass(frozen=True)
class Dimension:
    """One of the seven dimensions of the diagnosis."""

    name: str
    finding: str
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Advised:
    """A technique of the catalog that a model would try, and why."""

    technique: str
    reason: str


@dataclass(frozen=True)
class NewLevels:
    """Values of a parameter that a model would try besides the study's own; they have passed the study's checks."""

    parameter: str
    levels: tuple[Scalar, ...]
    log: bool
    reason: str


@dataclass(frozen=True)
class Advice:
    """What a language model added to the diagnosis. Nothing of it decides anything."""

    model: str = ""
    """The model that said it; empty where none gave a usable answer."""
    dimensions: tuple[Dimension, ...] = ()
    ranking: tuple[Advised, ...] = ()
    """Techniques of the catalog, the most useful first."""
    factors: tuple[NewLevels, ...] = ()
    hints: tuple[Advised, ...] = ()
    """Parameters the study does not have, and why they may be worth having: for a person."""
    refused: tuple[str, ...] = ()
    """What it said beyond what it may, a line each."""
    failure: str = ""
    """Why there is no answer; empty where there is one."""


@dataclass(frozen=True)
class Diagnosis:
    dimensions: tuple[Dimension, ...]
    """What the rules found."""
    advice: Advice | None = None
    """What a language model added; None where none was to be asked."""

    @property
    def symptoms(self) -> tuple[str, ...]:
        """Catalog symptom ids, each once, the rules' first, in the order they were found."""
        added = self.advice.dimensions if self.advice else ()
        found = (*self.dimensions, *added)
        return tuple(dict.fromkeys(symptom for dimension in found for symptom in dimension.symptoms))


class Brain(Protocol):
    @property
    def name(self) -> str: ...

    def diagnose(self, facts: Facts) -> Diagnosis:
        """The seven-dimension diagnosis, with catalog symptom ids."""
        ...

    def explain(self, variable: str, verdict: Verdict) -> str:
        """One sentence for the record on what an experiment showed."""
        ...


class RulesBrain:
    """Every judgement by fixed rules: deterministic, no key, no network."""

    name = "rules"

    def diagnose(self, facts: Facts) -> Diagnosis:
        from nightlab.agents.diagnosis import diagnose

        return diagnose(facts)

    def explain(self, variable: str, verdict: Verdict) -> str:
        return f"{variable}: {verdict.label}. {verdict.reason}"
