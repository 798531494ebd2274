"""What an experiment carries on its branch: what it is, what it runs, what came of it."""

from __future__ import annotations

import json
import os
import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from nightlab.agents.code_space import NO_CODE, Code
from nightlab.agents.documents import format_effect, render
from nightlab.agents.review_words import told as told_of_review
from nightlab.agents.run_findings import kept_findings
from nightlab.agents.scores import kept_scores
from nightlab.configs.paths import JobPaths
from nightlab.configs.study import Study
from nightlab.knowledge.records import Experiment, Job, Observation, Review, Run, Verdict
from nightlab.search.attribution import Move
from nightlab.tools.launchers.base import Launcher
from nightlab.tools.launchers.names import EFFECTIVE_BATCH
from nightlab.tools.redaction import Redactor
from nightlab.tools.sizing.batch import EffectiveBatch, effective_batch
from nightlab.tools.sizing.configuration import configuration_of

__all__ = [
    "CARD",
    "CONFIGURATION",
    "EXPERIMENT",
    "Entry",
    "Rerun",
    "describe",
    "experiment_files",
    "recorded_batch",
    "result_files",
]

EXPERIMENT = "EXPERIMENT.md"
CONFIGURATION = "experiment.json"
CARD = "RESULT.json"

Entry = tuple[Run, Job | None, Observation | None]
"""One run with its job and what was read from it."""

# A seed no run has, so that its place in a command can be found again.
OPEN_SEED = 1_357_911_131

NEXT_STEPS = {
    "keep": "Confirmed on seeds that had no part in finding it. Take it with `git merge {branch}`.",
    "promising": "It looks better, but was not confirmed on fresh seeds: a larger budget would do that.",
    "not confirmed": "On fresh seeds the gain was not sure any more. More of them (`search.confirm_seeds`) would tell.",
    "questioned by review": "Look at what the review quotes. If that proves nothing: "
    "`nightlab answer review-{number:02d} let-stand`.",
    "stress could not be measured": "Confirmed, but its stress check could not be run: mend it, then run it by hand.",
    "guardrail (stress)": "Confirmed, but not under stress: look at what broke before you use it.",
    "unstable": "It fails on some seeds: find out why (`nightlab logs {number}`) before using it.",
    "inconclusive": "Noise hides whether it does anything. More seeds would tell.",
    "discard": "None: this change is not worth having here.",
    "rejected": "Look at what the review found; the value proves nothing until that is explained.",
    "failed": "Read the log (`nightlab logs {number}`).",
    "pruned": "None: it was clearly behind.",
}


@dataclass(frozen=True)
class Rerun:
    """How to run a configuration anywhere: paths relative to the checkout, `{seed}` and `{output_dir}` left open."""

    command: tuple[str, ...]
    environment: dict[str, str]
    cwd: str

    @classmethod
    def of(cls, launcher: Launcher, experiment: Experiment, tree: Path) -> Rerun:
        """Raises LauncherError when the configuration cannot be turned into a command."""
        launch = launcher.launch(experiment.parameters, seed=OPEN_SEED, tree=tree, output=Path("{output_dir}"))
        up = os.path.relpath(tree, launch.cwd)

        def portable(text: str) -> str:
            text = text.replace(sys.executable, "python").replace(str(OPEN_SEED), "{seed}")
            return text.replace(f"{tree}/", "" if up == "." else f"{up}/").replace(str(tree), up)

        return cls(
            tuple(portable(word) for word in launch.command),
            {name: portable(value) for name, value in launch.env.items()},
            os.path.relpath(launch.cwd, tree),
        )

    def line(self, seed: int) -> str:
        """For a shell: the lab's own variables only where the seed goes by no other way."""
        by_command = any("{seed}" in word for word in self.command)
        shown = {n: v for n, v in self.environment.items() if not by_command or not n.startswith("NIGHTLAB_")}
        words = [f"{name}={shlex.quote(value)}" for name, value in shown.items()]
        words += [shlex.quote(word) for word in self.command]
        text = " ".join(words).replace("'{output_dir}'", "output").replace("{output_dir}", "output")
        text = text.replace("'{seed}'", str(seed)).replace("{seed}", str(seed))
        return text if self.cwd == "." else f"cd {shlex.quote(self.cwd)} && {text}"


