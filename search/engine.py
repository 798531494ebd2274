"""The seam of the search: `propose(study, history, seed)`, a pure function."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.knowledge.records import Proposal
from nightlab.search.history import History

__all__ = ["propose"]


def propose(study: Study, history: History, seed: int) -> list[Proposal]:
    """Everything that may start now, best first; the same arguments give the same proposals.

    Empty with trials pending: wait for them. Empty with none pending: the search is over.
    """
    raise NotImplementedError
