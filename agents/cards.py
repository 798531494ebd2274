"""What an experiment carries on its branch: what it is, what it runs, what came of it."""

from __future__ import annotations

import json

from nightlab.agents.documents import render
from nightlab.configs.study import Study
from nightlab.knowledge.records import Experiment, Job, Observation, Run, Verdict, VerdictKind

__all__ = ["CARD", "CONFIGURATION", "EXPERIMENT", "Entry", "describe", "experiment_files", "result_files"]

EXPERIMENT = "EXPERIMENT.md"
CONFIGURATION = "experiment.json"
CARD = "RESULT.json"

Entry = tuple[Run, Job | None, Observation | None]
"""One run with its job and what was read from it."""

NEXT_STEPS = {
    VerdictKind.KEEP: "Confirmed. Take it with `git merge {branch}`.",
    VerdictKind.DISCARD: "None: this change is not worth having here.",
    VerdictKind.INCONCLUSIVE: "More seeds would settle it; the interval above says how far it is open.",
    VerdictKind.REJECTED: "Read the reason: the claim did not pass review.",
    VerdictKind.FAILED: "Read the cause in the log (`nightlab logs {number}`).",
    VerdictKind.PRUNED: "None: it was clearly behind.",
}


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def experiment_files(study: Study, experiment: Experiment, command: tuple[str, ...]) -> dict[str, str]:
    """What is committed before the first run: `EXPERIMENT.md` and the rendered configuration.

    `command` is the launcher's command with `{seed}` and `{output_dir}` left open.
    """
    configuration = {
        "study": experiment.study,
        "experiment": experiment.number,
        "base_commit": experiment.base_commit,
        "base_model": experiment.base_model,
        "changed": experiment.changed,
        "parameters": experiment.parameters,
        "parameters_via": study.launcher.parameters.model_dump(mode="json"),
        "command": list(command),
        "cwd": study.launcher.cwd,
    }
    return {EXPERIMENT: describe(study, experiment, [], None), CONFIGURATION: _dump(configuration)}


def describe(study: Study, experiment: Experiment, runs: list[Entry], verdict: Verdict | None) -> str:
    """`EXPERIMENT.md`: enough for a person or a fresh agent to take over."""
    if verdict:
        next_step = NEXT_STEPS[verdict.kind].format(branch=experiment.branch, number=experiment.number)
    elif experiment.changed or not runs:
        next_step = "Wait for its runs (`nightlab status`)."
    else:
        next_step = "None: it is the yardstick, every effect of the study is measured against it."
    return render(
        EXPERIMENT.lower(), study=study, experiment=experiment, runs=runs, verdict=verdict, next_step=next_step
    )


def result_files(study: Study, experiment: Experiment, runs: list[Entry], verdict: Verdict | None) -> dict[str, str]:
    """What is committed when the experiment is over: the result card, and `EXPERIMENT.md` with the facts."""
    card = {
        "study": experiment.study,
        "experiment": experiment.number,
        "commit": experiment.commit,
        "parameters": experiment.parameters,
        "changed": experiment.changed,
        "runs": [
            {
                "run": run.model_dump(mode="json"),
                "job": job.model_dump(mode="json", exclude={"directory", "worktree"}) if job else None,
                "observation": observation.model_dump(mode="json") if observation else None,
            }
            for run, job, observation in runs
        ],
        "verdict": verdict.model_dump(mode="json") if verdict else None,
    }
    return {EXPERIMENT: describe(study, experiment, runs, verdict), CARD: _dump(card)}
