"""From the ledger's records to everything the report shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from nightlab.configs.study import Guardrail, Study
from nightlab.knowledge.records import Effect, Experiment, Idea, Job, Observation, Run, RunState, Verdict
from nightlab.knowledge.stress import Stress
from nightlab.report.advice import advise
from nightlab.report.front import front_of
from nightlab.report.ideas import idea_rows
from nightlab.report.model import (
    EffectRow,
    ExperimentRow,
    FactorEffectLike,
    FactorGroup,
    FailureGroup,
    Influence,
    MainEffectLike,
    MainEffectRow,
    Metric,
    MoveLike,
    Setup,
    SpendLine,
    Status,
    Step,
    StudyReport,
    Timeline,
)
from nightlab.report.numbers import duration, level, memory, money, short
from nightlab.report.others import other_metrics
from nightlab.report.pruned import pruned_sentence
from nightlab.report.rows import build_rows, measure_noise
from nightlab.report.sentences import certainty_of, choose_candidate, choose_winners, headline_of
from nightlab.report.table import result_line
from nightlab.report.timeline import build_timeline
from nightlab.report.wording import Wording
from nightlab.search.spending import BudgetLine, Resource, Usage, budget_lines, run_amounts

__all__ = ["RESOURCES", "build_report", "influence_of"]

INFLUENCES: dict[str, Influence] = {
    "confirmed": "helped",
    "promising": "promising",
    "without effect": "no effect",
    "no worthwhile gain": "no effect",
    "worse": "hurt",
    "clearly behind": "hurt",
    "questioned by review": "unknown",
    "unknown": "unknown",
}
"""What the search says of a level or a factor → how it is drawn and grouped."""
CAUSES = {
    "exit-status": "the command ended with an error",
    "signal": "the command was killed by a signal, often for want of memory",
    "timeout": "the run took longer than the study allows and was ended",
    "metric-absent": "the run ended well but its output holds no value of the metric",
    "metric-not-finite": "the metric was nan or infinite: training diverged",
    "metric-ambiguous": "the metric could be read in more than one way",
    "metric-unreadable": "the metric's source could not be read",
    "lost": "the job vanished without a result (the machine or its runner was killed)",
    "out-of-memory": "the run needed more memory than there was",
    "patch": "the code ideas of the configuration could not be applied together",
}
EXAMPLE_CHARACTERS = 200
IDLE = "in the winner, without effect"
"""A factor the winner changes although it is not believed to gain anything by it."""
RESOURCES: dict[Resource, tuple[str, Callable[[float], str]]] = {
    "runs": ("runs", "{:,.0f}".format),
    "experiments": ("experiments", "{:,.0f}".format),
    "seconds": ("wall-clock time", duration),
    "gpu_hours": ("GPU-hours", "{:,.3g}".format),
    "llm_tokens": ("LLM tokens", "{:,.0f}".format),
    "cost_usd": ("money", money),
}
"""How each resource is called and written."""


def build_report(
    study: Study,
    experiments: Sequence[Experiment],
    runs: Sequence[Run],
    jobs: Sequence[Job],
    observations: Mapping[str, Observation],
    verdicts: Mapping[int, Verdict],
    *,
    factor_effects: Iterable[FactorEffectLike] = (),
    main_effects: Iterable[MainEffectLike] = (),
    moves: Mapping[int, MoveLike] | None = None,
    events: Iterable[str] = (),
    started_at: datetime | None = None,
    finished_at: datetime | None = None,
    status: Status = "finished",
    stop_reason: str = "",
    versions: Mapping[str, str] | None = None,
    usage: Usage | None = None,
    ideas: Sequence[Idea] = (),
    stresses: Sequence[Stress] = (),
) -> StudyReport:
    """The report of a study at any moment of it: before the first run, in the middle, at the end.

    `usage`: what the ledger says was spent; without it the jobs are added up. `moves`: by experiment, the one variable
    by which it differs from an earlier one.
    """
    objective = study.objective
    metric = Metric(objective.metric, objective.unit, study.maximize, objective.min_effect)
    steps = {number: _step(study, move) for number, move in (moves or {}).items()}
    built = build_rows(study, experiments, runs, jobs, observations, verdicts, ideas)
    rows = tuple(replace(row, step=steps.get(row.number)) for row in built)
    baseline = next((row for row in rows if row.is_baseline), None)
    wording = Wording(metric, measure_noise(baseline))
    found = list(factor_effects)
    winners = choose_winners(rows, metric.min_effect)
    winner = winners[0] if winners else None
    candidate = None if winner else choose_candidate(rows)
    failures = _failures(runs)
    now = finished_at or (datetime.now(UTC) if status == "running" else None)
    timeline = build_timeline(jobs, runs, study.backend.slots, now, stresses)
    confidence = study.search.confidence
    report = StudyReport(
        study=study.study,
        goal=study.goal,
        scenario=study.scenario,
        method=study.method,
        base_model=study.base_model,
        metric=metric,
        status=status,
        started_at=started_at,
        finished_at=finished_at,
        summary=headline_of(rows, winner, candidate, failures, status, stop_reason, wording),
        certainty=certainty_of(rows, winner, candidate, confidence, wording),
        winner=winner,
        other_winners=tuple(winners[1:]),
        candidate=candidate,
        baseline=baseline,
        noise=wording.noise,
        advice=(),
        experiments=rows,
        rows=tuple(result_line(row, metric, wording) for row in rows),
        factors=_factor_groups(found, winner),
        shares=_shares(found),
        effects=_effects(study, found),
        main_effects=_main_effects(study, main_effects),
        failures=failures,
        timeline=timeline,
        pruned=pruned_sentence(runs, jobs),
        spend=_spend(study, jobs, usage or _usage(study, runs, jobs, started_at, now), timeline, started_at),
        setup=_setup(study, experiments, runs, dict(versions or {})),
        events=tuple(events),
        ideas=idea_rows(ideas, found, rows, winner, metric.min_effect),
        front=front_of(study, rows, runs, observations),
        others=other_metrics(study, winner.number if winner else None, runs, observations),
    )
    return replace(report, advice=advise(study, report))


def influence_of(effect: Effect, min_effect: float) -> Influence:
    """By the interval alone: clear of zero, wholly inside ±min_effect, or too wide to say."""
    if effect.low is None or effect.high is None:
        return "unknown"
    if -min_effect <= effect.low and effect.high <= min_effect:
        return "no effect"
    if effect.low > 0:
        return "helped"
    return "hurt" if effect.high < 0 else "unknown"


def _factor_groups(effects: Iterable[FactorEffectLike], winner: ExperimentRow | None) -> tuple[FactorGroup, ...]:
    """Factors by what is believed of each as a whole; those of the winner first, those it would not need apart."""
    inside = {change.name for change in winner.changes} if winner else set()
    groups: dict[str, list[str]] = {label: [] for label in ("in the winner", IDLE, *INFLUENCES)}
    for effect in effects:
        if effect.level is None:
            label = effect.label
            if effect.factor in inside:
                label = IDLE if INFLUENCES.get(label) == "no effect" else "in the winner"
            groups.setdefault(label, []).append(effect.factor)
    return tuple(FactorGroup(label, tuple(factors)) for label, factors in groups.items() if factors)


def _shares(effects: Iterable[FactorEffectLike]) -> tuple[tuple[str, float], ...]:
    shares = [(effect.factor, effect.importance) for effect in effects if effect.level is None and effect.importance]
    return tuple(sorted(shares, key=lambda share: -share[1]))


def _step(study: Study, move: MoveLike) -> Step:
    own = study.parameters.get(move.factor)
    before, after = (own if value is None else value for value in (move.before, move.after))
    names = ["as in the baseline" if value is None else level(value) for value in (before, after)]
    return Step(move.parent, f"{move.factor} {names[0]} → {names[1]}", move.effect)


def _effects(study: Study, effects: Iterable[FactorEffectLike]) -> tuple[EffectRow, ...]:
    """One row a level that has an effect."""
    rows = [
        EffectRow(
            e.factor,
            e.level,
            study.parameters.get(e.factor),
            e.effect,
            INFLUENCES.get(e.label, "unknown"),
            e.label,
            tuple(e.confounded_with),
            tuple(e.interactions),
        )
        for e in effects
        if e.level is not None and e.effect is not None
    ]
    return tuple(sorted(rows, key=lambda row: -row.effect.delta))


def _main_effects(study: Study, effects: Iterable[MainEffectLike]) -> tuple[MainEffectRow, ...]:
    least = study.objective.min_effect
    rows = [
        MainEffectRow(
            e.factor,
            e.level,
            study.parameters.get(e.factor),
            e.effect,
            influence_of(e.effect, least),
            tuple(e.confounded_with),
        )
        for e in effects
    ]
    return tuple(sorted(rows, key=lambda row: -abs(row.effect.delta)))


def _failures(runs: Iterable[Run]) -> tuple[FailureGroup, ...]:
    by_cause: dict[str, list[Run]] = {}
    for run in runs:
        if run.state is RunState.FAILED:
            by_cause.setdefault(run.cause or "unknown", []).append(run)
    groups = [
        FailureGroup(
            cause=cause,
            meaning=CAUSES.get(cause, cause.replace("-", " ")),
            runs=len(failed),
            experiments=tuple(dict.fromkeys(run.number for run in failed)),
            example=_last_line(failed),
        )
        for cause, failed in by_cause.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.runs))


def _last_line(runs: Sequence[Run]) -> str:
    text = next((run.detail for run in runs if run.detail.strip()), "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    last = lines[-1] if lines else ""
    return last if len(last) <= EXAMPLE_CHARACTERS else last[: EXAMPLE_CHARACTERS - 1] + "…"


def _spend(
    study: Study, jobs: Sequence[Job], usage: Usage, timeline: Timeline, started_at: datetime | None
) -> tuple[SpendLine, ...]:
    cpu = [job.cpu_seconds for job in jobs if job.cpu_seconds is not None]
    peak = max((job.peak_memory_bytes for job in jobs if job.peak_memory_bytes is not None), default=None)
    job_seconds = sum(job.wall_seconds for job in jobs if job.wall_seconds is not None)
    lines = [_limited(study, line) for line in budget_lines(study, usage)]
    if started_at is None:
        lines[2] = replace(lines[2], used=duration(timeline.span_seconds))
    return (
        *lines,
        SpendLine("job time, all slots", duration(job_seconds), "–", None),
        SpendLine("CPU time of the jobs", duration(sum(cpu)) if cpu else "not recorded", "–", None),
        SpendLine("peak memory of one job", memory(peak) if peak else "not recorded", "–", None),
    )


def _usage(
    study: Study, runs: Sequence[Run], jobs: Sequence[Job], started_at: datetime | None, now: datetime | None
) -> Usage:
    walls = [job.wall_seconds for job in jobs if job.wall_seconds is not None]
    amounts = [run_amounts(study, seconds) for seconds in walls]
    allowed = study.budget.duration_seconds
    return Usage(
        now=now or datetime.now(UTC),
        runs=sum(run.state is not RunState.PLANNED for run in runs),
        experiments=len({run.number for run in runs} - {0}),
        gpu_hours=sum(gpu_hours for gpu_hours, _ in amounts),
        cost_usd=sum(cost_usd for _, cost_usd in amounts),
        wall_seconds=tuple(walls),
        started_at=started_at,
        finished_at=now,
        deadline=started_at + timedelta(seconds=allowed) if allowed and started_at else None,
    )


def _limited(study: Study, line: BudgetLine) -> SpendLine:
    name, words = RESOURCES[line.resource]
    allowed = words(line.limit) if line.limit is not None else "no limit"
    if line.resource == "seconds" and study.budget.until:
        until = f"until {study.budget.until}"
        allowed = f"{allowed}, {until}" if study.budget.duration_seconds else until
    return SpendLine(
        name,
        words(line.used),
        allowed,
        line.used / line.limit if line.limit else None,
        words(line.reserved) if line.reserved else "–",
        _forecast(line, words),
    )


def _forecast(line: BudgetLine, words: Callable[[float], str]) -> str:
    if line.forecast is None:
        return "–"
    return words(line.used) if line.forecast == line.used else f"at most {words(line.forecast)}"


def _setup(study: Study, experiments: Sequence[Experiment], runs: Sequence[Run], versions: dict[str, str]) -> Setup:
    return Setup(
        base_commit=experiments[0].base_commit if experiments else "",
        command=study.launcher.shown,
        slots=study.backend.slots,
        locked=("base model", *study.locked),
        frozen=tuple(study.frozen),
        guardrails=tuple(_bound(rail) for rail in study.guardrails),
        seeds=tuple(sorted({run.seed for run in runs})),
        versions=versions,
        factors=len(study.space),
        confidence=study.search.confidence,
    )


def _bound(rail: Guardrail) -> str:
    low = f"{short(rail.min)} ≤ " if rail.min is not None else ""
    high = f" ≤ {short(rail.max)}" if rail.max is not None else ""
    return f"{low}{rail.metric}{high}"
