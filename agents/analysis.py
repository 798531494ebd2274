"""The analysis agent: understands the task from the baseline, then fixes the design: which factors, in which order.

It leaves `analysis_report.md` and `improve_guide.md`. What it decides is in the ledger; the documents are for people.
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from nightlab.agents.brain import Diagnosis, Facts
from nightlab.agents.context import Lab
from nightlab.agents.design import write_design
from nightlab.agents.documents import analysis_report, improve_guide
from nightlab.agents.factors import design_of, lessons_for
from nightlab.configs.paths import JobPaths
from nightlab.knowledge.records import JobState, RunState
from nightlab.tools.metrics.curve import read_losses

__all__ = ["AnalysisState", "analysis_agent", "gather_facts", "write_analysis_report"]

PROMPT_WORDS = ("prompt", "template", "system", "instruction")
DATA_WORDS = ("data", "corpus", "mix", "filter", "shuffle", "sample")


class AnalysisState(TypedDict):
    symptoms: list[str]
    """Catalog symptom ids found so far."""


def _understand(state: AnalysisState, runtime: Runtime[Lab]) -> dict[str, object]:
    return {"symptoms": list(write_analysis_report(runtime.context).symptoms)}


def _design(state: AnalysisState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    lessons = lessons_for(lab)
    design = design_of(lab, state["symptoms"], lessons)
    lab.write_document(lab.paths.improve_guide, improve_guide(lab, design, state["symptoms"], lessons))
    with lab.ledger.transaction():
        lab.ledger.update_study(design=write_design(design), phase="verify")
        lab.ledger.add_event("design", f"{len(design.factors)} factors, {design.level_count} levels")
    lab.on_change()
    return {}


def write_analysis_report(lab: Lab) -> Diagnosis:
    """Diagnose from what the ledger holds now and write the report; the study's end calls it again with all seeds."""
    facts = gather_facts(lab)
    diagnosis = lab.brain.diagnose(facts)
    lab.write_document(lab.paths.analysis_report, analysis_report(lab, facts, diagnosis))
    return diagnosis


def gather_facts(lab: Lab) -> Facts:
    study = lab.study
    metric = study.objective.metric
    measured = [(r, v) for e, r, v in lab.ledger.measured_runs() if e.number == 0 and r.state is RunState.REVIEWED]
    jobs = [job for r, _ in measured if (job := lab.ledger.job(r.key)) and job.state is JobState.ENDED]
    log = JobPaths(Path(jobs[0].directory)).stdout if jobs else None
    files, size = lab.git.tracked_size(lab.base_commit)
    return Facts(
        base_model=study.base_model,
        method=study.method,
        metric=metric,
        unit=study.objective.unit,
        input_bytes=sum(_size(lab.paths.root / path) for path in study.inputs),
        tracked_files=files,
        repository_bytes=size,
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpus=tuple(str(gpu) for gpu in study.backend.gpus),
        slots=lab.backend.slots,
        baseline_values=tuple(value for _, value in measured if value is not None),
        baseline_wall_seconds=jobs[0].wall_seconds if jobs else None,
        baseline_peak_memory_bytes=max((job.peak_memory_bytes or 0 for job in jobs), default=None),
        losses=read_losses(log) if log else (),
        evaluation_frozen=tuple(study.frozen),
        prompt_parameters=tuple(n for n in study.parameters if any(word in n.lower() for word in PROMPT_WORDS)),
        data_parameters=tuple(n for n in study.parameters if any(word in n.lower() for word in DATA_WORDS)),
    )


def _size(path: Path) -> int:
    if path.is_dir():
        return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    return path.stat().st_size if path.exists() else 0


analysis_agent = (
    StateGraph(AnalysisState, context_schema=Lab)
    .add_node("understand", _understand)
    .add_node("design", _design)
    .add_edge(START, "understand")
    .add_edge("understand", "design")
    .add_edge("design", END)
    .compile()
)
