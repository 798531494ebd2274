"""What reads typed metrics from what a run left behind."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.errors import MetricError
from nightlab.tools.metrics.base import MetricReader, Reading, RunFiles

__all__ = ["MetricReader", "Reading", "RunFiles", "read_metrics"]


def read_metrics(study: Study, files: RunFiles) -> dict[str, Reading]:
    """Metric name → reading, the objective first.

    The objective and the guardrails' metrics must be there; a metric that is only declared is left out when it cannot
    be read, for no verdict rests on it. Raises MetricError for the first metric that must be there and is not.
    """
    from nightlab.tools.metrics.reader import SourceReader

    reader = SourceReader()
    required = {study.objective.metric, *(rail.metric for rail in study.guardrails)}
    readings = {}
    for name in study.metric_names:
        try:
            readings[name] = reader.read(files, name, study.source_of(name), maximize=_larger_is_better(study, name))
        except MetricError:
            if name in required:
                raise
    return readings


def _larger_is_better(study: Study, metric: str) -> bool:
    """The objective's direction; a guardrail's metric with only an upper bound is better when smaller."""
    if metric == study.objective.metric:
        return study.maximize
    rail = next((rail for rail in study.guardrails if rail.metric == metric), None)
    return study.maximize if rail is None else rail.max is None
