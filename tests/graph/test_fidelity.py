"""A night that looks at single changes with cheaper runs first."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from nightlab.agents.history import history_of
from nightlab.agents.spending import usage_of
from nightlab.configs.loading import load_study
from nightlab.graph.opening import locate
from nightlab.knowledge.lessons import read
from nightlab.knowledge.records import RunState, VerdictKind
from nightlab.night import run_night
from nightlab.report.rows import build_rows
from tests.graph.test_night import ledger_of, quiet
from tests.task import commit_all, make_repository


def test_a_night_looks_first_and_believes_only_whole_runs(tmp_path: Path) -> None:
    file = make_repository(
        tmp_path / "repo",
        search={
            "fidelity": {"parameter": "steps", "low": 2},
            "confirm_seeds": 2,
            "confirm_candidates": 1,
            "baseline_replicates": 2,
            "pruning": {"mode": "off"},
            "combine": False,
        },
        budget={"runs": 18, "experiments": 9},
    )
    train = file.parent / "train.py"
    train.write_text(train.read_text().replace("loss = 2.0", 'loss = 2.0 + 0.5 * (p["steps"] == 2)'))
    commit_all(file.parent, "cheap runs end higher")
    run_night(file, say=quiet)
    loaded = load_study(file)
    with ledger_of(file) as ledger:
        cheap = [one for one in ledger.experiments() if "steps" in one.changed]
        assert {tuple(one.changed) for one in cheap} >= {("steps",), ("lr", "steps")}
        assert all(run.state is not RunState.REJECTED for run in ledger.runs()), "locked, and yet declared"
        history = history_of(ledger)
        assert {trial.number for trial in history.low} == {one.number for one in cheap}
        assert not {trial.number for trial in history.trials} & {one.number for one in cheap}
        told = [verdict for one in cheap if (verdict := ledger.verdict(one.number))]
        assert {verdict.label for verdict in told} <= {"low fidelity", "failed"} and told
        kept = {number for number, verdict in ledger.verdicts().items() if verdict.kind is VerdictKind.KEEP}
        winner = next(one for one in ledger.experiments() if one.number in kept)
        assert winner.parameters["lr"] == 0.01 and winner.parameters["steps"] == 10
        usage = usage_of(ledger, datetime.now(UTC))
        low = sum(run.number in {one.number for one in cheap} for run in ledger.runs())
        assert usage.low_runs == low and usage.runs - low + -(-low // 5) <= 18
        assert usage.experiments <= 9
        ended = [ledger.run(job.key).number for job in ledger.jobs() if job.exit_code == 0]
        assert len(usage.wall_seconds) == sum(number not in {one.number for one in cheap} for number in ended)
        rows = build_rows(
            loaded.study, ledger.experiments(), ledger.runs(), ledger.jobs(),
            {one.key: one for one in ledger.observations()}, ledger.verdicts(),
        )  # fmt: skip
        assert all(row.mean is None for row in rows if row.number in {one.number for one in cheap})
    lessons = read(locate(loaded).paths.lessons).lessons
    assert lessons and not any("steps" in lesson.parameters for lesson in lessons)
