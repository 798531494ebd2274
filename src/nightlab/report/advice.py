"""What to try next, derived by rule from verdicts and effects; no rule reads anything but the report and the study."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import NormalDist, fmean

from nightlab.configs.study import Factor, Scalar, Study
from nightlab.knowledge.records import Phase, VerdictKind
from nightlab.report.model import Advice, EffectRow, ExperimentRow, StudyReport
from nightlab.report.numbers import count, duration, level, listing, short
from nightlab.report.wording import Wording

__all__ = ["advise", "next_level", "seeds_needed"]

TOO_MANY_SEEDS = 30
SHOWN = 6
GOOD = ("helped", "promising")


def advise(study: Study, report: StudyReport) -> tuple[Advice, ...]:
    """The next steps, most useful first, at most six."""
    rules: tuple[Callable[[Study, StudyReport], list[Advice]], ...] = (
        _continue_it,
        _mend_failures,
        _confirm_candidate,
        _relax_guardrail,
        _extend_range,
        _add_to_winner,
        _separate_confounded,
        _resolve_unknown,
        _try_untried,
        _change_dimension,
        _start_from_winner,
    )
    return tuple(advice for rule in rules for advice in rule(study, report))[:SHOWN]


def seeds_needed(deviation: float, half_width: float, confidence: float) -> int:
    """Seeds a side after which the interval of a difference of two means is about ± `half_width` wide.

    Normal approximation, one seed added for the small-sample t quantile.
    """
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    return max(2, math.ceil(2 * (z * deviation / half_width) ** 2) + 1)


def next_level(factor: Factor, baseline: Scalar, best: Scalar) -> Scalar | None:
    """The value one step beyond `best` when it is the outermost of an ordered factor; None otherwise."""
    tried = [*(factor.levels or factor.range or ()), baseline]
    values = sorted({float(v) for v in tried if isinstance(v, int | float) and not isinstance(v, bool)})
    if factor.categorical or isinstance(best, bool | str) or len(values) < 2 or best not in (values[0], values[-1]):
        return None
    edge, inner = (values[-1], values[-2]) if best == values[-1] else (values[0], values[1])
    if edge == 0:
        return None
    geometric = factor.scale == "log" or (factor.range is None and values[0] > 0 and _is_geometric(values))
    beyond = edge * edge / inner if geometric else edge + (edge - inner)
    if values[0] >= 0 and beyond <= 0:
        return None
    whole = factor.integer or all(isinstance(v, int) for v in tried)
    if whole:
        return round(beyond)
    plain = float(f"{beyond:.1g}")
    return plain if abs(plain - beyond) <= 0.15 * abs(beyond) else float(f"{beyond:.2g}")


def _is_geometric(values: Sequence[float]) -> bool:
    steps = [right / left for left, right in pairwise(values)]
    return len(steps) > 1 and min(steps) > 1.4 and max(steps) < 1.5 * min(steps)


def _continue_it(_: Study, report: StudyReport) -> list[Advice]:
    if report.status == "stopped":
        return [
            Advice(
                "Let it finish",
                "The study stopped before its budget was spent. Running it again continues from the ledger; "
                "nothing that was measured is repeated.",
                "nightlab run",
            )
        ]
    return []


def _mend_failures(_: Study, report: StudyReport) -> list[Advice]:
    runs = sum(row.runs for row in report.experiments)
    return [
        Advice(
            f"Mend “{group.cause}” first",
            f"{count(group.runs, 'run')} of {runs} ended this way: {group.meaning}.",
            f"nightlab logs {group.experiments[0]:02d}",
        )
        for group in report.failures[:1]
        if group.runs > 1 and group.runs * 10 >= runs
    ]


def _confirm_candidate(study: Study, report: StudyReport) -> list[Advice]:
    row = report.candidate
    if row is None or row.effect is None:
        return []
    margin = row.effect.delta - study.objective.min_effect
    if margin <= 0:
        return [
            Advice(
                f"Leave experiment {row.number:02d} where it is",
                f"Its effect is below the smallest worth having ({Wording(report.metric, report.noise).least()}).",
            )
        ]
    if row.basis is Phase.CONFIRM:
        why = "On fresh seeds it looks better than the baseline, but its interval does not clear what is worth having."
    else:
        why = "It looks better than the baseline, but no fresh seed has shown it yet, and the best of many flatters."
    return [
        Advice(f"Confirm experiment {row.number:02d} ({row.title})", f"{why} {_fresh_seeds(study, report, margin)}")
    ]


def _relax_guardrail(_: Study, report: StudyReport) -> list[Advice]:
    least = report.winner.effect.delta if report.winner and report.winner.effect else report.metric.min_effect
    gains = {row.number: _apparent_gain(report, row) for row in report.experiments if row.breaches}
    best = max(gains, key=lambda number: gains[number], default=None)
    if best is None or gains[best] <= least:
        return []
    row = next(row for row in report.experiments if row.number == best)
    words = Wording(report.metric, report.noise)
    return [
        Advice(
            f"Decide whether experiment {best:02d} is worth its price",
            f"It improves {report.metric.name} by {short(gains[best])} {words.metric.change_unit} ({row.title}), "
            f"but {listing(row.breaches)}.",
        )
    ]


def _apparent_gain(report: StudyReport, row: ExperimentRow) -> float:
    """Improvement over the baseline's mean by all measured runs, those the review refused included."""
    if not row.points or report.noise is None:
        return 0.0
    sign = 1 if report.metric.maximize else -1
    return sign * (fmean(point.value for point in row.points) - report.noise.mean)


