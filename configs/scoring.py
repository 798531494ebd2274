"""How predictions are scored against their labels."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from nightlab.configs.problems import Problem, refuse
from nightlab.configs.section import Section
from nightlab.configs.units import Flag

__all__ = ["LABELLED", "PERCENT", "Ignored", "Scoring", "ScoringKind", "ScoringSettings"]

ScoringKind = Literal[
    "exact_match",
    "f1",
    "bleu",
    "bleu_4",
    "rouge_1",
    "rouge_2",
    "rouge_l",
    "chrf",
    "accuracy",
    "macro_f1",
    "auc",
    "ndcg",
    "mrr",
    "pass_at_k",
    "json_valid",
]
Ignored = Literal["case", "punctuation", "space", "articles", "width"]

PERCENT = ("bleu", "bleu_4", "rouge_1", "rouge_2", "rouge_l", "chrf")
"""Scores that go from 0 to 100; the others go from 0 to 1."""
RANKINGS = ("ndcg", "mrr")
WITH_K = ("ndcg", "pass_at_k")
GROUPED = (*RANKINGS, "pass_at_k")
WITHOUT_LABEL = ("pass_at_k", "json_valid")
LABELLED = tuple(kind for kind in get_args(ScoringKind) if kind not in WITHOUT_LABEL)
WITHOUT_TEXT = (*GROUPED, "auc", "json_valid")


class ScoringSettings(Section):
    """How predictions are scored against their labels; the kind alone may stand for the whole section."""

    kind: ScoringKind
    """What is computed. From 0 to 1: `exact_match`, `f1` (of words), `accuracy`, `macro_f1` (over the classes among the
    labels), `auc`, `ndcg`, `mrr`, `pass_at_k`, `json_valid`. From 0 to 100: `bleu` and `chrf` of the corpus,
    `rouge_1`, `rouge_2`, `rouge_l`, and `bleu_4`, the mean over characters that LLaMA-Factory reports."""
    label: Annotated[str, Field(min_length=1)] = "label"
    """Field of the right answer; of several in a list any is right. For `auc` 0 or 1, for `ndcg` and `mrr` how relevant
    it is. Dots step into nested objects."""
    prediction: Annotated[str, Field(min_length=1)] = "predict"
    """Field of the model's answer. For `auc`, `ndcg` and `mrr` a number, for `pass_at_k` whether the sample passed."""
    prompt: Annotated[str, Field(min_length=1)] = "prompt"
    """Field that says which example a row is, where there is one: bad cases show it, and two files are paired by it."""
    language: Literal["auto", "en", "zh"] = "auto"
    """How text is cut into words: `zh` segments Chinese, `en` takes runs of letters and digits of any script. `auto`:
    `zh` where one in ten of the first labels holds Chinese."""
    strip_thinking: Flag = False
    """Take `<think>…</think>` out of predictions and labels; a thought without an end is all thought."""
    ignore: list[Ignored] = Field(default_factory=list)
    """Differences that do not count: `case`, `punctuation`, `space` (white space is made one space), `articles` (a, an,
    the), `width` (full-width and half-width forms). White space around a text never counts."""
    k: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many ranks `ndcg` looks at; how many samples `pass_at_k` may draw."""
    group_by: str | None = None
    """Field of the query or problem that rows belong to, for `ndcg`, `mrr` and `pass_at_k`. Without it each row is one
    group, and its label and prediction are lists."""
    required_keys: list[str] = Field(default_factory=list)
    """Keys that the object must have to count for `json_valid`."""
    slice_by: str | None = None
    """Field by which values are also given slice by slice."""
    slice_edges: Annotated[list[float], Field(max_length=19)] = Field(default_factory=list)
    """Rising limits that make slices of a number, or of a text's length in characters: `[100, 500]` gives three."""
    bad_cases: Annotated[int, Field(ge=0, le=200)] = 20
    """How many of the worst examples are kept for people and the analysis."""

    @model_validator(mode="after")
    def _fitting(self) -> ScoringSettings:
        problems = [*self._missing(), *self._misplaced()]
        if problems:
            refuse(*problems)
        return self

    def _missing(self) -> list[Problem]:
        problems = []
        if self.kind in WITH_K and self.k is None:
            problems.append(Problem(f"kind {self.kind} needs k", ("k",), "for example k: 10"))
        if self.slice_edges and self.slice_by is None:
            problems.append(Problem("needs slice_by", ("slice_edges",), "for example slice_by: prompt"))
        if any(low >= high for low, high in pairwise(self.slice_edges)):
            problems.append(Problem("does not rise", ("slice_edges",), "for example [100, 500]", self.slice_edges))
        return problems

    def _misplaced(self) -> list[Problem]:
        wrong = [
            (self.k is not None and self.kind not in WITH_K, "k", WITH_K),
            (self.group_by is not None and self.kind not in GROUPED, "group_by", GROUPED),
            (bool(self.required_keys) and self.kind != "json_valid", "required_keys", ("json_valid",)),
        ]
        problems = [
            Problem(f"belongs to {', '.join(kinds)}, not {self.kind}", (key,), "remove it")
            for is_wrong, key, kinds in wrong
            if is_wrong
        ]
        if self.ignore and self.kind in WITHOUT_TEXT:
            problems.append(Problem(f"is about text, which {self.kind} does not compare", ("ignore",), "remove it"))
        return problems


def _written_short(value: object) -> object:
    if isinstance(value, str) and value in get_args(ScoringKind):
        return {"kind": value}
    if isinstance(value, dict | ScoringSettings) or value is None:
        return value
    raise PydanticCustomError("score", "not a score; write one of {kinds}", {"kinds": ", ".join(get_args(ScoringKind))})


Scoring = Annotated[
    ScoringSettings, BeforeValidator(_written_short, json_schema_input_type=ScoringKind | ScoringSettings)
]
