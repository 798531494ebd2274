"""The analysis agent: understands the task from the baseline, then fixes the design: which factors, in which order.

It leaves `analysis_report.md` and `improve_guide.md`. What it decides is in the ledger; the documents are for people.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NotRequired

import psutil
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from nightlab.agents.brain import Advice, Diagnosis, Facts
from nightlab.agents.context import Lab
from nightlab.agents.curves import held_out_losses
from nightlab.agents.design import Design, read_design, write_design
from nightlab.agents.diagnosis import diagnose
from nightlab.agents.documents import analysis_report, improve_guide
from nightlab.agents.factors import design_of, lessons_for
from nightlab.agents.measures import gpu_memory, measures
from nightlab.agents.run_findings import findings_of_baseline
from nightlab.agents.saturation import plateau_findings
from nightlab.configs.paths import JobPaths
from nightlab.knowledge.records import Job, JobState, RunState
from nightlab.tools.metrics.base import RunFiles
from nightlab.tools.metrics.curve import read_losses

__all__ = ["AnalysisState", "analysis_agent", "gather_facts", "rewrite_improve_guide", "write_analysis_report"]

PROMPT_WORDS = ("prompt", "template", "system", "instruction")
DATA_WORDS = ("data", "corpus", "mix", "filter", "shuffle", "sample")


class AnalysisState(TypedDict):
    symptoms: list[str]
    """Catalog symptom ids found so far."""
    by_rules: NotRequired[bool]
    """Whether the rules judge alone, without waiting for a language model."""
    advice: NotRequired[dict[str, Any] | None]
    """What a language model added, as plain data."""


_ADVICE: TypeAdapter[Advice | None] = TypeAdapter(Advice | None)


def _understand(state: AnalysisState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    facts = gather_facts(lab)
    diagnosis = diagnose(facts) if state.get("by_rules") else lab.brain.diagnose(facts)
    lab.write_document(lab.paths.analysis_report, analysis_report(lab, facts, diagnosis))
    return {"symptoms": list(diagnosis.symptoms), "advice": _ADVICE.dump_python(diagnosis.advice, mode="json")}


def _design(state: AnalysisState, runtime: Runtime[Lab]) -> dict[str, object]:
    lab = runtime.context
    advice = _ADVICE.validate_python(state.get("advice"))
    design = design_of(lab, state["symptoms"], lessons_for(lab), advice=advice)
    _write_improve_guide(lab, design, state["symptoms"])
    with lab.ledger.transaction():
        lab.ledger.update_study(design=write_design(design), phase="verify")
        after = f", after what {advice.model} said" if advice and advice.model else ""
        lab.ledger.add_event("design", f"{len(design.factors)} factors, {design.level_count} levels{after}")
    lab.on_change()
    return {}


def write_analysis_report(lab: Lab) -> None:
    """Write the report again with all seeds, as the study's end does."""
    facts = gather_facts(lab)
    lab.write_document(lab.paths.analysis_report, analysis_report(lab, facts, _recorded_diagnosis(lab, facts)))


def rewrite_improve_guide(lab: Lab, design: Design) -> None:
    """Write the guide again for a design that has changed."""
    _write_improve_guide(lab, design, _recorded_diagnosis(lab, gather_facts(lab)).symptoms)


def _recorded_diagnosis(lab: Lab, facts: Facts) -> Diagnosis:
    """The diagnosis by what is known now; of a model what it said once, so nobody is asked again."""
    return replace(diagnose(facts), advice=read_design(lab.ledger.study_row().design).advice)


def _write_improve_guide(lab: Lab, design: Design, symptoms: Sequence[str]) -> None:
    lab.write_document(lab.paths.improve_guide, improve_guide(lab, design, symptoms, lessons_for(lab)))


def gather_facts(lab: Lab) -> Facts:
    study = lab.study
    metric = study.objective.metric
    measured = [(r, v) for e, r, v in lab.ledger.measured_runs() if e.number == 0 and r.state is RunState.REVIEWED]
    jobs = [job for r, _ in measured if (job := lab.ledger.job(r.key)) and job.state is JobState.ENDED]
    files = _files_of(jobs[0]) if jobs else None
    tracked, size = lab.git.tracked_size(lab.base_commit)
    return Facts(
        base_model=study.base_model,
        method=study.method,
        metric=metric,
        unit=study.objective.unit,
        input_bytes=sum(_size(lab.paths.root / path) for path in study.inputs),
        tracked_files=tracked,
        repository_bytes=size,
        cores=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpus=tuple(str(gpu) for gpu in study.backend.gpus),
        slots=lab.backend.slots,
        baseline_values=tuple(value for _, value in measured if value is not None),
        baseline_wall_seconds=jobs[0].wall_seconds if jobs else None,
        baseline_peak_memory_bytes=max((job.peak_memory_bytes or 0 for job in jobs), default=None),
        losses=read_losses(files.stdout) if files else (),
        evaluation_frozen=tuple(study.frozen),
        prompt_parameters=tuple(n for n in study.parameters if any(word in n.lower() for word in PROMPT_WORDS)),
        data_parameters=tuple(n for n in study.parameters if any(word in n.lower() for word in DATA_WORDS)),
        min_effect=study.objective.min_effect,
        gpu_memory_bytes=gpu_memory(study),
        held_out_losses=held_out_losses(study, files) if files else (),
        findings=(*measures(study, lab.paths.root), *findings_of_baseline(lab), *plateau_findings(lab)),
    )


def _files_of(job: Job) -> RunFiles:
    paths = JobPaths(Path(job.directory))
    return RunFiles(paths.stdout, paths.stderr, Path(job.worktree), paths.output)


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
