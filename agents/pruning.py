"""Ends running runs that have fallen behind: reads their curves, asks `search.pruning`, writes why, ends the job."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths
from nightlab.configs.study import Study
from nightlab.knowledge.ledger import Configuration, Outcome
from nightlab.knowledge.records import Job, JobState, Observation, Run, RunState
from nightlab.search.pruning import Curve, Look, Point, Pruning, look_of, schedule_of, should_prune, warmup_of
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.series import SeriesTail, tails_of

if TYPE_CHECKING:
    from nightlab.agents.context import Lab

__all__ = ["PRUNED", "Intent", "Pruner", "intent_of", "keep_curve", "kept_curve", "prune_job", "record_pruned"]

PRUNED = "pruned"
"""Cause of a run that was ended because it had fallen behind."""

NOT_FINITE = "loss-not-finite"
"""The watchdog's cause."""

BELIEVED = frozenset({RunState.MEASURED, RunState.REVIEWED})
COMPARED = BELIEVED | {RunState.PRUNED}


class Intent(BaseModel):
    """What is written before a job is ended for being behind."""

    model_config = ConfigDict(allow_inf_nan=False)

    cause: str = PRUNED
    detail: str
    step: float
    total_steps: float | None
    estimate: float | None
    """Of the objective at the end; None where the curve is of another metric, or diverged."""


@dataclass
class Pruner:
    """Looks at the running jobs from time to time; what it has read is read again after a restart."""

    tails: dict[str, tuple[SeriesTail, ...]] = field(default_factory=dict)
    """Of the running jobs."""
    kept: dict[str, tuple[Point, ...]] = field(default_factory=dict)
    """Of the jobs that have ended."""
    looked_at: float = -math.inf

    def look(self, lab: Lab, now: float) -> list[str]:
        """End the jobs that have fallen behind and return their keys; nothing between two looks. `now` in seconds."""
        settings = lab.study.search.pruning
        if settings.mode == "off" or now - self.looked_at < lab.study.watchdog.every_seconds:
            return []
        self.looked_at = now
        jobs = {job.key: job for job in lab.ledger.jobs(states=(JobState.RUNNING,))}
        self.tails = {key: tails for key, tails in self.tails.items() if key in jobs}
        # What a killed lab meant to end.
        marked = {key: Path(job.directory) for key, job in jobs.items() if intent_of(JobPaths(Path(job.directory)))}
        if marked:
            lab.backend.cancel(marked)
        others = {key: self._points(lab.study, job) for key, job in jobs.items() if key not in marked}
        running = {key: points for key, points in others.items() if len(points) > 1}
        return [*marked, *(self._judge(lab, jobs, running) if running else ())]

    def _judge(self, lab: Lab, jobs: dict[str, Job], running: dict[str, tuple[Point, ...]]) -> list[str]:
        outcomes = lab.ledger.outcomes()
        known = lab.configurations
        known |= lab.ledger.configurations(after=max(known, default=-1))
        curves = {run.key: curve for run in outcomes if (curve := self._curve(lab, known[run.number], run, running))}
        objective, settings = lab.study.objective, lab.study.search.pruning
        own_metric = settings.metric in (None, objective.metric)
        ended = []
        for run in outcomes:
            if run.key not in running or run.key not in curves:
                continue
            pruning = should_prune(
                settings,
                curves[run.key],
                [curve for key, curve in curves.items() if key != run.key],
                look=_look(run, outcomes),
                maximize=(settings.direction or objective.direction) == "maximize",
                min_effect=objective.min_effect if own_metric else 0.0,
            )
            if pruning is not None:
                prune_job(lab, jobs[run.key], pruning)
                ended.append(run.key)
        return ended

    def _points(self, study: Study, job: Job) -> tuple[Point, ...]:
        if job.key not in self.tails:
            self.tails[job.key] = tuple(_tails(study, job))
        return _read(self.tails[job.key])

    def _curve(
        self, lab: Lab, configuration: Configuration, run: Outcome, running: dict[str, tuple[Point, ...]]
    ) -> Curve | None:
        points = running.get(run.key)
        if points is None and run.state in COMPARED:
            if run.key not in self.kept:
                self.kept[run.key] = kept_curve(lab.paths.job(run.number, run.seed, _attempt(run.key)))
            points = self.kept[run.key]
        if not points:
            return None
        parameters = configuration.parameters
        return Curve(
            run.number,
            points,
            schedule_of(lab.study, parameters),
            warmup_of(lab.study, parameters),
            ended=run.state in BELIEVED,
        )


