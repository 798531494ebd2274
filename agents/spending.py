"""What the study has used of its budgets, read from its ledger."""

from __future__ import annotations

from datetime import datetime

from nightlab.knowledge.ledger import Ledger
from nightlab.search.spending import Usage

__all__ = ["usage_of"]


def usage_of(ledger: Ledger, now: datetime) -> Usage:
    """The ledger's spending at `now`; nothing is written."""
    row, totals, calls = ledger.study_row(), ledger.spend_totals(), ledger.call_totals()
    return Usage(
        now=now,
        runs=totals.runs,
        experiments=ledger.tried(),
        gpu_hours=totals.gpu_hours,
        cost_usd=totals.cost_usd,
        llm_tokens=calls.tokens,
        llm_cost_usd=calls.cost_usd,
        reserved_llm_tokens=calls.reserved_tokens,
        reserved_llm_cost_usd=calls.reserved_cost_usd,
        wall_seconds=tuple(ledger.wall_seconds()),
        cycle_seconds=tuple(ledger.cycle_seconds()),
        in_flight=tuple((now - since).total_seconds() if since else 0.0 for since in ledger.in_flight_since()),
        started_at=row.started_at,
        deadline=row.deadline,
        finished_at=row.finished_at,
    )
