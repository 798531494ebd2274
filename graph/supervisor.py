"""The supervisor: an event loop of small checkpointed steps. A training job never runs inside one of them.

::

    START → reconcile → observe → refill → evaluate → review → understand ─┬→ plan → submit ─┬→ learn
                 ↑         ↑                                               └──── is held ────┘    │
                 │         └── wait ←─────────────────────────────────────────────────────────────┤
                 └──────────── ask ←──────────────────────────────────────────────────────────────┤
                                                       END ←─ conclude ←──────────────────────────┘

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
from nightlab.agents.review import PENDING
from nightlab.graph import nodes
from nightlab.graph.questions import decides_the_end, holding, is_held
from nightlab.graph.state import LabState
from nightlab.graph.stressing import under_stress

__all__ = ["build_supervisor"]


def _after_understand(state: LabState, runtime: Runtime[Lab]) -> str:
    lab = runtime.context
    return "learn" if is_held(lab) and not decides_the_end(lab) else "plan"


def _after_learn(state: LabState, runtime: Runtime[Lab]) -> str:
    lab = runtime.context
    if lab.stop_requested():
        return END
    # A question stops only what depends on it: while jobs are in flight the loop goes on collecting them.
    if lab.ledger.runs(states=PENDING) or under_stress(lab):
        return "wait"
    if lab.is_paused and not lab.is_overdue:
        return "wait"
    if decides_the_end(lab):
        # What is claimed by then goes through its checks all the same.
        return "conclude" if state["exhausted"] else "wait"
    if holding(lab) and (state["exhausted"] or is_held(lab)):
        return "ask" if state["asking"] else "wait"
    return "conclude" if state["exhausted"] else "wait"


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
    graph.add_conditional_edges("understand", _after_understand, ["plan", "learn"])
    graph.add_edge("ask", "reconcile")
    graph.add_edge("plan", "submit")
    graph.add_edge("submit", "learn")
    graph.add_conditional_edges("learn", _after_learn, ["wait", "ask", "conclude", END])
    graph.add_edge("wait", "observe")
    graph.add_edge("conclude", END)
    return graph.compile(checkpointer=saver)
