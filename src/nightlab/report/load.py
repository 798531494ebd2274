"""A study's report as plain data, from its ledger; loads nothing that draws."""

from __future__ import annotations

import platform
from dataclasses import replace
from typing import Literal

import nightlab
from nightlab.agents.comparison import kept_comparison
from nightlab.agents.history import history_of
from nightlab.agents.llm import FALLBACK
from nightlab.agents.opinions import QUESTIONED, questioned_ideas
from nightlab.agents.spending import usage_of
from nightlab.configs.paths import StudyPaths
from nightlab.configs.study import Study
from nightlab.graph.process import running_lab
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import Event, StudyRow, StudyStatus, utc_now
from nightlab.report.build import build_report
from nightlab.report.examples import compared_scores
from nightlab.report.model import StudyReport
from nightlab.report.models import model_use
from nightlab.report.reviews import review_rows
from nightlab.report.stress import stress_rows
from nightlab.search.attribution import factor_effects, moves_of
from nightlab.search.orthogonal import main_effects

__all__ = ["load_report"]


def load_report(ledger: Ledger, study: Study, paths: StudyPaths) -> StudyReport:
    """Everything the report shows, as the ledger stands now."""
    row = ledger.study_row()
    history, experiments = history_of(ledger), ledger.experiments()
    stresses = ledger.stresses()
    events, questioned = ledger.events(), questioned_ideas(ledger)
    report = build_report(
        study,
        experiments,
        ledger.runs(),
        ledger.jobs(),
        {observation.key: observation for observation in ledger.observations()},
        ledger.verdicts(),
        factor_effects=[
            replace(found, label=QUESTIONED) if found.factor in questioned else found
            for found in factor_effects(study, history)
        ],
        main_effects=main_effects(study, history),
        moves=moves_of(study, history, {one.number: one.variable for one in experiments}),
        # Those on models that did not answer are summed up.
        events=[_line(event) for event in events if event.kind != FALLBACK],
        started_at=row.started_at,
        finished_at=row.finished_at,
        status=_status(row, running=running_lab(paths) is not None),
        stop_reason=_stop_reason(ledger, row.status),
        usage=usage_of(ledger, utc_now()),
        ideas=ledger.ideas(),
        stresses=stresses,
        versions={"nightlab": nightlab.__version__, "python": platform.python_version()},
    )
    return replace(
        report,
        models=model_use(ledger.calls_by_purpose(), events),
        reviews=review_rows(ledger.reviews()),
        stress=stress_rows(stresses),
        examples=compared_scores(kept_comparison(paths, report.winner.number)) if report.winner else (),
    )


def _line(event: Event) -> str:
    """`17:06 05 measured: seed 0: val_loss 2.28`."""
    number = f"{event.number:02d} " if event.number is not None else ""
    return f"{event.time.astimezone():%H:%M} {number}{event.kind}: {event.text}"


def _stop_reason(ledger: Ledger, status: StudyStatus) -> str:
    """Why a study that is not over stands still."""
    if status is StudyStatus.WAITING:
        return "it waits for an answer to: " + "; ".join(q.text for q in ledger.questions(open_only=True))
    return "a person stopped it" if status is StudyStatus.STOPPED else ""


def _status(row: StudyRow, *, running: bool) -> Literal["running", "finished", "stopped"]:
    # The supervisor writes the last report before its process has said that it is done.
    if row.finished_at is not None:
        return "finished"
    return "running" if running and row.status is StudyStatus.RUNNING else "stopped"
