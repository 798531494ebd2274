"""The Pareto front in the report: the experiments that no other one beats in every metric the study names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from nightlab.configs.study import Study
from nightlab.knowledge.records import Observation, Run, RunState
from nightlab.report.model import ExperimentRow, Front, FrontRow
from nightlab.report.numbers import decimals_for, fixed, short
from nightlab.search.pareto import Estimate, pareto_front

__all__ = ["front_of"]

BELIEVED = (RunState.MEASURED, RunState.REVIEWED)


def front_of(
    study: Study, rows: Sequence[ExperimentRow], runs: Sequence[Run], observations: Mapping[str, Observation]
) -> Front | None:
    """The front over the objective and `pareto`, by the runs that the review let stand; None where none is asked for.

    An experiment that breaks a guardrail takes no part.
    """
    if not study.pareto:
        return None
    maximize = {study.objective.metric: study.maximize} | {
        name: way == "maximize" for name, way in study.pareto.items()
    }
    broken = {row.number for row in rows if row.breaches}
    values: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        seen = observations.get(run.key)
        if seen and run.state in BELIEVED and run.number not in broken:
            for metric in maximize.keys() & seen.values.keys():
                values[run.number][metric].append(seen.values[metric])
    titles = {row.number: row.title for row in rows}
    found = [
        FrontRow(
            point.number,
            titles.get(point.number, ""),
            tuple(_text(point.estimates[metric]) for metric in maximize),
            tuple(point.estimates[metric].mean for metric in maximize),
            min(estimate.runs for estimate in point.estimates.values()),
        )
        for point in pareto_front(values, maximize, study.search.confidence)
    ]
    ways = tuple("higher is better" if up else "lower is better" for up in maximize.values())
    return Front(tuple(maximize), ways, tuple(found))


def _text(estimate: Estimate) -> str:
    if estimate.low is None or estimate.high is None:
        return short(estimate.mean)
    decimals = decimals_for((estimate.high - estimate.low) / 2, value=estimate.mean)
    mean, low, high = (fixed(value, decimals) for value in (estimate.mean, estimate.low, estimate.high))
    return f"{mean} ({low} … {high})"
