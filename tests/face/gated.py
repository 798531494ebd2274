"""A training task whose runs wait until a gate is opened: a lab can be met in the middle of its work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.face.calling import call
from tests.task import TRAIN, commit_all, make_repository, study_data

__all__ = ["GatedStudy", "wait_until"]

GATE = """\
while p["steps"] != 1 and not os.path.exists(os.environ["GATE"]):
    time.sleep(0.05)
"""
PATIENCE_SECONDS = 60.0


class GatedStudy:
    """A repository with such a study, and the lab's process once it is started; only the dry run passes the gate."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.gate = folder / "gate"
        backend = study_data()["backend"] | {"env": {"GATE": str(self.gate)}}
        self.file = make_repository(folder / "repo", **({"backend": backend} | changes))
        self.root = self.file.parent
        script = TRAIN.replace('time.sleep(float(p["seconds"]))\n', GATE)
        (self.root / "train.py").write_text(script)
        commit_all(self.root, "wait at the gate")

    def start(self, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "nightlab", "run"],
            cwd=self.root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            **options,
        )

    def status(self) -> dict[str, Any]:
        """What `status --json` says; empty before the study has begun."""
        called = call(self.root, "status", "--json")
        shown: dict[str, Any] = json.loads(called.out) if called.status == 0 else {}
        return shown

    def busy_slots(self) -> int:
        return sum(slot["number"] is not None for slot in self.status().get("slots", []))

    def open(self) -> None:
        self.gate.touch()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for what is sure to come; a failure is a hang."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)
