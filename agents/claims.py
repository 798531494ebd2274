"""A claim as an independent reviewer is shown it: change, code and numbers, and nothing of why it was proposed.

Neither titles nor names of ideas are shown: they say what the proposer hopes for. All of it is bounded.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from nightlab.agents.code_space import accepted, code_of, ideas_in
from nightlab.agents.context import Lab
from nightlab.agents.fairness import fairness_notes
from nightlab.agents.llm_brain import BYTES_A_TOKEN
from nightlab.agents.prompts import quoted
from nightlab.agents.pruning import kept_curve
from nightlab.agents.reading import quoted_within
from nightlab.agents.scores import kept_scores
from nightlab.configs.code import settings_of
from nightlab.configs.paths import JobPaths
from nightlab.errors import PatchError
from nightlab.knowledge.records import Experiment, Job, Run, RunState, Verdict
from nightlab.search.belief import describe

__all__ = ["shown_of"]

DIFF_SHARE = 0.5
"""Of the longest prompt, for the code."""
MOST_RUNS = 24
MOST_CHANGES = 40
LONGEST_VALUE = 120
CURVE_POINTS = 6
ENDED = (RunState.REVIEWED, RunState.REJECTED, RunState.FAILED, RunState.PRUNED)


def shown_of(lab: Lab, experiment: Experiment, verdict: Verdict) -> str:
    """What the reviewer is shown of the claim that `verdict` makes."""
    limit = int(DIFF_SHARE * lab.study.brain.max_prompt_tokens * BYTES_A_TOKEN)
    parts = (
        _claim(lab, verdict),
        _change(lab, experiment),
        _rules(lab),
        _runs(lab, experiment),
        [f"Note: {note}" for note in fairness_notes(lab, experiment)],
        _code(lab, experiment, limit),
    )
    return lab.redactor.redact("\n".join(line for part in parts for line in part))


def _claim(lab: Lab, verdict: Verdict) -> list[str]:
    objective = lab.study.objective
    effect = verdict.effect
    # The unit is a word of the study's file.
    found = quoted(describe(effect), LONGEST_VALUE) if effect else "no effect measured"
    lines = [
        f"Metric: {quoted(objective.metric, LONGEST_VALUE)}, to {objective.direction}; gains above 0 are better.",
        f"Claim: experiment {verdict.number:02d} gains {found}.",
        f"The least gain worth having is {objective.min_effect:g}.",
    ]
    if effect is not None:
        how = "pairs on the same fresh seeds" if effect.paired else "runs"
        lines.append(
            f"It rests on {effect.runs} {how}, {effect.baseline_runs} of the baseline beside them, at a confidence of "
            f"{effect.confidence:.4g}."
        )
    return lines


def _change(lab: Lab, experiment: Experiment) -> list[str]:
    changed = settings_of(experiment.changed)
    lines = [
        f"Parameter {quoted(name, LONGEST_VALUE)}: {_value(lab.study.parameters.get(name))} in the baseline, "
        f"{_value(value)} in the experiment."
        for name, value in list(changed.items())[:MOST_CHANGES]
    ]
    if len(changed) > MOST_CHANGES:
        lines.append(f"{len(changed) - MOST_CHANGES} further parameters differ.")
    ideas = ideas_in(experiment, accepted(lab.ledger))
    for place, idea in enumerate(ideas, start=1):
        lines.append(f"Code change {place}: {idea.lines_added} lines added, {idea.lines_removed} removed.")
    return lines or ["Nothing differs."]


def _value(value: object) -> str:
    return quoted(value, LONGEST_VALUE) if isinstance(value, str) else json.dumps(value)


def _rules(lab: Lab) -> list[str]:
    study = lab.study
    lines = [
        f"Locked: {quoted(', '.join(study.locked) or 'nothing', 4 * LONGEST_VALUE)}.",
        f"Frozen, unchanged by hash: {quoted(', '.join(study.frozen) or 'nothing', 4 * LONGEST_VALUE)}.",
    ]
    if study.same:
        lines.append(f"Equal to the baseline's in every run: {quoted(', '.join(study.same), LONGEST_VALUE)}.")
    return lines


def _runs(lab: Lab, experiment: Experiment) -> list[str]:
    lines = []
    for title, number in (("experiment", experiment.number), ("baseline", 0)):
        ended = lab.ledger.runs(number, states=ENDED)
        if len(ended) > MOST_RUNS:
            lines.append(f"The {title}'s first {len(ended) - MOST_RUNS} runs are left out.")
        lines += [_run(lab, title, run, lab.ledger.job(run.key)) for run in ended[-MOST_RUNS:]]
    return lines


def _run(lab: Lab, title: str, run: Run, job: Job | None) -> str:
    observation = lab.ledger.observation(run.key)
    values = observation.values if observation else {}
    parts = [f"{quoted(name, LONGEST_VALUE)} {value:.6g}" for name, value in values.items()]
    parts += [f"failed: {quoted(run.cause or 'unknown', LONGEST_VALUE)}"] if run.state is RunState.FAILED else []
    if job is not None:
        parts += [f"{job.wall_seconds:.3g} s"] if job.wall_seconds is not None else []
        parts += _counts(JobPaths(Path(job.directory)))
    return f"Run of the {title}, seed {run.seed}, {run.phase}: {', '.join(parts) or str(run.state)}."


def _counts(paths: JobPaths) -> Iterable[str]:
    for name, score in kept_scores(paths).items():
        yield f"{quoted(name, LONGEST_VALUE)} scored on {score.get('examples')} examples"
    if curve := kept_curve(paths):
        points = " → ".join(f"{value:.4g}" for _, value in _thinned(curve) if math.isfinite(value))
        yield f"on the way {points}, last at step {curve[-1][0]:g}"


def _thinned(curve: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    step = max(1, (len(curve) - 1) // (CURVE_POINTS - 1))
    return [*curve[:-1:step][: CURVE_POINTS - 1], curve[-1]]


def _code(lab: Lab, experiment: Experiment, limit: int) -> list[str]:
    try:
        diff = code_of(lab.git, experiment, accepted(lab.ledger)).diff
    except PatchError:
        return ["The code cannot be shown."]
    return (
        [f"The code, as a diff against the baseline's: {quoted_within(lab.redactor.redact(diff), limit)}"]
        if diff
        else []
    )
