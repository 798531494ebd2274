"""The supervisor: an event loop of small checkpointed steps. A training job never runs inside one of them.

::

    START → reconcile → observe → refill → evaluate → review → understand ─┬→ plan → submit → learn ─┬→ wait → observe
                 ↑                                                         └→ ask → reconcile        ├→ conclude → END
                 └───────────────────────────────────────────────────────────────────── wait ←       └→ END (stopped)

Refilling comes before evaluation so that a slot is not empty while its last job is read; learning (verdicts, cards,
lessons) comes after submission for the same reason.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from nightlab.agents.context import Lab
from nightlab.agents.history import history_of
from nightlab.graph import nodes
from nightlab.graph.budget import experiments_left, runs_left
from nightlab.graph.questions import asked_plan, plan_is_open
from nightlab.graph.state import LabState
from nightlab.knowledge.records import RunState
from nightlab.search.engine import propose

__all__ = ["build_supervisor", "is_over"]

OPEN = (RunState.PLANNED, RunState.SUBMITTED, RunState.FINISHED, RunState.MEASURED)


def is_over(lab: Lab) -> bool:
    """Nothing in flight and nothing left to propose."""
    if lab.ledger.runs(states=OPEN):
        return False
    answered = asked_plan(lab)
    if answered is not None and answered.answer == "no":
        return True
    history = history_of(lab.ledger, runs_left=runs_left(lab), experiments_left=experiments_left(lab))
    return not propose(lab.study, history, lab.study.search.seed)


def _after_understand(state: LabState, runtime: Runtime[Lab]) -> str:
    lab = runtime.context
    # A question stops only what depends on it: while jobs are in flight the loop goes on collecting them.
    if plan_is_open(lab):
        return "learn" if lab.ledger.runs(states=OPEN) else "ask"
    answered = asked_plan(lab)
    return "learn" if answered is not None and answered.answer == "no" else "plan"


def _after_learn(state: LabState, runtime: Runtime[Lab]) -> str:
    lab = runtime.context
    if lab.stop_requested():
        return END
    if plan_is_open(lab):
        return "wait"
    return "conclude" if is_over(lab) else "wait"


def build_supervisor(
    saver: BaseCheckpointSaver[Any] | None = None,
) -> CompiledStateGraph[LabState, Lab, LabState, LabState]:
    """The compiled graph; without a saver it keeps nothing (for `langgraph dev`, which brings its own)."""
    graph = StateGraph(LabState, context_schema=Lab)
    for name in nodes.__all__:
        graph.add_node(name, getattr(nodes, name))
    line = ["reconcile", "observe", "refill", "evaluate", "review", "understand"]
    graph.add_edge(START, line[0])
    for before, after in pairwise(line):
        graph.add_edge(before, after)
    graph.add_conditional_edges("understand", _after_understand, ["plan", "ask", "learn"])
    graph.add_edge("ask", "reconcile")
    graph.add_edge("plan", "submit")
    graph.add_edge("submit", "learn")
    graph.add_conditional_edges("learn", _after_learn, ["wait", "conclude", END])
    graph.add_edge("wait", "observe")
    graph.add_edge("conclude", END)
    return graph.compile(checkpointer=saver)
