"""A winner beside the baseline, example by example, where the lab scores their predictions itself.

The verdict rests on seeds alone. This tells where the gain comes from, and how far it hangs on the examples there are.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightlab.agents.context import Lab
from nightlab.agents.scores import kept_bad_cases, kept_scores
from nightlab.configs.files import write_atomically
from nightlab.configs.paths import JobPaths, StudyPaths
from nightlab.errors import MetricError
from nightlab.knowledge.records import Phase, Run, RunState
from nightlab.tools.metrics.base import RunFiles

if TYPE_CHECKING:
    from nightlab.tools.scoring.score import Score

__all__ = ["keep_comparison", "kept_comparison"]

MOST_CASES = 5
MOST_EXAMPLES = 100_000
"""Of all files together; with more, fewer seeds are compared."""
ROUNDING = 1e-6
"""By how much a value may differ from the one that was measured, of its size."""


def keep_comparison(lab: Lab, number: int) -> None:
    """Write how experiment `number` compares with the baseline on each score of the lab's; nothing where none can be.

    Predictions count that lie where the run wrote them and still give the value that was measured. Raises DiskError
    when the disk takes no more.
    """
    scored = [name for name in lab.study.metric_names if lab.study.source_of(name).score]
    found = [told for name in scored if (told := _compared(lab, number, name)) is not None]
    if found:
        text = json.dumps(lab.redactor.redact_data(found), indent=2, ensure_ascii=False)
        write_atomically(lab.paths.comparison(number), text + "\n")


def kept_comparison(paths: StudyPaths, number: int) -> list[dict[str, Any]]:
    """What `keep_comparison` wrote, one object a metric; empty where there is nothing."""
    try:
        found = json.loads(paths.comparison(number).read_bytes())
    except (OSError, ValueError):
        return []
    return found if isinstance(found, list) else []


def _compared(lab: Lab, number: int, metric: str) -> dict[str, Any] | None:
    from nightlab.tools.scoring.over_seeds import compare_over_seeds

    runs = {0: _confirmed(lab, 0), number: _confirmed(lab, number)}
    common = sorted(runs[0].keys() & runs[number].keys())
    seeds = common[: _affordable(lab, runs[number][common[0]], metric)] if common else []
    pairs = [(_scored(lab, runs[0][seed], metric), _scored(lab, runs[number][seed], metric)) for seed in seeds]
    whole = [(before, after) for before, after in pairs if before is not None and after is not None]
    if not whole or len(whole) < len(seeds):
        return None
    try:
        compared = compare_over_seeds(whole)
    except MetricError:
        return None
    first = runs[number][seeds[0]]
    cases = kept_bad_cases(lab.paths.job(number, first.seed, first.attempt), metric)[:MOST_CASES]
    kind = whole[0][0].settings.kind
    return {"metric": metric, "score": kind, **asdict(compared), "seed_of_cases": first.seed, "bad_cases": cases}


def _affordable(lab: Lab, run: Run, metric: str) -> int:
    """How many pairs are scored once more, so that the morning does not wait for it."""
    score = kept_scores(lab.paths.job(run.number, run.seed, run.attempt)).get(metric, {})
    return MOST_EXAMPLES // max(1, 2 * int(score.get("examples") or MOST_EXAMPLES))


def _confirmed(lab: Lab, number: int) -> dict[int, Run]:
    believed = lab.ledger.runs(number, states=(RunState.REVIEWED,))
    return {run.seed: run for run in believed if run.phase is Phase.CONFIRM}


def _scored(lab: Lab, run: Run, metric: str) -> Score | None:
    """A run's predictions scored once more; None where they are not those that were measured."""
    from nightlab.tools.metrics.reader import SourceReader

    job, observation = lab.ledger.job(run.key), lab.ledger.observation(run.key)
    if job is None or observation is None or metric not in observation.values:
        return None
    paths = JobPaths(Path(job.directory))
    files = RunFiles(paths.stdout, paths.stderr, Path(job.worktree), paths.output, job.started_at)
    try:
        reading = SourceReader().read(files, metric, lab.study.source_of(metric), maximize=lab.study.maximize)
    except MetricError:
        return None
    measured = observation.values[metric]
    is_same = abs(reading.value - measured) <= ROUNDING * max(1.0, abs(measured))
    return reading.score if is_same else None
