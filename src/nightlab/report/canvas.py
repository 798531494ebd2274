"""Figures that become inline SVG in the page's own colours and font.

Every colour is drawn as a marker value and then replaced by a CSS variable, so one drawing serves light, dark and
print. matplotlib is used without pyplot: no global figure, no display.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

__all__ = ["BAD", "BAND", "GRID", "INK", "MUTED", "OPEN", "PHASES", "PLAIN", "SURFACE", "WON", "blank_figure", "to_svg"]

INK, MUTED, GRID, BAND, SURFACE = "#010101", "#020202", "#030303", "#040404", "#050505"
WON, BAD, PLAIN, OPEN = "#060606", "#070707", "#080808", "#090909"
PHASES = {
    "baseline": "#0a0a0a",
    "screen": "#0b0b0b",
    "combine": "#0c0c0c",
    "refine": "#0d0d0d",
    "confirm": "#0e0e0e",
    "stress": "#0f0f0f",
}
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    BAND: "--band",
    SURFACE: "--surface",
    WON: "--good",
    BAD: "--bad",
    PLAIN: "--plain",
    OPEN: "--open",
    **{marker: f"--phase-{name}" for name, marker in PHASES.items()},
}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "ytick.major.size": 0,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "hatch.color": SURFACE,
    "svg.fonttype": "none",
    "svg.hashsalt": "nightlab",
}


@contextmanager
def blank_figure(width_inches: float, height_inches: float) -> Iterator[tuple[Figure, Axes]]:
    """One pair of axes on a transparent ground; draw and turn into SVG inside the block, where the style holds."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width_inches, height_inches), layout="constrained")
        figure.patch.set_alpha(0)
        axes = figure.add_subplot()
        axes.patch.set_alpha(0)
        yield figure, axes


def to_svg(figure: Figure, name: str, description: str) -> str:
    """An `<svg>` element for a page: no namespace addresses, ids led by `name`, `description` for who cannot see it."""
    buffer = StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    body = svg[svg.index(">", svg.index("<svg")) + 1 :]
    view_box = re.search(r'viewBox="([^"]+)"', svg)
    body = re.sub(r'\bid="', f'id="{name}-', body)
    body = re.sub(r"url\(#", f"url(#{name}-", body)
    body = re.sub(r'xlink:href="#', f'href="#{name}-', body)
    body = re.sub(r"(?<=font: )([^;\"]*?px)[^;\"]*", r"\1 var(--font)", body)
    body = re.sub(r'\b(fill|stroke)="(#0[0-9a-f]0[0-9a-f]0[0-9a-f])"', r'style="\1: \2"', body)
    # Marker colours stand in style attributes only; text that looks like one is left alone.
    body = re.sub(r"(?<=: )#0[0-9a-f]0[0-9a-f]0[0-9a-f]\b", lambda m: _variable(m.group()), body)
    label = escape(description, quote=True)
    return f'<svg viewBox="{view_box.group(1) if view_box else ""}" role="img" aria-label="{label}">{body.strip()}'


def _variable(marker: str) -> str:
    return f"var({VARIABLES[marker]})" if marker in VARIABLES else marker