def _extend_range(study: Study, report: StudyReport) -> list[Advice]:
    found = []
    for name, best in _best_levels(report).items():
        factor, baseline = study.space.get(name), study.parameters.get(name)
        beyond = next_level(factor, baseline, best) if factor and baseline is not None else None
        if beyond is not None:
            found.append(f"{name} beyond {level(best)}, for example {level(beyond)}")
    if not found:
        return []
    return [
        Advice(
            "Widen the space where the best value is the outermost",
            f"The optimum may lie outside what was tried: {listing(found)}.",
        )
    ]


def _best_levels(report: StudyReport) -> dict[str, Scalar]:
    """The winner's own values; without a winner, of each factor that helped its best level."""
    if report.winner:
        return {change.name: change.after for change in report.winner.changes}
    best: dict[str, Scalar] = {}
    for row in sorted(report.effects, key=lambda row: -row.effect.delta):
        if row.influence in GOOD:
            best.setdefault(row.factor, row.level)
    return best


def _add_to_winner(_: Study, report: StudyReport) -> list[Advice]:
    if report.winner is None:
        return []
    inside = {change.name for change in report.winner.changes}
    outside = [row for row in report.effects if row.influence in GOOD and row.factor not in inside]
    if not outside:
        return []
    names = listing(dict.fromkeys(row.title for row in outside))
    return [
        Advice(
            "Try on top of the winner what looked good alone",
            f"By itself it looks better than the baseline, and it is not in the winner: {names}.",
        )
    ]


def _separate_confounded(_: Study, report: StudyReport) -> list[Advice]:
    mixed = [row for row in report.main_effects if row.confounded_with and row.influence in ("helped", "hurt")]
    if not mixed or report.winner:
        return []
    words = listing(f"{row.factor} with {listing(row.confounded_with, limit=3)}" for row in mixed)
    return [Advice("Separate what the array could not", f"These effects are mixed with interactions: {words}.")]


def _resolve_unknown(study: Study, report: StudyReport) -> list[Advice]:
    unknown = [row for row in report.effects if row.influence == "unknown"]
    if not unknown:
        return []
    names = listing(dict.fromkeys(row.title for row in unknown), limit=5)
    title = "Run what is still unclear on more seeds"
    why = f"The interval is too wide to say whether it matters: {names}."
    deviation = report.noise.deviation if report.noise else None
    if not deviation:
        return [Advice(title, why)]
    needed = [_further_seeds(row, deviation, study) for row in unknown]
    worth = [n for n in needed if n <= TOO_MANY_SEEDS]
    if not worth:
        return [
            Advice(
                "Measure with less noise",
                f"{why} More than {TOO_MANY_SEEDS} further seeds each would be needed; a larger evaluation set or a "
                "longer run does more.",
            )
        ]
    return [Advice(title, f"{why} About {_cost(report, sum(worth))} would settle it.")]


def _further_seeds(row: EffectRow, deviation: float, study: Study) -> int:
    """Seeds until the interval tells on which side of ±min_effect the effect lies."""
    least = study.objective.min_effect
    # An effect right at the threshold would ask for endless runs; half the threshold is close enough.
    half_width = max(abs(abs(row.effect.delta) - least), least / 2) or deviation
    return max(seeds_needed(deviation, half_width, study.search.confidence) - row.effect.runs, 1)


def _try_untried(study: Study, report: StudyReport) -> list[Advice]:
    if report.status == "running" or report.noise is None:
        return []
    tried = {change.name for row in report.experiments for change in row.changes}
    untried = [name for name, one in study.space.items() if not tried & {name, *one.parameters_set}]
    if not untried:
        return []
    levels = sum(len(study.space[name].settings or study.space[name].values) for name in untried)
    return [
        Advice(
            "Try what was not reached",
            f"Never tried: {listing(untried)}. Every level once takes {_cost(report, levels)}.",
        )
    ]


def _change_dimension(study: Study, report: StudyReport) -> list[Advice]:
    measured = [row for row in report.experiments if row.points and not row.is_baseline]
    if report.status == "running" or report.winner or report.candidate or len(measured) < 3:
        return []
    if any(row.verdict is VerdictKind.KEEP for row in measured):
        return []
    return [
        Advice(
            "Turn to the data",
            f"{count(len(measured), 'change')} of the training did not move {report.metric.name}: it is saturated. "
            "Look at data quality, mixture and amount next.",
        ),
        Advice(
            "Decide about the base model",
            f"{study.base_model} is locked; if the data are sound, only a person may choose a larger or another one.",
        ),
    ]


def _start_from_winner(_: Study, report: StudyReport) -> list[Advice]:
    if report.winner is None:
        return []
    return [
        Advice(
            "Start the next study from the winner",
            "Merge its branch and write its values under parameters: the next night then looks for what is left, "
            "with the lessons of this one.",
        )
    ]


def _fresh_seeds(study: Study, report: StudyReport, half_width: float) -> str:
    deviation = report.noise.deviation if report.noise else None
    needed = seeds_needed(deviation, half_width, study.search.confidence) if deviation else 0
    seeds = max(needed, study.search.confirm_seeds)
    if seeds > TOO_MANY_SEEDS:
        return f"More than {TOO_MANY_SEEDS} seeds would be needed; measure with less noise instead."
    return f"It takes about {count(seeds, 'fresh seed')} of it and of the baseline: {_cost(report, 2 * seeds)}."


def _cost(report: StudyReport, runs: int) -> str:
    """`8 runs (about 3 min on 2 slots)`."""
    seconds = [row.wall_seconds for row in report.experiments if row.wall_seconds is not None]
    if not seconds:
        return count(runs, "run")
    slots = max(report.timeline.slots, 1)
    wall = duration(math.ceil(runs / slots) * sum(seconds) / len(seconds))
    return f"{count(runs, 'run')} (about {wall} on {count(slots, 'slot')})"
