"""What a model may say in the analysis, and its words made fit for people: one line, no markup, bounded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, create_model

from nightlab.configs.study import Scalar

__all__ = ["DIMENSIONS", "AnalysisSaid", "FactorSaid", "analysis_model", "plain", "unasked", "visible"]

DIMENSIONS = (
    *("Base model", "Data quality", "Prompt and template", "Training method", "Evaluation", "Resources", "Baseline"),
)
MOST_IN_SCHEMA = 200
"""Longer vocabularies stand in the prompt alone: strict servers bound what a schema may list."""
_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~])")


class Said(BaseModel):
    """An answer's part. Keys nobody asked for are kept so that they can be counted; nothing reads them."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)


class DimensionSaid(Said):
    dimension: str
    finding: str
    """One sentence on what the repository or the facts show."""
    symptoms: list[str]
    """Ids of the listed symptoms that it shows; most findings show none."""


class RankedSaid(Said):
    technique: str
    reason: str
    """One sentence: why it should help here."""


class FactorSaid(Said):
    parameter: str
    levels: list[Scalar]
    """Values to try, of the same kind as the parameter's own."""
    scale: Annotated[str, WithJsonSchema({"type": "string", "enum": ["linear", "log"]})]
    reason: str
    """One sentence: what in the code or data speaks for it."""


class AnalysisSaid(Said):
    dimensions: Sequence[DimensionSaid]
    ranking: Sequence[RankedSaid]
    """The listed techniques worth trying first, the best first."""
    factors: list[FactorSaid]


def analysis_model(symptoms: Sequence[str], techniques: Sequence[str]) -> type[AnalysisSaid]:
    """`AnalysisSaid` whose schema names the ids there are; whoever reads the answer checks them all the same."""
    symptom: Any = _one_of(symptoms)
    finding: Any = create_model(
        "DimensionSaid",
        __base__=DimensionSaid,
        dimension=(_one_of(DIMENSIONS), ...),
        symptoms=(list[symptom], Field(description="Ids of the listed symptoms that it shows")),
    )
    ranked: Any = create_model("RankedSaid", __base__=RankedSaid, technique=(_one_of(techniques), ...))
    return create_model(
        "AnalysisSaid", __base__=AnalysisSaid, dimensions=(list[finding], ...), ranking=(list[ranked], ...)
    )


def _one_of(words: Sequence[str]) -> Any:
    if not 0 < len(words) <= MOST_IN_SCHEMA:
        return str
    return Annotated[str, WithJsonSchema({"type": "string", "enum": list(words)})]


def unasked(said: BaseModel) -> Iterator[str]:
    """Names of the keys nobody asked for, in the answer and its parts."""
    yield from said.model_extra or {}
    for value in said.__dict__.values():
        for part in value if isinstance(value, list) else ():
            if isinstance(part, BaseModel):
                yield from unasked(part)


def plain(text: str, limit: int = 300) -> str:
    """The text as one line of printable characters that Markdown and HTML show as they are."""
    return _MARKUP.sub(r"\\\1", visible(text, limit))


def visible(text: str, limit: int) -> str:
    """The text as one line of printable characters, without addresses that become links by themselves."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text[: 4 * limit])
    words = " ".join(printable.split()).replace("://", ": //")
    return words if len(words) <= limit else f"{words[: limit - 1]}…"
