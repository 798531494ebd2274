"""One lab a study: who holds it, and that a dead or recycled process id is nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from nightlab.configs.paths import StudyPaths
from nightlab.errors import StudyBusyError
from nightlab.graph.process import hold_study, running_lab


@pytest.fixture
def paths(tmp_path: Path) -> StudyPaths:
    return StudyPaths(tmp_path, "tiny")


def entry(paths: StudyPaths) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(paths.lab_process.read_text())
    return content


def test_while_it_is_held_its_process_is_known_and_afterwards_not(paths: StudyPaths) -> None:
    assert running_lab(paths) is None
    with hold_study(paths):
        process = running_lab(paths)
        assert process is not None and process.pid == os.getpid()
    assert running_lab(paths) is None and not paths.lab_process.exists()


def test_a_second_lab_is_refused_and_told_who_holds_it(paths: StudyPaths) -> None:
    busy = f"process {os.getpid()} already"
    with hold_study(paths), pytest.raises(StudyBusyError, match=busy) as refused, hold_study(paths):
        raise AssertionError("two labs hold one study")
    assert refused.value.pid == os.getpid()


def test_the_refused_one_takes_nothing_away(paths: StudyPaths) -> None:
    with hold_study(paths):
        with pytest.raises(StudyBusyError), hold_study(paths):
            raise AssertionError("two labs hold one study")
        assert running_lab(paths) is not None


def test_a_lab_that_was_killed_holds_nothing(paths: StudyPaths) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from nightlab.configs.paths import StudyPaths; from nightlab.graph.process import hold_study\n"
        "with hold_study(StudyPaths(Path(sys.argv[1]), 'tiny')):\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(paths.root)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        found = running_lab(paths)
        assert found is not None and found.pid == process.pid
        process.kill()
        process.wait()
        assert running_lab(paths) is None, "lab.json of a dead process"
        assert paths.lab_process.exists()
        with hold_study(paths):
            assert running_lab(paths) == psutil.Process()


@pytest.mark.parametrize("change", [{"start_time": 1.0}, {"boot_id": "another boot"}, {"pid": 2**22 + 1}, {"pid": "1"}])
def test_another_process_under_the_same_number_is_not_the_lab(paths: StudyPaths, change: dict[str, object]) -> None:
    with hold_study(paths):
        paths.lab_process.write_text(json.dumps({**entry(paths), **change}))
        assert running_lab(paths) is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "null", '{"pid": null}', '{"pid": -1}'])
def test_a_torn_or_foreign_entry_is_nobody(paths: StudyPaths, content: str) -> None:
    paths.folder.mkdir(parents=True)
    paths.lab_process.write_text(content)
    assert running_lab(paths) is None
