"""The report's charts; each is drawn for a wide page and for a telephone."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from nightlab.knowledge.records import Effect, VerdictKind
from nightlab.report.canvas import BAD, BAND, INK, MUTED, OPEN, PHASES, PLAIN, SURFACE, WON, blank_figure, to_svg
from nightlab.report.model import EffectRow, ExperimentRow, Influence, MainEffectRow, StudyReport
from nightlab.report.numbers import count, duration, percent
from nightlab.report.timeline import group_by_slot
from nightlab.report.wording import INFLUENCE_MARKS, Wording

__all__ = ["ROWS_SHOWN", "draw_effects", "draw_front", "draw_main_effects", "draw_progress", "draw_timeline"]

ROWS_SHOWN = 40
NARROW_INCHES = 6.0
PHASE_MARKERS = {"baseline": "s", "screen": "o", "combine": "D", "refine": "p", "confirm": "^"}
INFLUENCE_COLOURS: dict[Influence, str] = {
    "helped": WON,
    "promising": WON,
    "no effect": PLAIN,
    "hurt": BAD,
    "unknown": OPEN,
}
INFLUENCE_SHAPES: dict[Influence, str] = {
    "helped": "^",
    "promising": "^",
    "no effect": "s",
    "hurt": "v",
    "unknown": "o",
}


def draw_progress(report: StudyReport, width_inches: float) -> str | None:
    """Runs by experiment, best mean so far, noise band and confirmed winner as SVG; None before the first value."""
    if not any(row.points for row in report.experiments):
        return None
    metric = report.metric
    with blank_figure(width_inches, 3.4) as (figure, axes):
        axes.margins(x=0.03)
        limit = _worst_shown(report)
        _noise_band(axes, report)
        _run_dots(axes, report, limit)
        _best_line(axes, report)
        _winner_interval(axes, report)
        _failed_marks(axes, report)
        axes.set_ylabel(f"{metric.name} ({metric.unit})" if metric.unit else metric.name)
        axes.set_xlabel(f"experiment, in the order tried · {metric.better}")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(visible=False, axis="x")
        columns = 6 if width_inches > NARROW_INCHES else 2
        figure.legend(loc="outside upper left", ncols=columns, handletextpad=0.4, columnspacing=1.2)
        return to_svg(figure, f"progress-{_size(width_inches)}", _progress_words(report))


def draw_effects(report: StudyReport, width_inches: float) -> str | None:
    """Forest plot of the single changes as SVG; None without any. The strongest 40 are drawn."""
    chosen = sorted(report.effects, key=lambda row: -abs(row.effect.delta))[:ROWS_SHOWN]
    rows = sorted(chosen, key=lambda row: row.effect.delta)
    return _draw_forest(report, rows, width_inches, "effects")


def draw_main_effects(report: StudyReport, width_inches: float) -> str | None:
    """Forest plot of the array's main effects as SVG; None without an array."""
    rows = sorted(report.main_effects, key=lambda row: row.effect.delta)
    return _draw_forest(report, rows, width_inches, "main-effects")


def draw_front(report: StudyReport, width_inches: float) -> str | None:
    """The Pareto front over the objective and the first other metric as SVG; None below two experiments on it."""
    front = report.front
    if front is None or len(front.rows) < 2:
        return None
    with blank_figure(width_inches, 2.8) as (figure, axes):
        axes.margins(x=0.08, y=0.12)
        axes.plot(*zip(*(row.means[:2] for row in front.rows), strict=True), "o", color=WON, markersize=6)
        for row in front.rows:
            axes.annotate(
                f"{row.number:02d}", (row.means[0], row.means[1]), xytext=(5, 4), textcoords="offset points", fontsize=8
            )
        axes.set_xlabel(f"{front.metrics[0]} · {front.ways[0]}")
        axes.set_ylabel(f"{front.metrics[1]} · {front.ways[1]}")
        words = "; ".join(f"experiment {row.number:02d}: {', '.join(row.cells)}" for row in front.rows)
        return to_svg(figure, f"front-{_size(width_inches)}", f"Pareto front of {', '.join(front.metrics)}. {words}")


