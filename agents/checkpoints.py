"""What is left of an experiment's checkpoints once it is judged, and how its best one is merged."""

from __future__ import annotations

from pathlib import Path

import humanize

from nightlab.agents.context import Lab
from nightlab.errors import LauncherError
from nightlab.knowledge.records import Experiment, Run, RunState, Verdict, VerdictKind
from nightlab.tools.checkpoints import Checkpoint, best_of, find_checkpoints, find_weights, remove, to_remove
from nightlab.tools.launchers.base import Exports

__all__ = ["tidy_checkpoints"]

ENDED = (RunState.REVIEWED, RunState.REJECTED, RunState.FAILED, RunState.PRUNED, RunState.CANCELLED)


def tidy_checkpoints(lab: Lab, experiment: Experiment, verdict: Verdict | None) -> None:
    """Take away what the study's policy gives up, and tell what was freed; repeating it changes nothing.

    Of a winner it tells how the best checkpoint is merged.
    """
    is_winner = verdict is not None and verdict.kind is VerdictKind.KEEP
    freed, removed = 0, 0
    for run in lab.ledger.runs(experiment.number, states=ENDED):
        output = lab.paths.job(run.number, run.seed, run.attempt).output
        drop_weights = not (lab.study.checkpoints.final_weights or is_winner or not experiment.changed)
        try:
            found = find_checkpoints(output)
            best = _best(lab, found)
            given_up = _given_up(lab, experiment, found, best, is_winner=is_winner)
            weights = find_weights(output) if drop_weights else []
            freed += remove(output, given_up, weights)
        except OSError as error:
            lab.ledger.add_event("checkpoints", f"seed {run.seed}: could not be removed: {error}", experiment.number)
            continue
        removed += len(given_up) + len(weights)
        if is_winner and run.state is RunState.REVIEWED:
            _tell_merge(lab, experiment, run, best.folder if best else output)
    if removed:
        text = f"{removed} removed by the policy ({lab.study.checkpoints.keep}), {humanize.naturalsize(freed)} freed"
        lab.ledger.add_event("checkpoints", text, experiment.number)


def _best(lab: Lab, found: list[Checkpoint]) -> Checkpoint | None:
    objective = lab.study.objective
    source = lab.study.source_of(objective.metric)
    return best_of(found, source.key or objective.metric, maximize=lab.study.maximize)


def _given_up(
    lab: Lab, experiment: Experiment, found: list[Checkpoint], best: Checkpoint | None, *, is_winner: bool
) -> list[Checkpoint]:
    keep = lab.study.checkpoints.keep
    # The winner is what the night was for, the baseline what it is compared with.
    return to_remove(found, best, "best" if keep != "all" and (is_winner or not experiment.changed) else keep)


def _tell_merge(lab: Lab, experiment: Experiment, run: Run, weights: Path) -> None:
    """Write once how the weights become a model of their own."""
    if not isinstance(lab.launcher, Exports):
        return
    try:
        command = lab.launcher.export_command(
            experiment.parameters | run.overrides, tree=lab.paths.root, weights=weights
        )
    except LauncherError:
        return
    text = f"seed {run.seed}: best weights in {weights}; as a model of their own: {command}"
    if command and not any((event.number, event.text) == (experiment.number, text) for event in lab.ledger.events()):
        lab.ledger.add_event("merge", text, experiment.number)
