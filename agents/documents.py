"""The documents the agents write, from the templates beside them; code decides every word that is not fixed text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import humanize
from jinja2 import Environment, PackageLoader, StrictUndefined

from nightlab.agents.brain import Diagnosis, Facts
from nightlab.agents.context import Lab
from nightlab.agents.design import Design
from nightlab.agents.said import plain
from nightlab.configs.study import Budget, Scalar
from nightlab.knowledge.records import Effect, Lesson
from nightlab.search.chances import EVEN
from nightlab.search.history import RankedFactor

__all__ = ["analysis_report", "format_effect", "improve_guide", "render"]

MOST_TECHNIQUES = 6
"""Techniques named for one symptom; `nightlab catalog match` shows all."""


def format_effect(effect: Effect) -> str:
    """`+0.031 (0.95 interval +0.012 … +0.050) bits/byte`; above 0 is better."""
    text = f"{effect.delta:+.4g}"
    if effect.low is not None and effect.high is not None:
        text += f" ({effect.confidence:.3g} interval {effect.low:+.4g} … {effect.high:+.4g})"
    return f"{text} {effect.unit}".rstrip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _plain(text: str) -> str:
    """Of a model's words: nothing of them is markup."""
    return plain(text, 2000)


def _code(value: object) -> str:
    return f"`{value}`"


def _digits(value: float) -> str:
    return f"{value:.6g}"


@cache
def _environment() -> Environment:
    # Markdown for people, not HTML for a browser: nothing is to be escaped.
    environment = Environment(
        loader=PackageLoader("nightlab.agents"),
        undefined=StrictUndefined,
        autoescape=False,  # noqa: S701
        keep_trailing_newline=True,
    )
    environment.filters |= {"cell": _cell, "code": _code, "digits": _digits, "plain": _plain}
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
        symptoms=[(symptom, *_known_of(lab, symptom)) for symptom in diagnosis.symptoms],
        searched={name for one, factor in lab.study.space.items() for name in (one, *factor.parameters_set)},
    )


def _known_of(lab: Lab, symptom: str) -> tuple[str, list[str]]:
    """What a symptom means and the ids of the first techniques against it; a brain may name one nobody knows."""
    meaning = lab.catalog.meta.symptoms.get(symptom)
    if meaning is None:
        return "not described in the catalog", []
    found = lab.catalog.match(method=lab.study.method, symptoms=[symptom])
    return meaning, [technique.id for technique in found if not technique.locked][:MOST_TECHNIQUES]


def improve_guide(lab: Lab, design: Design, symptoms: Sequence[str], lessons: Sequence[Lesson]) -> str:
    """`lessons` are those of the same method, which moved the order."""
    return render(
        "improve_guide.md",
        study=lab.study,
        search=lab.study.search,
        factors=design.factors,
        bundles=[factor for factor in design.factors if factor.also],
        likely=[(factor.name, likely) for factor in design.factors if (likely := _chances(factor))],
        forbidden=[_together(combination) for combination in design.forbidden],
        level_count=design.level_count,
        symptoms=symptoms,
        lessons=_sources(lessons, lab.study.scenario),
        tiers=lab.catalog.meta.tiers,
        limits=_limits(lab.study.budget),
        advice=design.advice,
        proposals=_standing(lab),
    )


def _standing(lab: Lab) -> str:
    """What has become of a model's proposals, in a sentence."""
    asked = lab.ledger.question("factors")
    if asked is None and lab.study.approvals.factors.policy == "auto":
        return "They enter the plan, behind everything that has a source."
    if asked is None or asked.answer is None:
        return "They wait for the answer to the question `factors`."
    taken = "They entered the plan, behind everything that has a source" if asked.answer == "take" else "They stay out"
    return f"{taken} (answered by {asked.answered_by})."


def _chances(factor: RankedFactor) -> str:
    """`0.01` likely (0.67), `0.1` unlikely (0.33); nothing of what is as likely as not."""
    pairs = zip(factor.levels, factor.chances, strict=False)
    return ", ".join(
        f"`{level}` {'likely' if chance > EVEN else 'unlikely'} ({chance:.2f})"
        for level, chance in pairs
        if f"{chance:.2f}" != f"{EVEN:.2f}"
    )


def _together(assignment: Mapping[str, Scalar]) -> str:
    """`precision` = `fp16` with `optimizer` = `adam8bit`."""
    return " with ".join(f"`{name}` = `{value}`" for name, value in assignment.items())


def _sources(lessons: Sequence[Lesson], scenario: str) -> str:
    """`6 from study tiny, 2 from study other (scenario chat, which count less)`."""
    studies = Counter((lesson.study, lesson.scenario) for lesson in lessons)
    elsewhere = {other: "" if other == scenario else f" (scenario {other}, which count less)" for _, other in studies}
    return ", ".join(f"{number} from study {name}{elsewhere[other]}" for (name, other), number in studies.items())


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