def draw_timeline(report: StudyReport, width_inches: float) -> str | None:
    """What each slot did as SVG; None before the first job."""
    timeline = report.timeline
    if not timeline.bars:
        return None
    divisor, unit = _time_scale(timeline.span_seconds)
    height = 1.1 + 0.32 * min(timeline.slots, 32)
    with blank_figure(width_inches, height) as (figure, axes):
        per_inch = timeline.span_seconds / width_inches
        for slot, bars in group_by_slot(timeline).items():
            for bar in bars:
                length = bar.end_seconds - bar.start_seconds
                failed = bar.outcome == "failed"
                axes.barh(
                    slot,
                    length / divisor,
                    left=bar.start_seconds / divisor,
                    height=0.78,
                    color=BAD if failed else PHASES[bar.kind],
                    edgecolor=SURFACE,
                    linewidth=0.8,
                    hatch="////" if failed else "",
                )
                if length > per_inch * 0.28:
                    middle = (bar.start_seconds + length / 2) / divisor
                    ground: dict[str, Any] = {"facecolor": BAD, "edgecolor": "none", "pad": 1} if failed else {}
                    style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8, "color": SURFACE}
                    axes.text(middle, slot, f"{bar.number:02d}", bbox=ground or None, **style)
        _timeline_legend(axes, report)
        axes.set_yticks(range(timeline.slots), [f"slot {slot}" for slot in range(timeline.slots)])
        axes.invert_yaxis()
        axes.set_xlim(0, max(timeline.span_seconds / divisor, 1e-9))
        axes.set_xlabel(f"{unit} since the first submission")
        axes.grid(visible=False, axis="y")
        columns = 5 if width_inches > NARROW_INCHES else 3
        figure.legend(loc="outside upper left", ncols=columns, handletextpad=0.5, columnspacing=1.2)
        return to_svg(figure, f"timeline-{_size(width_inches)}", _timeline_words(report))


def _draw_forest(
    report: StudyReport, rows: Sequence[EffectRow | MainEffectRow], width_inches: float, name: str
) -> str | None:
    """Rows from the worst (bottom) to the best (top), in the metric's own sign."""
    if not rows:
        return None
    words, metric = Wording(report.metric, report.noise), report.metric
    limits = _forest_limits(report, [row.effect for row in rows])
    narrow = width_inches < NARROW_INCHES
    with blank_figure(width_inches, 1.0 + 0.27 * len(rows)) as (figure, axes):
        axes.axvspan(-metric.min_effect, metric.min_effect, color=BAND, linewidth=0)
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for position, row in enumerate(rows):
            _forest_row(axes, report, row.effect, row.influence, position, limits)
        axes.set_yticks(range(len(rows)), [_shorten(row.title, 21 if narrow else 40) for row in rows])
        axes.tick_params(axis="y", labelcolor=INK)
        axes.set_ylim(-0.7, len(rows) - 0.3)
        margin = 0.03 * (limits[1] - limits[0])
        axes.set_xlim(limits[0] - margin, limits[1] + margin)
        values = axes.secondary_yaxis("right")
        texts = [f"{INFLUENCE_MARKS[row.influence]} {words.change(row.effect, unit=False)}" for row in rows]
        values.set_yticks(range(len(rows)), texts)
        values.tick_params(axis="y", labelcolor=INK, length=0)
        values.spines["right"].set_visible(False)
        unit = f" ({metric.change_unit})" if metric.change_unit else ""
        axes.set_xlabel(f"change of {metric.name}{unit}")
        _directions(axes, maximize=metric.maximize)
        axes.xaxis.set_major_locator(MaxNLocator(4 if narrow else 8))
        axes.grid(visible=False, axis="y")
        return to_svg(figure, f"{name}-{_size(width_inches)}", _forest_words(report, rows, words))


