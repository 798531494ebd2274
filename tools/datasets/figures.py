"""What was measured of the data: plain figures, no judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

__all__ = ["DataFigures", "Lengths", "Overlap", "PairFigures", "SideFigures"]


@dataclass(frozen=True)
class Lengths:
    """How long texts are, in tokens."""

    mean: float = 0.0
    median: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    longest: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Lengths:
        if not values:
            return cls()
        median, p90, p99 = (float(one) for one in np.percentile(values, [50, 90, 99]))
        return cls(float(np.mean(values)), median, p90, p99, max(values))

    def __str__(self) -> str:
        return f"median {self.median:.0f}, 99 % up to {self.p99:.0f}, longest {self.longest:.0f} tokens"


@dataclass(frozen=True)
class PairFigures:
    """Of preference pairs, shares of the rows looked at."""

    equal: float
    """Chosen and rejected are the same text."""
    alike: float
    """They differ, but hardly."""
    chosen_longer: float
    """Of the pairs of different length."""
    chosen_median: float
    rejected_median: float
    """Characters."""


@dataclass(frozen=True)
class SideFigures:
    """Of the training or of the evaluation data."""

    names: tuple[str, ...]
    rows: int
    """Rows that were read, broken ones among them."""
    is_whole: bool
    """All of the files was read."""
    sampled: int
    """Rows looked at closely."""
    close: int
    """Of those, rows whose tokens, language and near copies were looked at."""
    broken: Mapping[str, int] = field(default_factory=dict)
    """Reason → rows."""
    first_broken: tuple[str, ...] = ()
    """`file, row 3: reason`, of the first few."""
    copies: int = 0
    """Rows of the sample that repeat an earlier one exactly."""
    near_copies: int | None = None
    """Rows looked at that nearly repeat an earlier one; None where that was not looked for."""
    contradictions: int = 0
    """Prompts of the sample that have different answers."""
    tokens: Lengths = Lengths()
    """Prompt and answer together; the template's own tokens come on top."""
    answer_tokens: Lengths = Lengths()
    truncated: float | None = None
    """Share above the window; None without one."""
    empty_answers: int = 0
    """Rows of the sample whose answer, or either answer of a pair, is empty."""
    empty_prompts: int = 0
    short_answers: int = 0
    """Of the sample, answers that are not empty, of at most two characters."""
    labels: Mapping[str, int] = field(default_factory=dict)
    """Class → rows, largest first; empty where the rows have none."""
    languages: Mapping[str, float] = field(default_factory=dict)
    template_tokens: Mapping[str, int] = field(default_factory=dict)
    """Special token → rows of the sample that hold it."""
    thinking: int = 0
    """Rows of the sample whose answer holds thinking tags."""
    encoding_faults: int = 0
    pairs: PairFigures | None = None

    @property
    def broken_rows(self) -> int:
        return sum(self.broken.values())

    @property
    def good_rows(self) -> int:
        return self.rows - self.broken_rows


@dataclass(frozen=True)
class Overlap:
    """Rows of the evaluation data that training saw; `near` is None where that was not looked for."""

    exact: int
    """The same prompt and the same answer."""
    prompts: int
    """The same prompt, whatever the answer."""
    near: int | None
    """Nearly the same prompt and answer, exact ones not counted, among the evaluation rows that `near_of` counts."""
    of: int
    """Evaluation rows that were compared with every training row that was read."""
    near_of: int


@dataclass(frozen=True)
class DataFigures:
    """All that was measured, and how."""

    train: SideFigures | None
    eval: SideFigures | None
    overlap: Overlap | None
    window: int | None
    """Tokens a row may have: `cutoff_len` and the like."""
    counted: str
    """How tokens were counted."""
    told: str
    """How languages were told."""
    without_rows: tuple[str, ...] = ()
    """Sets of a side whose files hold no row at all."""
