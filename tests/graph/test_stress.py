"""Nights whose confirmed win goes through stress checks before it is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nightlab.agents.history import history_of
from nightlab.configs.loading import load_study
from nightlab.graph.decisions import spending_stops
from nightlab.graph.opening import locate
from nightlab.graph.stressing import start_stress
from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import ExperimentState, Phase, StudyStatus, Verdict, VerdictKind
from nightlab.knowledge.stress import StressState
from nightlab.night import run_night
from nightlab.search.belief import judge_all
from nightlab.search.stress import BROKEN
from tests.agents.lab import executed, new_lab, planned
from tests.face.calling import call
from tests.graph.ending import LATE, end_search
from tests.task import git, make_repository

STRESS = """\
import json, os, sys
params, run_dir, counter = sys.argv[1:4]
p = json.load(open(params))
assert os.path.isfile(os.path.join(run_dir, "stdout.log")), run_dir
with open(counter, "a") as calls:
    calls.write(os.path.basename(os.getcwd()) + "\\n")
if os.environ.get("FAILS") in ("all", str(p["lr"])):
    sys.exit("out of memory at 16 requests")
value = 900.0 if p["lr"] == 0.01 else 600.0
with open(os.path.join(os.environ["NIGHTLAB_OUTPUT_DIR"], "load.json"), "w") as out:
    json.dump({"hardest": {"latency_ms": {"p99": value}}}, out)
