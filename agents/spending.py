"""What the study has used of its budgets, read from its ledger."""

from __future__ import annotations

from datetime import datetime

from nightlab.configs.study import Study
from nightlab.knowledge.ledger import Ledger
from nightlab.search.spending import Usage

__all__ = ["usage_of"]


def usage_of(ledger: Ledger, now: datetime) -> Usage:
    """The ledger's spending at `now`; nothing is written."""
    row, totals, calls = ledger.study_row(), ledger.spend_totals(), ledger.call_totals()
    stress_gpu_hours, stress_usd = ledger.stress_totals()
    fidelity = row.study.search.fidelity
    low = ledger.changing(fidelity.parameter) if fidelity else []
    return Usage(
        now=now,
        runs=totals.runs,
        low_runs=len(low),
        experiments=ledger.tried() - len(set(low)),
        gpu_hours=totals.gpu_hours + stress_gpu_hours,
        cost_usd=totals.cost_usd + stress_usd,
        llm_tokens=calls.tokens,
        llm_cost_usd=calls.cost_usd,
        reserved_llm_tokens=calls.reserved_tokens,
        reserved_llm_cost_usd=calls.reserved_cost_usd,
        wall_seconds=tuple(ledger.wall_seconds(without=set(low))),
        cycle_seconds=tuple(ledger.cycle_seconds()),
        in_flight=tuple((now - since).total_seconds() if since else 0.0 for since in ledger.in_flight_since()),
        stress_to_come=_stress_to_come(ledger, row.study),
        started_at=row.started_at,
        deadline=row.deadline,
        finished_at=row.finished_at,
    )


def _stress_to_come(ledger: Ledger, study: Study) -> int:
    """Repeats that the first winner and the baseline beside it have yet to go through."""
    if not study.stress:
        return 0
    planned = {one.check for one in ledger.stresses()}
    return sum(2 * check.repeats for check in study.stress if check.name not in planned)
