"""What both templates share: the report, its wording and the number formats."""

from __future__ import annotations

from typing import Any

from nightlab.report import numbers
from nightlab.report.ideas import told_of
from nightlab.report.model import EffectRow, Influence, StudyReport
from nightlab.report.wording import INFLUENCE_MARKS, VERDICT_MARKS, Wording

__all__ = ["template_values"]

INFLUENCE_TITLES: dict[Influence, str] = {
    "helped": "Helped",
    "promising": "Promising",
    "no effect": "No effect",
    "hurt": "Hurt",
    "unknown": "Unknown",
}

EVENTS_SHOWN = 40
LEAST_SHARE = 0.01


def template_values(report: StudyReport) -> dict[str, Any]:
    """Names a template may use."""
    return {
        "report": report,
        "words": Wording(report.metric, report.noise),
        "effects_by_influence": _by_influence(report),
        "influence_marks": INFLUENCE_MARKS,
        "verdict_marks": VERDICT_MARKS,
        "merge": f"git merge {report.winner.branch}" if report.winner else "",
        "count": numbers.count,
        "duration": numbers.duration,
        "level": numbers.level,
        "listing": numbers.listing,
        "memory": numbers.memory,
        "percent": numbers.percent,
        "short": numbers.short,
        "told_of_ideas": told_of(report.ideas),
        "events_shown": EVENTS_SHOWN,
        "over_seeds": _over_seeds(report),
        "shares": numbers.listing(f"{percent} go with {name}" for name, percent in _shares(report)),
        "any_confounded": any(row.confounded_with for row in report.effects),
        "any_interaction": any(row.interactions for row in report.effects),
    }


def _over_seeds(report: StudyReport) -> dict[str, str]:
    """Metric → interval of the winner's difference over seeds; the objective's is what its verdict rests on."""
    words = Wording(report.metric, report.noise)
    found = {other.name: other.interval for other in report.others}
    return found | ({report.metric.name: words.interval(report.winner.effect)} if report.winner else {})


def _shares(report: StudyReport) -> list[tuple[str, str]]:
    """The factors whose part can be seen, in percent."""
    return [(name, numbers.percent(share)) for name, share in report.shares if share >= LEAST_SHARE]


def _by_influence(report: StudyReport) -> list[tuple[str, Influence, list[EffectRow]]]:
    return [
        (title, influence, rows)
        for influence, title in INFLUENCE_TITLES.items()
        if (rows := [row for row in report.effects if row.influence == influence])
    ]
