"""A lab that is stopped, its jobs, its trees, and how it goes on."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nightlab.knowledge.ledger import Ledger
from nightlab.knowledge.records import RunState
from nightlab.night import _stop_signals
from tests.face.calling import call, state_of
from tests.face.gated import GatedStudy, wait_until
from tests.task import commit_all, git, make_repository


def trees_of(root: Path) -> set[str]:
    return {
        Path(line).name for line in git(root, "worktree", "list", "--porcelain").splitlines() if "worktrees/" in line
    }


def test_stop_leaves_the_jobs_and_kill_jobs_ends_them_and_the_night_goes_on(tmp_path: Path) -> None:
    study = GatedStudy(tmp_path, budget={"runs": 12})
    lab = study.start()
    wait_until(lambda: study.busy_slots() == 2)
    assert call(study.root, "run").err.startswith("nightlab: study tiny is being run by process")
    assert call(study.root, "gc").status == 2

    stopped = call(study.root, "stop")
    out, err = lab.communicate()
    assert lab.returncode == 0
    assert (
        "It has stopped.\n2 jobs go on; `nightlab run` takes over, `nightlab stop --kill-jobs` ends.\n" in stopped.out
    )
    assert "Stopped; 2 running jobs go on without the lab." in out and "go on    nightlab run\n" in out
    assert err.startswith("Stopping at the next step")

    # Jobs still run: their trees stay, the one that was prepared ahead goes.
    assert "Removed 1 worktree." in call(study.root, "gc").out
    assert trees_of(study.root) == {"experiment-00", "experiment-00.seed-1-attempt-1"}
    assert study.busy_slots() == 2

    assert "Ended 2 running jobs.\n" in call(study.root, "stop", "--kill-jobs").out
    assert study.busy_slots() == 0
    with Ledger.open(study.root / ".nightlab" / "tiny" / "ledger.sqlite") as ledger:
        cut = [run for run in ledger.runs() if run.state is RunState.CANCELLED]
        assert {run.cause for run in cut} == {"stopped"} and len(cut) == 2
        assert not ledger.runs(states=(RunState.FAILED,))
    call(study.root, "gc")
    assert trees_of(study.root) == set()

    study.open()
    assert call(study.root, "run").status == 0
    with Ledger.open(study.root / ".nightlab" / "tiny" / "ledger.sqlite") as ledger:
        baseline = [run for run in ledger.runs(0) if run.state is RunState.REVIEWED and run.phase == "baseline"]
        assert len({run.seed for run in baseline}) == 3
        assert {run.cause for run in ledger.runs(states=(RunState.FAILED,))} <= {"exit-status"}


def test_branches_of_what_was_not_kept_go_on_request_only(finished_night: Path, tmp_path: Path) -> None:
    root = tmp_path / "repo"
    subprocess.run(["cp", "-r", finished_night.parent, root], check=True)
    before = git(root, "branch")
    assert call(root, "gc").out == "Removed 0 worktrees.\n" and git(root, "branch") == before
    with Ledger.open(root / ".nightlab" / "tiny" / "ledger.sqlite") as ledger:
        kept = {e.branch for e in ledger.experiments() if e.number == 0 or e.state == "kept"}
        others = {e.number: e.branch for e in ledger.experiments() if e.branch not in kept}
    own, checked_out, *gone = others.values()
    git(root, "-c", "user.name=t", "-c", "user.email=t@t", "worktree", "add", "-q", str(tmp_path / "mine"), own)
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    commit_all(tmp_path / "mine", "my own work on it")
    git(root, "worktree", "remove", str(tmp_path / "mine"))
    git(root, "checkout", "-q", checked_out)
    called = call(root, "gc", "--branches")
    assert called.status == 0 and f"and {len(gone)} branch" in called.out
    assert {line.split()[1] for line in called.out.splitlines() if line.startswith("deleted")} == set(gone)
    left = set(git(root, "branch", "--format=%(refname:short)").splitlines())
    assert left == kept | {own, checked_out, "main"}
    # What a branch changed can still be read.
    number = next(number for number, branch in others.items() if branch in gone)
    assert "params.json" in call(root, "diff", str(number)).out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_dry_run_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo").parent
    mark = tmp_path / "started"
    (root / "train.py").write_text(
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    )
    commit_all(root, "slow")
    before = state_of(root)
    lab = subprocess.Popen(
        [sys.executable, "-m", "nightlab", "run"], cwd=root, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    wait_until(lambda: mark.exists() and bool(mark.read_text()))
    lab.send_signal(number)
    _, err = lab.communicate()
    assert lab.returncode == 130
    assert err == "\nInterrupted before the study began; nothing is left behind.\n"
    assert state_of(root) == before
    with pytest.raises(ProcessLookupError):
        os.kill(int(mark.read_text()), 0)


def test_the_second_ctrl_c_interrupts_at_once() -> None:
    told: list[str] = []
    with _stop_signals(lambda: told.append("stopping")) as stopping:
        assert not stopping()
        signal.raise_signal(signal.SIGINT)
        assert stopping() and told == ["stopping"]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_a_closed_terminal_ends_the_display_and_not_the_night(tmp_path: Path) -> None:
    study = GatedStudy(tmp_path, approvals={"plan": "ask"})
    lab, terminal = pty.fork()
    if lab == 0:
        os.chdir(study.root)
        os.execv(sys.executable, [sys.executable, "-m", "nightlab", "run"])  # noqa: S606
    shown = b""
    while b"slot 1" not in shown:
        assert select.select([terminal], [], [], 60.0)[0], "nothing is shown"
        shown += os.read(terminal, 4096)
    os.close(terminal)
    study.open()
    _, status = os.waitpid(lab, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert study.status()["status"] == "waiting"
