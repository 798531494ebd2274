"""The documents the agents write, from the templates beside them; code decides every word that is not fixed text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import humanize
from jinja2 import Environment, PackageLoader, StrictUndefined

from nightlab.agents.brain import Diagnosis, Facts
from nightlab.agents.context import Lab
from nightlab.configs.study import Budget
from nightlab.knowledge.records import Effect
from nightlab.search.history import RankedFactor

__all__ = ["analysis_report", "format_effect", "improve_guide", "render"]


def format_effect(effect: Effect) -> str:
    """`+0.031 (0.95 interval +0.012 … +0.050) bits/byte`; above 0 is better."""
    text = f"{effect.delta:+.4g}"
    if effect.low is not None and effect.high is not None:
        text += f" ({effect.confidence:.3g} interval {effect.low:+.4g} … {effect.high:+.4g})"
    return f"{text} {effect.unit}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _code(value: object) -> str:
    return f"`{value}`"


@cache
def _environment() -> Environment:
    # Markdown for people, not HTML for a browser: nothing is to be escaped.
    environment = Environment(
        loader=PackageLoader("nightlab.agents"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": _cell, "code": _code, "effect": format_effect}
    return environment


def render(template: str, **values: Any) -> str:
    """The document `template` (a file name without `.j2`) with its values; a missing value raises UndefinedError."""
    return _environment().get_template(f"{template}.j2").render(**values)


def analysis_report(lab: Lab, facts: Facts, diagnosis: Diagnosis) -> str:
    return render(
        "analysis_report.md",
        study=lab.study,
        base_commit=lab.base_commit,
        brain=lab.brain.name,
        diagnosis=diagnosis,
        facts=facts,
        meanings=lab.catalog.meta.symptoms,
    )


def improve_guide(lab: Lab, factors: Sequence[RankedFactor], symptoms: Sequence[str]) -> str:
    return render(
        "improve_guide.md",
        study=lab.study,
        search=lab.study.search,
        factors=factors,
        level_count=sum(len(factor.levels) for factor in factors),
        symptoms=symptoms,
        limits=_limits(lab.study.budget),
    )


def _limits(budget: Budget) -> list[str]:
    limits = []
    if budget.runs is not None:
        limits.append(f"{budget.runs} runs")
    if budget.experiments is not None:
        limits.append(f"{budget.experiments} experiments")
    if budget.duration_seconds is not None:
        limits.append(humanize.precisedelta(budget.duration_seconds))
    if budget.until is not None:
        limits.append(f"until {budget.until}")
    return limits
