"""A study in the middle of a long night: a real repository, and a ledger with any number of ended experiments."""

from __future__ import annotations

import random
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nightlab.configs.loading import load_study
from nightlab.graph.opening import begin_study, locate
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import (
    Effect,
    ExperimentState,
    Job,
    JobState,
    Observation,
    Phase,
    Proposal,
    RunState,
    StudyStatus,
    Verdict,
    VerdictKind,
    utc_now,
)
from nightlab.search.history import RankedFactor
from nightlab.worktrees.git import Git
from tests.task import make_repository, study_data

__all__ = ["long_night"]

FACTORS = 40
LEVELS = tuple(float(level) for level in range(2, 29))
BASELINE = {f"p{number}": 1.0 for number in range(FACTORS)}
WALL_SECONDS = 600.0


def long_night(folder: Path, experiments: int, *, finished: bool = False, **changes: Any) -> Path:
    """A study with `experiments` ended single changes of 40 parameters; returns its file.

    Metric values are noise; unless `finished`, 80 single changes are still to be tried. `changes`: further sections of
    the study.
    """
    space = {name: {"levels": list(LEVELS), "categorical": True} for name in BASELINE}
    launcher = study_data()["launcher"] | {"dry_run": {}}
    budget = {"runs": 4 * experiments + 100, "duration": "1000h"}
    parts = {"parameters": BASELINE, "space": space, "launcher": launcher, "locked": [], "budget": budget}
    file = make_repository(folder, **(parts | changes))
    loaded = load_study(file)
    place = locate(loaded)
    place.paths.folder.mkdir(parents=True)
    with Ledger.open(place.paths.ledger) as ledger:
        git = Git(place.root)
        row = begin_study(ledger, loaded.study, git, git.head())
        with ledger.transaction():
            tried = -(-experiments // FACTORS) + 2
            ledger.update_study(design=[asdict(RankedFactor(name, LEVELS[:tried], False)) for name in BASELINE])
            for seed in range(3):
                _ended(ledger, {}, seed, row.base_commit)
            for number in range(experiments):
                changed = {f"p{number % FACTORS}": LEVELS[number // FACTORS]}
                _ended(ledger, changed, 0, row.base_commit)
            if finished:
                ledger.update_study(status=StudyStatus.FINISHED, finished_at=utc_now(), phase="done")
    return file


def _ended(ledger: Ledger, changed: dict[str, float], seed: int, base_commit: str) -> None:
    name, value = next(iter(changed.items()), ("baseline", 0.0))
    run = ledger.plan(
        Proposal(
            parameters={**BASELINE, **changed},
            changed=dict(changed),
            variable=f"{name}-{value:g}",
            phase=Phase.SCREEN if changed else Phase.BASELINE,
            seed=seed,
            reason="single change",
        ),
        scenario="toy",
        method="pretrain",
        base_model="none",
        base_commit=base_commit,
        branch_for=lambda number, variable: f"experiment-{number:02d}-{variable}",
    )
    now = utc_now()
    noise = random.Random(run.key).gauss(0.0, 0.01)  # noqa: S311
    ledger.intend_job(Job(key=run.key, backend="local", slot=run.number % 2, directory="gone", worktree="gone"))
    if ledger.experiment(run.number).state is ExperimentState.PLANNED:
        ledger.update_experiment(run.number, state=ExperimentState.PREPARED, commit=base_commit)
    ledger.adopt(run.key, "1")
    ended = {"state": JobState.ENDED, "exit_code": 0, "wall_seconds": WALL_SECONDS, "started_at": now, "ended_at": now}
    ledger.update_job(run.key, **ended)
    ledger.settle(run.key, wall_seconds=WALL_SECONDS)
    ledger.update_run(run.key, state=RunState.FINISHED, ended_at=now)
    ledger.record_observation(Observation(key=run.key, values={"val_loss": 2.0 + noise, "memory_mb": 12.5}))
    ledger.update_run(run.key, state=RunState.MEASURED)
    ledger.update_run(run.key, state=RunState.REVIEWED)
    ledger.add_event("measured", f"seed {seed}", run.number)
    if changed:
        effect = Effect(delta=-noise, low=-noise - 0.02, high=-noise + 0.02, unit="nats", runs=1, baseline_runs=3)
        verdict = Verdict(
            number=run.number,
            kind=VerdictKind.INCONCLUSIVE,
            effect=effect,
            basis=Phase.SCREEN,
            label="too close to call",
            reason="noise allows both a gain worth having and none",
        )
        ledger.record_verdict(verdict)
    state = ExperimentState.INCONCLUSIVE if changed else ExperimentState.REVIEWED
    ledger.update_experiment(run.number, state=state, card_commit=base_commit)
