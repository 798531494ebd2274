"""Repeats of stress checks one by one: slots, money, jobs that are lost or ended, what was not measured."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from nightlab.agents.context import Lab
from nightlab.agents.spending import usage_of
from nightlab.agents.stress import cancel_stresses, observe_stresses, plan_checks, running_stresses, submit_stresses
from nightlab.agents.training import free_slots
from nightlab.knowledge.stress import Stress, StressState
from nightlab.search.spending import stress_refusal
from tests.agents.lab import executed, new_lab, planned

WAITS = "import os, sys, time; t = os.path.isfile(sys.argv[1]) or time.sleep(600); print('p99_ms: 5')"


@contextmanager
def lab_under_stress(folder: Path, **changes: Any) -> Iterator[tuple[Lab, Path]]:
    """A lab whose check hangs until there is a file `gate`."""
    gate = folder / "gate"
    command = ["{python}", "-c", WAITS, str(gate)]
    check = {"name": "serving", "command": command, "metrics": {"p99_ms": {}}, "repeats": 1, "timeout": "1h"}
    with new_lab(folder, stress=[check], **changes) as lab:
        for run in (planned(lab, {}), planned(lab, {"lr": 0.01})):
            executed(lab, run)
        plan_checks(lab, 1, lab.study.stress)
        yield lab, gate


def finished(lab: Lab) -> list[Stress]:
    while jobs := running_stresses(lab):
        assert lab.backend.wait(jobs, 60.0)
        observe_stresses(lab)
    return lab.ledger.stresses()


def test_repeats_hold_slots_and_are_planned_once(tmp_path: Path) -> None:
    with lab_under_stress(tmp_path) as (lab, gate):
        plan_checks(lab, 1, lab.study.stress)
        assert [(one.number, one.state) for one in lab.ledger.stresses()] == [
            (1, StressState.PLANNED),
            (0, StressState.PLANNED),
        ]
        assert free_slots(lab) == [0, 1]
        submit_stresses(lab)
        assert free_slots(lab) == [] and len(running_stresses(lab)) == 2
        # As if the lab had been killed before it wrote down that they run: the very jobs are found.
        pids = [one.native_id for one in lab.ledger.stresses()]
        for one in lab.ledger.stresses():
            lab.ledger.update_stress(one.key, state=StressState.INTENDED, native_id=None)
        submit_stresses(lab)
        assert [one.native_id for one in lab.ledger.stresses()] == pids
        gate.touch()
        # Somebody ends one: it says nothing, and is tried once more in another folder.
        first = lab.ledger.stresses()[0]
        lab.backend.cancel({first.key: Path(first.directory)})
        observe_stresses(lab)
        assert [one.state for one in lab.ledger.stresses()] == [StressState.PLANNED, StressState.RUNNING]
        assert len(free_slots(lab)) == 1
        other = lab.ledger.stresses()[1]
        lab.backend.cancel({other.key: Path(other.directory)})
        observe_stresses(lab)
        submit_stresses(lab)
        ended = finished(lab)
        assert [(one.state, one.values, one.losses) for one in ended] == [
            (StressState.MEASURED, {"p99_ms": 5.0}, 1)
        ] * 2
        assert ended[0].directory != first.directory and free_slots(lab) == [0, 1]
        # What has ended stays as it is.
        cancel_stresses(lab, "too late")
        assert lab.ledger.stresses() == ended


def test_the_time_runs_out_in_the_middle(tmp_path: Path) -> None:
    with lab_under_stress(tmp_path, backend={"slots": 1}) as (lab, _):
        submit_stresses(lab)
        lab.deadline = lab.now() - timedelta(seconds=1)
        cancel_stresses(lab, "the wall-clock budget ran out")
        assert {(one.state, one.detail) for one in lab.ledger.stresses()} == {
            (StressState.CANCELLED, "the wall-clock budget ran out")
        }
        assert free_slots(lab) == [0]


def test_money_is_reserved_before_it_is_spent(tmp_path: Path) -> None:
    prices, budget = {"slot_hour_usd": 10}, {"runs": 30, "cost_usd": 15}
    with lab_under_stress(tmp_path, prices=prices, budget=budget) as (lab, gate):
        # Two repeats of an hour at most.
        usage = usage_of(lab.ledger, lab.now())
        assert usage.cost_usd > 20 and "budget.cost_usd has no room" in (stress_refusal(lab.study, usage) or "")
        gate.touch()
        submit_stresses(lab)
        finished(lab)
        assert usage_of(lab.ledger, lab.now()).cost_usd < 1
        assert usage_of(lab.ledger, lab.now()).runs == 2, "a repeat is no run"


def test_a_repeat_without_a_value_has_failed(tmp_path: Path) -> None:
    told = {
        "{python} -c 'print(1)'": "metric p99_ms",
        "{python} -c 'raise SystemExit(3)'": "exit status 3",
        "no-such-program": "exit status 127",
    }
    checks = [
        {"name": f"check-{number}", "command": command, "metrics": {"p99_ms": {}}, "repeats": 1}
        for number, command in enumerate(told)
    ]
    with new_lab(tmp_path, stress=checks, backend={"slots": 6}) as lab:
        executed(lab, planned(lab, {}), planned(lab, {"lr": 0.01}))
        plan_checks(lab, 1, lab.study.stress)
        submit_stresses(lab)
        for one in finished(lab):
            why = [*told.values()][int(one.check[-1])]
            assert one.state is StressState.FAILED and why in one.detail and one.values == {}


def test_an_intent_for_a_slot_that_is_gone_takes_another(tmp_path: Path) -> None:
    with lab_under_stress(tmp_path, backend={"slots": 1}) as (lab, gate):
        gate.touch()
        # As if the lab had been killed before it submitted, and begun again with fewer slots.
        first = lab.ledger.stresses()[0]
        lab.ledger.update_stress(first.key, state=StressState.INTENDED, slot=3, directory=str(tmp_path / "gone"))
        submit_stresses(lab)
        assert [(one.key, one.slot) for one in lab.ledger.stresses(states=(StressState.RUNNING,))] == [(first.key, 0)]
        finished(lab)