def _look(run: Outcome, outcomes: list[Outcome]) -> Look:
    first = next(one.seed for one in outcomes if one.number == run.number)
    return look_of(run.number, run.phase, first_seed=run.seed == first)


def prune_job(lab: Lab, job: Job, pruning: Pruning) -> None:
    """Write the reason where the job's end will be read, then end it with its whole process tree.

    A crash between the two loses neither: the next lab ends what it finds marked. Raises BackendError when the job
    cannot be ended.
    """
    paths = JobPaths(Path(job.directory))
    write_atomically(paths.ended_by, _why(lab.study, pruning))
    lab.backend.cancel({job.key: paths.directory})


def _why(study: Study, pruning: Pruning) -> str:
    if not math.isfinite(pruning.value):
        # As the watchdog would have it: a failure, which says that the configuration is not feasible.
        return json.dumps({"cause": NOT_FINITE, "detail": pruning.reason})
    return Intent(
        detail=pruning.reason,
        step=pruning.step,
        total_steps=pruning.total_steps,
        estimate=_objective_estimate(study, pruning),
    ).model_dump_json()


def _objective_estimate(study: Study, pruning: Pruning) -> float | None:
    own_metric = study.search.pruning.metric in (None, study.objective.metric)
    return pruning.estimate if own_metric and math.isfinite(pruning.estimate) else None


def intent_of(paths: JobPaths) -> Intent | None:
    """Why this job was to be ended for being behind; None where that was never meant."""
    if not paths.ended_by.exists():
        return None
    try:
        intent = Intent.model_validate_json(paths.ended_by.read_text(encoding="utf-8"))
    except ValidationError:
        # The watchdog's, which says no more than cause and detail.
        return None
    return intent if intent.cause == PRUNED else None


def record_pruned(lab: Lab, run: Run, job: Job, intent: Intent) -> None:
    """Write that a run was ended for being behind, with what that saved and an estimate of its final value."""
    keep_curve(lab, job)
    detail = f"pruned {intent.detail}"
    if intent.total_steps and job.wall_seconds and intent.step > 0:
        saved = job.wall_seconds * (intent.total_steps / intent.step - 1)
        detail += f"; about {saved:.0f} s saved" if saved >= 1 else ""
    with lab.ledger.transaction():
        if intent.estimate is not None:
            source = f"estimated at step {intent.step:.6g}"
            values = {lab.study.objective.metric: intent.estimate}
            lab.ledger.record_observation(
                Observation(key=run.key, values=values, sources=dict.fromkeys(values, source), read_at=lab.now())
            )
        lab.ledger.update_run(run.key, state=RunState.PRUNED, cause=PRUNED, detail=detail, ended_at=lab.now())
        lab.ledger.add_event("pruned", f"seed {run.seed}: {detail}", run.number)


def keep_curve(lab: Lab, job: Job) -> None:
    """Keep what an ended job has reported step by step, for those it will be compared with."""
    if lab.study.search.pruning.mode == "off":
        return
    if points := _read(tuple(_tails(lab.study, job))):
        text = json.dumps([[step, value if math.isfinite(value) else None] for step, value in points])
        write_atomically(JobPaths(Path(job.directory)).curve, text)


def kept_curve(paths: JobPaths) -> tuple[Point, ...]:
    """What `keep_curve` kept of a run; empty where nothing can be read."""
    if not paths.curve.exists():
        return ()
    try:
        pairs = json.loads(paths.curve.read_text(encoding="utf-8"))
        return tuple((float(step), math.nan if value is None else float(value)) for step, value in pairs)
    except (ValueError, TypeError):
        # Somebody's hand or a broken disk: one curve less to compare with.
        return ()


def _attempt(key: str) -> int:
    """The attempt in a run's key `study/NN/attempt/seed`."""
    return int(key.split("/")[-2])


def _tails(study: Study, job: Job) -> list[SeriesTail]:
    """The files in which a job may report its metric, the first to be believed."""
    paths, settings = JobPaths(Path(job.directory)), study.search.pruning
    metric = settings.metric or study.objective.metric
    files = RunFiles(paths.stdout, paths.stderr, Path(job.worktree), paths.output)
    return tails_of(files, metric, study.source_of(metric), settings.step)


def _read(tails: tuple[SeriesTail, ...]) -> tuple[Point, ...]:
    return next((tuple(points) for tail in tails if (points := tail.read())), ())