def _dump(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def experiment_files(
    study: Study, experiment: Experiment, launcher: Launcher, tree: Path, redactor: Redactor, code: Code
) -> dict[str, str]:
    """What is committed before the first run: `EXPERIMENT.md` and the rendered configuration."""
    rerun = Rerun.of(launcher, experiment, tree)
    configuration = {
        "study": experiment.study,
        "experiment": experiment.number,
        "branch": experiment.branch,
        "base_commit": experiment.base_commit,
        "scenario": experiment.scenario,
        "method": experiment.method,
        "base_model": experiment.base_model,
        "variable": experiment.variable,
        "technique": experiment.technique,
        "phase": experiment.phase,
        "reason": experiment.reason,
        "created_at": experiment.created_at.isoformat(),
        "changed": experiment.changed,
        "parameters": experiment.parameters,
        "ideas": [idea.model_dump(mode="json", exclude={"asked"}) for idea in code.ideas],
        "parameters_via": study.launcher.parameters.model_dump(mode="json"),
        "command": list(rerun.command),
        "environment": rerun.environment,
        "cwd": rerun.cwd,
    }
    batch = effective_batch(configuration_of(study, tree, experiment.parameters))
    if batch:
        configuration[EFFECTIVE_BATCH] = asdict(batch)
    text = describe(study, experiment, [], None, rerun, code=code, batch=batch)
    return {EXPERIMENT: redactor.redact(text), CONFIGURATION: _dump(redactor.redact_data(configuration))}


def recorded_batch(configuration: str) -> EffectiveBatch | None:
    """The effective batch that an experiment's committed configuration tells; None where it tells none."""
    held = json.loads(configuration).get(EFFECTIVE_BATCH)
    return EffectiveBatch(**held) if held else None


def describe(
    study: Study,
    experiment: Experiment,
    runs: list[Entry],
    verdict: Verdict | None,
    rerun: Rerun | None = None,
    move: Move | None = None,
    *,
    code: Code = NO_CODE,
    review: Review | None = None,
    batch: EffectiveBatch | None = None,
) -> str:
    """`EXPERIMENT.md`: enough for a person or a fresh agent to take over.

    `move`: how it differs from an earlier experiment in one variable, where more differs from the baseline.
    """
    return render(
        EXPERIMENT.lower(),
        study=study,
        experiment=experiment,
        runs=runs,
        verdict=verdict,
        move=move,
        code=code,
        batch=batch,
        review=told_of_review(review) if review else "",
        move_effect=format_effect(move.effect) if move and move.effect else None,
        next_step=_next_step(experiment, verdict, ended=bool(runs)),
        command=rerun.line(runs[0][0].seed if runs else 0) if rerun else None,
    )


def _next_step(experiment: Experiment, verdict: Verdict | None, *, ended: bool) -> str:
    if verdict:
        text = NEXT_STEPS.get(verdict.label, NEXT_STEPS[verdict.kind.value])
        return text.format(branch=experiment.branch, number=experiment.number)
    if experiment.changed or not ended:
        return "Wait for its runs (`nightlab status`)."
    return "None: it is the yardstick, every effect of the study is measured against it."


def _scores(job: Job | None) -> dict[str, object]:
    """What the lab scored itself, where it did."""
    scores = kept_scores(JobPaths(Path(job.directory))) if job else {}
    return {"scores": scores} if scores else {}


def _findings(job: Job | None) -> dict[str, object]:
    """What the run's own files showed to be wrong with it, where they did."""
    found = kept_findings(JobPaths(Path(job.directory))) if job else []
    return {"findings": [asdict(finding) for finding in found]} if found else {}


def result_files(
    study: Study,
    experiment: Experiment,
    runs: list[Entry],
    verdict: Verdict | None,
    launcher: Launcher,
    tree: Path,
    redactor: Redactor,
    move: Move | None = None,
    *,
    code: Code = NO_CODE,
    review: Review | None = None,
) -> dict[str, str]:
    """What is committed when the experiment is over: the result card, and `EXPERIMENT.md` with the facts."""
    objective = study.objective
    card = {
        "study": experiment.study,
        "experiment": experiment.number,
        "branch": experiment.branch,
        "commit": experiment.commit,
        "metric": {"name": objective.metric, "direction": objective.direction, "unit": objective.unit},
        "changed": experiment.changed,
        "verdict": verdict.model_dump(mode="json") if verdict else None,
        "review": review.model_dump(mode="json", exclude={"asked"}) if review else None,
        "parameters": experiment.parameters,
        "runs": [
            {
                "run": run.model_dump(mode="json"),
                "job": job.model_dump(mode="json", exclude={"directory", "worktree"}) if job else None,
                "observation": observation.model_dump(mode="json") if observation else None,
                **_scores(job),
                **_findings(job),
            }
            for run, job, observation in runs
        ],
    }
    rerun = Rerun.of(launcher, experiment, tree)
    batch = effective_batch(configuration_of(study, tree, experiment.parameters))
    text = describe(study, experiment, runs, verdict, rerun, move, code=code, review=review, batch=batch)
    return {EXPERIMENT: redactor.redact(text), CARD: _dump(redactor.redact_data(card))}