print(f"changes: {(p['lr'] == 0.01) + (p['width'] >= 64)}")
print(f"f1: {0.8 if p['lr'] == 0.01 else 0.9}")
"""


def check(counter: Path, **changes: Any) -> dict[str, Any]:
    return {
        "name": "serving",
        "command": "{python} stress.py {params_file} {run_dir} " + str(counter),
        "metrics": {
            "p99_ms": {"kind": "json", "path": "{results_dir}/load.json", "key": "hardest.latency_ms.p99"},
            "f1": {},
        },
        "repeats": 2,
        "timeout": "60s",
        **changes,
    }


def make_stress_repository(folder: Path, *checks: dict[str, Any], **changes: Any) -> Path:
    data: dict[str, Any] = {
        "space": {"lr": {"levels": [0.01], "scale": "log", "tier": 1}},
        "search": {"baseline_replicates": 2, "confirm_seeds": 3, "confirm_seeds_most": 3, "confirm_candidates": 1},
        "budget": {"runs": 14},
        "stress": list(checks),
    }
    folder.mkdir(parents=True)
    (folder / "stress.py").write_text(STRESS)
    return make_repository(folder, **(data | changes))


@contextmanager
def night(folder: Path, **changes: Any) -> Iterator[tuple[Ledger, Path, list[str]]]:
    counter = folder / "calls"
    file = make_stress_repository(folder / "repo", check(counter, **changes))
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        yield ledger, file, counter.read_text().split()


def test_a_win_that_holds_is_kept_and_its_values_are_nobody_elses(tmp_path: Path) -> None:
    bounds = {"limits": {"p99_ms": {"max": 1000}}, "compare": {"f1": {"min_ratio": 0.85}}}
    with night(tmp_path, **bounds) as (ledger, file, calls):
        verdict, stresses = ledger.verdicts()[1], ledger.stresses()
        assert (verdict.kind, verdict.label) == (VerdictKind.KEEP, "confirmed")
        assert Counter((one.number, one.state) for one in stresses) == {
            (0, StressState.MEASURED): 2,
            (1, StressState.MEASURED): 2,
        }
        assert [one.values for one in ledger.stresses(1)] == [{"p99_ms": 900.0, "f1": 0.8}] * 2
        # Each repeat takes the output of another fresh seed, and of the baseline's on the same.
        assert len({one.run for one in stresses}) == 4
        confirmed = {run.key for run in ledger.runs(1) if run.phase == "confirm"}
        assert {one.run for one in ledger.stresses(1)} <= confirmed
        assert not {one.key for one in stresses} & {run.key for run in ledger.runs()}
        assert all("p99_ms" not in one.values for one in ledger.observations())
    assert len(calls) == 4
    assert git(file.parent, "worktree", "list").count("\n") == 0
    shown = call(file.parent, "logs", "1").out
    assert shown.count("stress-serving-") == 2 and "f1: 0.8" in shown


def test_a_win_that_breaks_a_limit_is_rejected_with_the_evidence(tmp_path: Path) -> None:
    with night(tmp_path, limits={"p99_ms": {"max": 800}}) as (ledger, file, _):
        verdict = ledger.verdicts()[1]
        assert (verdict.kind, verdict.label) == (VerdictKind.REJECTED, BROKEN)
        told = "guardrail (stress): serving: p99_ms 900 > 800 (repeats 900, 900; baseline 600). On fresh seeds: "
        assert verdict.reason.startswith(told) and verdict.effect is not None and verdict.effect.paired
        assert ledger.experiment(1).state is ExperimentState.REJECTED
        assert ledger.question("winner-01") is None
        report = locate(load_study(file)).paths.final_report_md.read_text().replace("\\", "")
    assert "## Under stress" in report and "| serving | 01 | 2 of 2 | f1 0.8, p99_ms 900 |" in report
    assert "beat the baseline, but not under stress: guardrail (stress): serving: p99_ms 900 > 800" in report


def test_where_the_best_breaks_the_next_best_is_confirmed(tmp_path: Path) -> None:
    counter = tmp_path / "calls"
    heavy = check(counter, metrics={"changes": {}}, limits={"changes": {"max": 1}}, repeats=1)
    space = {"lr": {"levels": [0.01], "scale": "log", "tier": 1}, "width": {"levels": [64], "tier": 2}}
    file = make_stress_repository(tmp_path / "repo", heavy, space=space, budget={"runs": 26})
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        told = {
            len(ledger.experiment(n).changed): v.label for n, v in ledger.verdicts().items() if v.basis == "confirm"
        }
        baseline = ledger.stresses(0)
    assert told == {2: BROKEN, 1: "confirmed"}
    assert len(baseline) == 1, "the baseline goes through a check once, however many winners there are"


def test_killed_while_it_is_under_stress_nothing_is_measured_twice(tmp_path: Path) -> None:
    counter = tmp_path / "calls"
    bounds = check(counter, limits={"p99_ms": {"max": 1000}}, when="finalists")
    file = make_stress_repository(tmp_path / "repo", bounds)
    module = [sys.executable, "-m", "tests.graph.killed_at", str(file)]
    # Between intent and job, between job and its record, and once one was read.
    for name, when in (("submitted", "before"), ("recorded", "before"), ("collected", "after")):
        killed = subprocess.run([*module, f"stress {name}", when], check=False, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        assert ledger.verdicts()[1].kind is VerdictKind.KEEP
        assert [one.state for one in ledger.stresses()] == [StressState.MEASURED] * 4
        told = Counter((event.number, event.text) for event in ledger.events() if event.kind == "stress")
    assert set(told.values()) == {1}
    assert len(counter.read_text().split()) == 4


def test_a_win_that_only_the_end_of_the_search_makes_is_put_under_stress_before_the_night_is_over(
    tmp_path: Path,
) -> None:
    counter = tmp_path / "calls"
    file = make_stress_repository(tmp_path / "repo", check(counter, limits={"p99_ms": {"max": 1000}}), **LATE)
    outcome = run_night(file, say=lambda _: None, watch=partial(end_search, confirmed=6, stop=True))
    assert outcome.status is StudyStatus.STOPPED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        runs, history = [run.key for run in ledger.runs()], history_of(ledger)
        study = ledger.study_row().study
    going_on, at_the_end = (judge_all(study, replace(history, runs_left=left))[1] for left in (9, 0))
    assert (going_on.kind, at_the_end.kind) == (VerdictKind.INCONCLUSIVE, VerdictKind.KEEP)
    module = [sys.executable, "-m", "tests.graph.killed_at", str(file)]
    for name, when in (("recorded", "before"), ("collected", "after")):
        killed = subprocess.run([*module, f"stress {name}", when], check=False, capture_output=True, text=True)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert run_night(file, say=lambda _: None).status is StudyStatus.FINISHED
    with Ledger.open(locate(load_study(file)).paths.ledger) as ledger:
        assert (ledger.verdicts()[1].kind, ledger.verdicts()[1].label) == (VerdictKind.KEEP, "confirmed")
        assert [one.state for one in ledger.stresses()] == [StressState.MEASURED] * 4
        assert [run.key for run in ledger.runs()] == runs, "nothing new is tried"
        told = Counter((event.number, event.text) for event in ledger.events() if event.kind in ("stress", "verdict"))
    assert set(told.values()) == {1}
    assert len(counter.read_text().split()) == 4


def test_where_no_more_may_be_spent_no_check_begins(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "stress": [check(tmp_path / "calls", limits={"p99_ms": {"max": 1000}})],
        "budget": {"runs": 14, "ask_above_cost_usd": 1},
        "prices": {"run_usd": 1},
        "approvals": {"spend": "auto"},
    }
    with new_lab(tmp_path, **changes) as lab:
        executed(lab, planned(lab, {}))
        (run,) = executed(lab, planned(lab, {"lr": 0.01}))
        assert spending_stops(lab), "nobody is to be asked, so the answer is no"
        verdict = Verdict(number=1, kind=VerdictKind.KEEP, basis=Phase.CONFIRM, label="confirmed", reason="r")
        start_stress(lab, {1: verdict}, [lab.ledger.experiment(run.number)])
        stresses = lab.ledger.stresses()
    assert {one.state for one in stresses} == {StressState.CANCELLED}
    assert all(one.detail.endswith("of 1 usd are used, and more was not allowed") for one in stresses)