def _forest_row(
    axes: Axes, report: StudyReport, effect: Effect, influence: Influence, position: int, limits: tuple[float, float]
) -> None:
    delta, low, high = report.metric.change(effect)
    colour = INFLUENCE_COLOURS[influence]
    if low is not None and high is not None:
        ends = [min(max(end, limits[0]), limits[1]) for end in (low, high)]
        axes.plot(ends, [position, position], color=colour, linewidth=1.8, solid_capstyle="round")
    beyond = not limits[0] <= delta <= limits[1]
    shape = (">" if delta > 0 else "<") if beyond else INFLUENCE_SHAPES[influence]
    fill = SURFACE if influence in ("promising", "unknown") else colour
    centre = min(max(delta, limits[0]), limits[1])
    axes.plot([centre], [position], marker=shape, markersize=6.5, color=colour, markerfacecolor=fill, linestyle="")


def _forest_limits(report: StudyReport, effects: Sequence[Effect]) -> tuple[float, float]:
    """Ends of the axis, band included; what is far worse than the rest must not press the gains into the middle."""
    metric = report.metric
    least = 1.6 * metric.min_effect or 1e-12
    gains = [max(effect.delta, effect.high or 0.0) for effect in effects]
    losses = [-min(effect.delta, effect.low or 0.0) for effect in effects]
    best = max(*gains, least)
    worst = min(max(*losses, least), max(1.5 * best, 4 * median(abs(effect.delta) for effect in effects)))
    return (-worst, best) if metric.maximize else (-best, worst)


def _directions(axes: Axes, *, maximize: bool) -> None:
    left, right = ("worse", "better") if maximize else ("better", "worse")
    style: dict[str, Any] = {"transform": axes.transAxes, "fontsize": 8.5, "color": MUTED, "va": "bottom"}
    axes.text(0, 1.0, f"← {left}", ha="left", **style)
    axes.text(1, 1.0, f"{right} →", ha="right", **style)


