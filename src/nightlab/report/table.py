"""One experiment as a record of full precision: the columns of the CSV, the terminal's table and its JSON."""

from __future__ import annotations

from nightlab.report.model import ExperimentRow, Metric, ResultLine
from nightlab.report.wording import Wording

__all__ = ["experiment_record", "result_line"]


def experiment_record(row: ExperimentRow, metric: Metric) -> dict[str, object]:
    """Column → value in the order of the table; effects above 0 are better whatever the metric's direction."""
    effect = row.effect
    return {
        "number": row.number,
        "scenario": row.scenario,
        "method": row.method,
        "base_model": row.base_model,
        "variable": row.variable,
        "technique": row.technique,
        "phase": row.phase.value,
        "parameters": row.parameters,
        "changed": {change.name: change.after for change in row.changes},
        "metric": metric.name,
        "metric_mean": row.mean,
        "guardrails": row.guardrails,
        "runs": row.runs,
        "failed_runs": row.failed_runs,
        "seeds": list(row.seeds),
        "effect": effect.delta if effect else None,
        "effect_low": effect.low if effect else None,
        "effect_high": effect.high if effect else None,
        "confidence": effect.confidence if effect else None,
        "unit": metric.unit,
        "verdict": row.verdict.value if row.verdict else None,
        "label": row.label,
        "reason": row.reason,
        "job_ids": list(row.job_ids),
        "branch": row.branch,
        "commit": row.commit,
        "note": row.note,
    }


def result_line(row: ExperimentRow, metric: Metric, wording: Wording) -> ResultLine:
    """The experiment in a terminal's width."""
    return ResultLine(
        number=row.number,
        variable=row.variable,
        value=wording.value(row.mean, unit=False),
        runs=row.runs,
        effect=wording.change(row.effect, unit=False),
        interval=wording.interval(row.effect),
        verdict=row.label,
        record=experiment_record(row, metric),
    )
