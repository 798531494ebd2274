"""One row an experiment, from the ledger's records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from nightlab.configs.study import Scalar, Study
from nightlab.knowledge.records import Experiment, Idea, Job, Observation, Phase, Run, RunState, Verdict
from nightlab.report.ideas import code_lines
from nightlab.report.model import Change, ExperimentRow, Noise, Point
from nightlab.report.numbers import level, short
from nightlab.search.belief import describe
from nightlab.search.low_runs import is_low

__all__ = ["build_rows", "measure_noise"]

LIKELY = re.compile(r"; among all that was tried, ([+-]\S+) is likely to be left of it")
"""As `search.belief` says it, with gains above 0."""
MEASURED = (RunState.MEASURED, RunState.REVIEWED, RunState.REJECTED)


def build_rows(
    study: Study,
    experiments: Iterable[Experiment],
    runs: Sequence[Run],
    jobs: Iterable[Job],
    observations: Mapping[str, Observation],
    verdicts: Mapping[int, Verdict],
    ideas: Sequence[Idea] = (),
) -> tuple[ExperimentRow, ...]:
    """Rows by experiment number. Only runs the review let stand enter a mean."""
    jobs_by_key = {job.key: job for job in jobs}
    runs_by_number: dict[int, list[Run]] = {}
    for run in runs:
        runs_by_number.setdefault(run.number, []).append(run)
    rows = (
        _row(study, e, runs_by_number.get(e.number, []), jobs_by_key, observations, verdicts.get(e.number))
        for e in sorted(experiments, key=lambda experiment: experiment.number)
    )
    return tuple(replace(row, lines=code_lines(ideas, row.parameters)) for row in rows)


def measure_noise(baseline: ExperimentRow | None) -> Noise | None:
    """Mean and deviation of the baseline's believed runs; None before the first."""
    if baseline is None:
        return None
    believed = [point for point in baseline.points if point.believed]
    if not believed:
        return None
    values = [point.value for point in believed]
    deviation = stdev(values) if len(values) > 1 else None
    return Noise(fmean(values), deviation, len(values), tuple(dict.fromkeys(point.seed for point in believed)))


def _row(
    study: Study,
    experiment: Experiment,
    runs: Sequence[Run],
    jobs: Mapping[str, Job],
    observations: Mapping[str, Observation],
    verdict: Verdict | None,
) -> ExperimentRow:
    # Values at low fidelity stand beside no others; the verdict's reason has what they say.
    points = () if is_low(study, experiment.changed) else _points(study.objective.metric, runs, observations)
    basis = verdict.basis if verdict else None
    seen = [observations[run.key] for run in runs if run.state in MEASURED and run.key in observations]
    guardrails = _means([rail.metric for rail in study.guardrails], seen)
    own_jobs = [jobs[run.key] for run in runs if run.key in jobs]
    memory = [job.peak_memory_bytes for job in own_jobs if job.peak_memory_bytes is not None]
    wall = [job.wall_seconds for job in own_jobs if job.wall_seconds is not None]
    return ExperimentRow(
        number=experiment.number,
        scenario=experiment.scenario,
        method=experiment.method,
        base_model=experiment.base_model,
        variable=experiment.variable,
        technique=experiment.technique,
        title=_title(experiment),
        parameters=experiment.parameters,
        changes=_changes(study.parameters, experiment.changed),
        phase=experiment.phase,
        state=experiment.state,
        why=experiment.reason,
        points=points,
        mean=_mean(points, basis),
        runs=len(runs),
        failed_runs=sum(run.state is RunState.FAILED for run in runs),
        seeds=tuple(dict.fromkeys(run.seed for run in runs)),
        guardrails=guardrails,
        breaches=_breaches(study, guardrails),
        effect=verdict.effect if verdict else None,
        verdict=verdict.kind if verdict else None,
        label=verdict.label if verdict else _state_label(experiment),
        reason=_reason(verdict) if verdict else _state_reason(experiment),
        basis=basis,
        job_ids=tuple(job.native_id for job in own_jobs if job.native_id),
        branch=experiment.branch,
        commit=experiment.commit,
        peak_memory_bytes=max(memory, default=None),
        wall_seconds=fmean(wall) if wall else None,
        note=experiment.note,
    )


def _reason(verdict: Verdict) -> str:
    """The reason without its figures: those stand beside it, in the metric's own sign."""
    figures = describe(verdict.effect) if verdict.effect else ""
    reason = verdict.reason.removeprefix(figures).lstrip(" ,:") or verdict.label
    return LIKELY.sub(lambda found: _likely(found.group(1), verdict), reason)


def _likely(gain: str, verdict: Verdict) -> str:
    """What is likely to be left of an effect, without a sign, which would be another one than the metric's own."""
    if verdict.effect and gain == f"{verdict.effect.delta:+.3g}":
        return ""
    what = "a loss" if gain.startswith("-") else "a gain"
    return f"; among all that was tried, {what} of {gain.lstrip('+-')} is likely to be left of it"


def _state_label(experiment: Experiment) -> str:
    return "baseline" if experiment.number == 0 else experiment.state.value


def _state_reason(experiment: Experiment) -> str:
    return "what everything is compared with" if experiment.number == 0 else "no verdict yet"


def _title(experiment: Experiment) -> str:
    if not experiment.changed:
        return "baseline" if experiment.number == 0 else experiment.variable
    return ", ".join(f"{name} = {level(value)}" for name, value in experiment.changed.items())


def _changes(baseline: Mapping[str, Scalar], changed: Mapping[str, Scalar]) -> tuple[Change, ...]:
    return tuple(Change(name, baseline.get(name), value) for name, value in changed.items())


def _points(metric: str, runs: Sequence[Run], observations: Mapping[str, Observation]) -> tuple[Point, ...]:
    found = []
    for run in runs:
        observation = observations.get(run.key)
        if run.state in MEASURED and observation and metric in observation.values:
            believed = run.state is not RunState.REJECTED
            found.append(Point(run.number, run.seed, run.phase, observation.values[metric], believed))
    return tuple(found)


def _mean(points: Sequence[Point], basis: Phase | None) -> float | None:
    believed = [point for point in points if point.believed]
    confirmed = [point for point in believed if point.phase is Phase.CONFIRM]
    chosen = confirmed if basis is Phase.CONFIRM and confirmed else believed
    return fmean(point.value for point in chosen) if chosen else None


def _means(metrics: Sequence[str], observations: Sequence[Observation]) -> dict[str, float]:
    return {
        metric: fmean(values)
        for metric in metrics
        if (values := [o.values[metric] for o in observations if metric in o.values])
    }


def _breaches(study: Study, means: Mapping[str, float]) -> tuple[str, ...]:
    found = []
    for rail in study.guardrails:
        value = means.get(rail.metric)
        if value is None:
            continue
        if rail.min is not None and value < rail.min:
            found.append(f"{rail.metric} {short(value)} is below {short(rail.min)}")
        if rail.max is not None and value > rail.max:
            found.append(f"{rail.metric} {short(value)} is above {short(rail.max)}")
    return tuple(found)
