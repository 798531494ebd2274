"""What LangGraph checkpoints: identifiers and the phase. Everything else is in the ledger."""

from __future__ import annotations

from typing_extensions import TypedDict

__all__ = ["GRAPH_VERSION", "LabState"]

GRAPH_VERSION = 1
"""Raised when nodes or their order change: a study begun with another version is not resumed by this one."""


class LabState(TypedDict, total=False):
    study: str
    graph_version: int
    phase: str
    """`understand`, `verify`, `done`: for people, the ledger decides."""
    steps: int
    """Turns of the loop so far."""
    asking: str
    """Id of the question that only an interrupt can wait for; empty without one."""
    exhausted: bool
    """Whether the last planning found nothing more to try."""
