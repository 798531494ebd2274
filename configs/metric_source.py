"""Where one metric is read from."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.scoring import Scoring
from nightlab.configs.section import Section

__all__ = ["MetricSource"]


class MetricSource(Section):
    """Where one metric is read from."""

    kind: Literal["lines", "jsonl", "json", "csv", "regex", "trainer", "roll", "predictions"] = "lines"
    """`lines`: `name: value` or `name = value` in the run's output; `jsonl`: JSON objects a line; `json`, `csv`: a
    file; `regex`: a pattern with one group, or a group called `value`; `trainer`: whatever a Hugging Face trainer
    (transformers, TRL, LLaMA-Factory) leaves behind: its JSON files in the output folder, then what it printed;
    `roll`: the lines ROLL logs; `predictions`: a file of predictions and labels, JSON objects a line, that the lab
    scores itself (`score`)."""
    path: str | None = None
    """File to read, relative to the worktree (`{output_dir}` stands for the run's output folder). Without it: the
    run's stdout, then stderr. For `trainer` the folder the trainer writes to; without it the run's output folder."""
    key: str | None = None
    """Name in the source when it differs from the metric's own; dots step into nested JSON."""
    pattern: str | None = None
    """Python regular expression, for kind `regex`."""
    pick: Literal["last", "best", "mean"] = "last"
    """Which of several values counts."""
    at_step: Annotated[int, Field(ge=0)] | None = None
    """Count the value reported at this training step and no other. Not for kind `json`."""

    score: Scoring | None = None
    """How `predictions` are scored: the score's name, or a section with more."""

    @model_validator(mode="after")
    def _scored(self) -> MetricSource:
        if self.kind != "predictions":
            if self.score is not None:
                refuse(Problem(f"belongs to kind predictions, not {self.kind}", ("score",), "set kind: predictions"))
            return self
        if self.score is None:
            refuse(Problem("kind predictions needs a score", ("score",), "for example score: exact_match"))
        if self.path is None:
            mend = "for example path: '{output_dir}/generated_predictions.jsonl'"
            refuse(Problem("kind predictions needs a path", ("path",), mend))
        for key in ("key", "pick", "at_step"):
            if getattr(self, key) not in (None, "last"):
                mend = "remove it; label and prediction in score name the fields"
                refuse(Problem("chooses among printed values; predictions are scored as a whole", (key,), mend))
        return self

    @model_validator(mode="after")
    def _complete(self) -> MetricSource:
        if self.kind == "regex" and not self.pattern:
            refuse(Problem("kind regex needs a pattern", ("pattern",), "for example pattern: 'loss=([0-9.]+)'"))
        if self.kind != "regex" and self.pattern:
            refuse(
                Problem(f"belongs to kind regex, not {self.kind}", ("pattern",), "set kind: regex or remove pattern")
            )
        if self.kind in ("json", "csv") and not self.path:
            refuse(
                Problem(f"kind {self.kind} needs a path", ("path",), "for example path: '{output_dir}/metrics.json'")
            )
        if self.at_step is not None and self.kind == "json":
            refuse(Problem("a JSON file states no steps", ("at_step",), "use kind jsonl, csv or trainer"))
        if self.at_step is not None and self.pick != "last":
            refuse(Problem("names one value, pick chooses among several", ("at_step",), "remove pick or at_step"))
        if self.pattern:
            try:
                compiled = re.compile(self.pattern)
            except (re.error, OverflowError, RecursionError) as error:
                refuse(Problem(f"is not a regular expression: {error}", ("pattern",), "Python's re syntax"))
            if compiled.groups != 1 and "value" not in compiled.groupindex:
                refuse(
                    Problem(
                        f"has {compiled.groups} groups; one must hold the number",
                        ("pattern",),
                        "write one group, e.g. 'loss=([0-9.]+)', or call it (?P<value>…)",
                    )
                )
        return self
