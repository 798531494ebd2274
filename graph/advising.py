"""A language model's part of the analysis: asked for beside the night, taken up when it comes."""

from __future__ import annotations

from functools import partial

from nightlab.agents.analysis import analysis_agent, gather_facts
from nightlab.agents.context import Lab
from nightlab.agents.design import read_design
from nightlab.agents.llm_brain import LlmBrain
from nightlab.agents.recovery import write_study

__all__ = ["is_seeking_advice", "seek_advice"]


def is_seeking_advice(lab: Lab) -> bool:
    """Whether the design is the rules' alone, and a model is yet to say what it would add."""
    if not isinstance(lab.brain, LlmBrain) or lab.is_overdue:
        return False
    design = lab.ledger.study_row().design
    return design is not None and read_design(design).advice is None


def seek_advice(lab: Lab) -> None:
    """Have the model asked in a thread of its own, and make the design again with what it said."""
    if not is_seeking_advice(lab) or not isinstance(lab.brain, LlmBrain):
        return
    if lab.brain.advice is not None:
        # It answers from what it has said; nothing is sent.
        analysis_agent.invoke({"symptoms": []}, context=lab)
        write_study(lab.paths, lab.ledger.study_row())
    elif not lab.aside.is_busy and not lab.stop_requested():
        lab.aside.start(partial(lab.brain.diagnose, gather_facts(lab)))
