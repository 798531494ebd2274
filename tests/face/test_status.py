"""What a snapshot finds in the ledger besides runs."""

from __future__ import annotations

from pathlib import Path

from nightlab.knowledge.records import Phase, Review, RunState
from nightlab.knowledge.stress import Stress, StressState, stress_key
from nightlab.status import SlotNow, StressNow, snapshot_of
from tests.agents.lab import new_lab, planned

CHECK = {"name": "serving", "command": "true", "metrics": {"p99_ms": {}}, "limits": {"p99_ms": {"max": 9}}}


def test_stress_checks_hold_slots_and_what_a_model_is_asked_is_told(tmp_path: Path) -> None:
    with new_lab(tmp_path, stress=[CHECK], backend={"slots": 2}) as lab:
        planned(lab, {})
        run = planned(lab, {"lr": 0.01})
        for number in (0, run.number):
            key = stress_key("tiny", number, "serving", 0)
            lab.ledger.plan_stress(Stress(key=key, number=number, check="serving", repeat=0, run=run.key))
        lab.ledger.update_stress(key, state=StressState.INTENDED, slot=1)
        lab.ledger.begin_idea(asked={}, prompt="idea 1")
        lab.ledger.begin_review(Review(key="review/1", number=run.number, basis=Phase.CONFIRM, asked={}))
        lab.ledger.update_run(run.key, state=RunState.FAILED, next_step="repair", ended_at=lab.now())
        snapshot = snapshot_of(lab.ledger, lab.study, lab.now())
        ended = snapshot_of(lab.ledger, lab.study, lab.now(), running=())
    variable = "lr-0-01"
    assert snapshot.slots[1] == SlotNow(slot=1, number=run.number, variable=variable, check="serving", repeat=0)
    assert snapshot.stress == [StressNow(number=run.number, check="serving", ended=0, repeats=2)]
    asked = [(one.kind, one.number) for one in snapshot.asked]
    assert asked == [("idea", None), ("review", run.number), ("repair", run.number)]
    assert [slot.number for slot in ended.slots] == [None, None]