def _noise_band(axes: Axes, report: StudyReport) -> None:
    noise = report.noise
    if noise is None:
        return
    # A quiet baseline alone must look quiet: never fewer than a few worthwhile effects from top to bottom.
    least = 2 * report.metric.min_effect
    axes.update_datalim([(0, noise.mean - least), (0, noise.mean + least)])
    axes.axhline(noise.mean, color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
    if noise.deviation:
        spread = 2 * noise.deviation
        axes.axhspan(
            noise.mean - spread, noise.mean + spread, color=BAND, linewidth=0, label="baseline ± 2 SD of seeds"
        )


def _run_dots(axes: Axes, report: StudyReport, limit: float | None) -> None:
    """One mark a run, its phase by shape; values beyond `limit` are shown at it as being off the scale."""
    points = [point for row in report.experiments for point in row.points]
    beyond = [point for point in points if _is_beyond(point.value, limit, maximize=report.metric.maximize)]
    inside = [point for point in points if point not in beyond]
    style: dict[str, Any] = {"s": 32, "linewidths": 0.7, "edgecolors": SURFACE, "zorder": 3}
    for phase, marker in PHASE_MARKERS.items():
        chosen = [p for p in inside if p.phase.value == phase and p.believed]
        if chosen:
            numbers, values = [p.number for p in chosen], [p.value for p in chosen]
            axes.scatter(numbers, values, marker=marker, c=PHASES[phase], label=phase, **style)
    doubted = [point for point in inside if not point.believed]
    if doubted:
        numbers, values = [p.number for p in doubted], [p.value for p in doubted]
        axes.scatter(numbers, values, marker="x", c=OPEN, s=26, label="rejected by review", zorder=3)
    if beyond and limit is not None:
        shape = "v" if report.metric.maximize else "^"
        axes.scatter(
            [p.number for p in beyond],
            [limit] * len(beyond),
            marker=shape,
            facecolors=SURFACE,
            edgecolors=BAD,
            s=32,
            label="worse, off the scale",
            zorder=3,
        )


def _best_line(axes: Axes, report: StudyReport) -> None:
    better = max if report.metric.maximize else min
    numbers: list[int] = []
    best: list[float] = []
    for row in report.experiments:
        if row.mean is not None and not row.breaches and row.verdict is not VerdictKind.REJECTED:
            numbers.append(row.number)
            best.append(better(best[-1], row.mean) if best else row.mean)
    if len(numbers) > 1:
        numbers.append(max(row.number for row in report.experiments))
        best.append(best[-1])
        axes.step(numbers, best, where="post", color=INK, linewidth=1.3, label="best mean so far", zorder=3.5)


def _winner_interval(axes: Axes, report: StudyReport) -> None:
    for row in (report.winner, *report.other_winners):
        if row is None or row.effect is None or row.mean is None:
            continue
        delta, low, high = report.metric.change(row.effect)
        before = row.mean - delta
        if low is not None and high is not None:
            error = [[row.mean - before - low], [before + high - row.mean]]
            axes.errorbar([row.number], [row.mean], yerr=error, color=WON, linewidth=2, capsize=4, zorder=4)
        first = row is report.winner
        label = f"confirmed, {Wording(report.metric, report.noise).confidence(row.effect)} interval"
        style: dict[str, Any] = {
            "marker": "*",
            "s": 150,
            "color": WON,
            "edgecolors": SURFACE,
            "linewidths": 0.7,
            "zorder": 5,
        }
        axes.scatter([row.number], [row.mean], label=label if first else None, **style)


def _failed_marks(axes: Axes, report: StudyReport) -> None:
    failed = [row.number for row in report.experiments if row.failed_runs and not row.points]
    if failed:
        at_foot = axes.get_xaxis_transform()
        axes.scatter(failed, [0.02] * len(failed), marker="x", c=BAD, s=26, label="failed", transform=at_foot, zorder=3)


def _worst_shown(report: StudyReport) -> float | None:
    """The worst value drawn in its true place: a diverged run must not flatten all others."""
    values = [p.value for row in report.experiments for p in row.points]
    start = report.noise.mean if report.noise else median(values)
    sign = 1 if report.metric.maximize else -1
    gain = max(sign * (value - start) for value in values)
    spread = 4 * (report.noise.deviation or 0.0) if report.noise else 0.0
    reach = 2 * max(gain, spread, report.metric.min_effect)
    return start - sign * reach if reach > 0 else None


def _is_beyond(value: float, limit: float | None, *, maximize: bool) -> bool:
    if limit is None:
        return False
    return value < limit if maximize else value > limit


def _timeline_legend(axes: Axes, report: StudyReport) -> None:
    bars = report.timeline.bars
    for phase, colour in PHASES.items():
        if any(bar.kind == phase and bar.outcome != "failed" for bar in bars):
            axes.barh([0], [0], color=colour, label=phase)
    if any(bar.outcome == "failed" for bar in bars):
        axes.barh([0], [0], color=BAD, hatch="////", edgecolor=SURFACE, label="failed")


def _time_scale(seconds: float) -> tuple[float, str]:
    if seconds < 180:
        return 1.0, "seconds"
    return (60.0, "minutes") if seconds < 3 * 3600 else (3600.0, "hours")


def _size(width_inches: float) -> str:
    return "wide" if width_inches > NARROW_INCHES else "narrow"


def _shorten(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _progress_words(report: StudyReport) -> str:
    rows: list[ExperimentRow] = [row for row in report.experiments if row.mean is not None]
    return f"{report.metric.name} of {count(len(rows), 'experiment')} in the order tried. {report.summary.title}."


def _forest_words(report: StudyReport, rows: Sequence[EffectRow | MainEffectRow], words: Wording) -> str:
    best = rows[-1]
    return (
        f"Change of {report.metric.name} with intervals, {count(len(rows), 'row')}; "
        f"best {best.title}: {words.change(best.effect)} ({best.influence}). The same numbers stand in the table."
    )


def _timeline_words(report: StudyReport) -> str:
    timeline = report.timeline
    return (
        f"{count(len(timeline.bars), 'job')} on {count(timeline.slots, 'slot')} "
        f"over {duration(timeline.span_seconds)}, utilisation {percent(timeline.utilisation, 1)}."
    )
