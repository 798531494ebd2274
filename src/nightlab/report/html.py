"""`final_report.html`: one file that fetches nothing, for light and dark, paper and telephone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from nightlab.configs.files import write_atomically
from nightlab.report.charts import ROWS_SHOWN, draw_effects, draw_front, draw_main_effects, draw_progress, draw_timeline
from nightlab.report.markdown import CONTROL
from nightlab.report.model import StudyReport
from nightlab.report.view import template_values

__all__ = ["render_html", "write_html"]

WIDTHS_INCHES = (9.2, 4.3)
CHARTS = {
    "progress": draw_progress,
    "effects": draw_effects,
    "main_effects": draw_main_effects,
    "front": draw_front,
    "timeline": draw_timeline,
}


def render_html(report: StudyReport) -> str:
    """The whole page; every word that came from outside is escaped, and a policy in it forbids any fetch."""
    environment = Environment(
        loader=PackageLoader("nightlab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    charts = {name: _drawn(draw, report) for name, draw in CHARTS.items()}
    values = template_values(report) | {"charts": charts, "rows_drawn": ROWS_SHOWN}
    return CONTROL.sub("", environment.get_template("final_report.html.j2").render(values))


def _drawn(draw: Callable[[StudyReport, float], str | None], report: StudyReport) -> list[Markup]:
    """One chart in every width; empty when there is nothing to draw. Its words are escaped where it is drawn."""
    drawings = [draw(report, width) for width in WIDTHS_INCHES]
    return [Markup(svg) for svg in drawings if svg]  # noqa: S704


def write_html(report: StudyReport, path: Path, redact: Callable[[str], str] = str) -> None:
    write_atomically(path, redact(render_html(report)))
