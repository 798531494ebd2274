"""Whether a run had the same means as the baseline: what the study declares must be equal, the rest is noted.

Another batch size or a larger model may rightly take longer, so only a declared quantity is a reason to reject.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from nightlab.agents.context import Lab
from nightlab.agents.pruning import kept_curve
from nightlab.configs.study import Study
from nightlab.knowledge.records import Experiment, Job, Observation, RunState
from nightlab.search.low_runs import is_low

__all__ = ["check_same", "fairness_notes"]

FAR_BEYOND = 1.5
"""Ratio to the baseline from which time or steps are noted."""
LEAST_SECONDS = 5.0
"""Shorter differences are the machine's."""
TOLERANCE = 1e-9
MEASURED = (RunState.MEASURED, RunState.REVIEWED)


def check_same(lab: Lab, experiment: Experiment, observation: Observation) -> list[str]:
    """Every metric of `same` that no baseline run reported as this run does; a run at low fidelity has less of it."""
    if experiment.number == 0 or not lab.study.same or is_low(lab.study, experiment.changed):
        return []
    keys = [run.key for run in lab.ledger.runs(0, states=MEASURED)]
    return differing(lab.study, observation, [one for key in keys if (one := lab.ledger.observation(key))])


def differing(study: Study, observation: Observation, baseline: Sequence[Observation]) -> list[str]:
    """A sentence for each metric of `same` whose value is none of the baseline's."""
    found = []
    for name in study.same:
        theirs = sorted({one.values[name] for one in baseline if name in one.values})
        ours = observation.values.get(name)
        if ours is not None and theirs and not any(math.isclose(ours, one, rel_tol=TOLERANCE) for one in theirs):
            held = " or ".join(f"{value:g}" for value in theirs)
            found.append(f"{name} is {ours:g}, the baseline's {held}: it was not measured or trained alike")
    return found


def fairness_notes(lab: Lab, experiment: Experiment) -> list[str]:
    """What a reader should know of its means: runs that took far longer, or reported far more steps, than the baseline.

    Empty where nothing stands out, and for the baseline.
    """
    if experiment.number == 0:
        return []
    ours, theirs = (_believed(lab, number) for number in (experiment.number, 0))
    notes = [
        _beyond("took", "s", _wall(ours), _wall(theirs), LEAST_SECONDS),
        _beyond("reported", "steps", _steps(lab, ours), _steps(lab, theirs), 1.0),
    ]
    return [note for note in notes if note]


def _believed(lab: Lab, number: int) -> list[Job]:
    keys = {run.key for run in lab.ledger.runs(number, states=MEASURED)}
    return [job for job in lab.ledger.jobs(number) if job.key in keys]


def _wall(jobs: Iterable[Job]) -> list[float]:
    return [job.wall_seconds for job in jobs if job.wall_seconds is not None]


def _steps(lab: Lab, jobs: Iterable[Job]) -> list[float]:
    runs = [lab.ledger.run(job.key) for job in jobs]
    curves = [kept_curve(lab.paths.job(run.number, run.seed, run.attempt)) for run in runs]
    return [curve[-1][0] for curve in curves if curve]


def _beyond(verb: str, unit: str, ours: Sequence[float], theirs: Sequence[float], least: float) -> str:
    if not ours or not theirs:
        return ""
    one, other = median(ours), median(theirs)
    if one <= FAR_BEYOND * other or one - other < least:
        return ""
    return f"its runs {verb} {one:.4g} {unit}, the baseline's {other:.4g} {unit}"
