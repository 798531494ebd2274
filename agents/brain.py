"""The seam of judgement: what an agent may ask, and the built-in answers that need no key.

A brain proposes and explains. It never sets a verdict, a metric, a budget or a locked parameter (design.md section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nightlab.knowledge.records import Verdict

__all__ = ["Brain", "Diagnosis", "Dimension", "Facts", "RulesBrain"]


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


@dataclass(frozen=True)
class Dimension:
    """One of the seven dimensions of the diagnosis."""

    name: str
    finding: str
    symptoms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    dimensions: tuple[Dimension, ...]

    @property
    def symptoms(self) -> tuple[str, ...]:
        """Catalog symptom ids, each once, in the order they were found."""
        return tuple(dict.fromkeys(s for dimension in self.dimensions for s in dimension.symptoms))


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
