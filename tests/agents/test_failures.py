"""Failed runs: the cause is found, a remedy that is pure configuration is applied and recorded, the breaker trips."""

from __future__ import annotations

import json
from pathlib import Path

from nightlab.knowledge.records import RunState, StudyStatus, VerdictKind
from nightlab.night import run_night
from tests.graph.test_night import ledger_of, quiet
from tests.task import commit_all, git, make_repository, study_data

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79.10 GiB total"


def repository(tmp_path: Path, body: str, **changes: object) -> Path:
    """The task with a per-device batch of 8 and `body` run before it reports."""
    base = study_data()
    parameters = base["parameters"] | {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1}
    file = make_repository(tmp_path / "repo", parameters=parameters, **changes)
    (file.parent / "params.json").write_text(json.dumps(parameters, indent=2) + "\n")
    train = file.parent / "train.py"
    head, tail = train.read_text().split("time.sleep", 1)
    train.write_text(f"{head}{body}\ntime.sleep{tail}")
    commit_all(file.parent, "body")
    return file


def test_out_of_memory_halves_the_batch_and_keeps_the_effective_one(tmp_path: Path) -> None:
    body = (
        "if p['width'] >= 64 and p['per_device_train_batch_size'] > 2:\n"
        f"    sys.stderr.write({OOM!r} + '\\n' + 'Traceback follows\\n' * 200)\n    sys.exit(1)"
    )
    file = repository(tmp_path, body, budget={"runs": 40})
    assert run_night(file, say=quiet).status is StudyStatus.FINISHED
    with ledger_of(file) as ledger:
        wide = next(e for e in ledger.experiments() if e.changed == {"width": 64})
        first, second, third = ledger.runs(wide.number)[:3]
        assert (first.cause, first.next_step, second.cause) == ("cuda_oom", "retry_changed", "cuda_oom")
        assert second.overrides == {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
        assert third.overrides == {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
        assert third.state is RunState.REVIEWED and third.remedies == ["cuda_oom", "cuda_oom"]
        assert wide.parameters["per_device_train_batch_size"] == 8
        later = [run for run in ledger.runs(wide.number) if run.seed != first.seed]
        assert all(run.overrides == third.overrides for run in later), "further seeds start from what worked"
        kept = [n for n, v in ledger.verdicts().items() if v.kind is VerdictKind.KEEP]
        assert any(ledger.experiment(n).changed == {"lr": 0.01, "width": 64} for n in kept)
        params = json.loads(git(file.parent, "show", f"{wide.branch}:params.json"))
        assert params["per_device_train_batch_size"] == 2, "what is merged is what ran"
        assert "as remedy" in git(file.parent, "show", f"{wide.branch}:EXPERIMENT.md")


def test_a_lost_network_is_tried_again_unchanged_and_a_plain_bug_is_not(tmp_path: Path) -> None:
    marker = tmp_path / "once"
    body = (
        f"if p['color'] == 'blue' and not os.path.exists({str(marker)!r}):\n"
        f"    open({str(marker)!r}, 'w').close()\n"
        "    sys.exit('slurmstepd: error: *** JOB 77 ON n9 CANCELLED AT 2026-11-01T10:00:00 DUE TO NODE FAILURE ***')"
    )
    file = repository(tmp_path, body)
    run_night(file, say=quiet)
    with ledger_of(file) as ledger:
        blue = next(e for e in ledger.experiments() if e.changed == {"color": "blue"})
        first, second = ledger.runs(blue.number)[:2]
        assert (first.cause, first.next_step) == ("slurm_node_fail", "retry")
        assert (second.attempt, second.state, second.overrides) == (2, RunState.REVIEWED, {})
        crash = next(e for e in ledger.experiments() if e.changed == {"crash": "yes"})
        assert [run.attempt for run in ledger.runs(crash.number)] == [1]
        assert ledger.runs(crash.number)[0].next_step == "give_up"


def test_the_breaker_ends_a_study_whose_runs_all_die_alike(tmp_path: Path) -> None:
    # The baseline survives; everything else dies of the same cause.
    body = "if p['lr'] != 0.001 or p['width'] != 32 or p['color'] != 'red':\n    sys.exit(" + repr(OOM) + ")"
    space = {
        "lr": {"levels": [0.01, 0.1], "tier": 1},
        "width": {"levels": [64, 128], "tier": 2},
        "color": {"levels": ["blue", "green", "grey"], "tier": 3},
    }
    file = repository(
        tmp_path, body, space=space, failures={"retries": 0, "breaker": 3}, approvals={"repeated_failure": "auto"}
    )
    assert run_night(file, say=quiet).status is StudyStatus.FINISHED
    with ledger_of(file) as ledger:
        failed = [run for run in ledger.runs() if run.state is RunState.FAILED]
        assert 3 <= len(failed) <= 5, "not all seven changes were tried"
        assert {run.cause for run in failed} == {"cuda_oom"}


def test_a_signature_of_ones_own_that_says_stop_ends_the_study(tmp_path: Path) -> None:
    body = "if p['lr'] != 0.001:\n    sys.exit('quota of the cluster is used up')"
    changes = {"failures": {"file": "signatures.yaml"}, "approvals": {"repeated_failure": "auto"}}
    file = repository(tmp_path, body, **changes)
    entry = {
        "id": "quota_used_up",
        "category": "scheduler",
        "regex": "quota of the cluster is used up",
        "example": "quota of the cluster is used up",
        "cause": "no more hours",
        "remedy": "ask for hours",
        "action": "stop",
        "source": "ours",
    }
    (file.parent / "signatures.yaml").write_text(json.dumps({"signatures": [entry]}))
    commit_all(file.parent, "signatures")
    assert run_night(file, say=quiet).status is StudyStatus.FINISHED
    with ledger_of(file) as ledger:
        failed = [run for run in ledger.runs() if run.cause == "quota_used_up"]
        assert 1 <= len(failed) <= 2, "what was in flight is all that came after"
        assert [q.answer for q in ledger.questions() if q.kind == "repeated-failure"] == ["stop"]
