"""The lists kept here against a framework that is really installed; skipped where none is.

`NIGHTLAB_LLAMAFACTORY=/path/to/llamafactory-cli` (and PYTHONPATH as it needs it) names one that is not on the path.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from nightlab.tools.launchers import launcher_for
from nightlab.tools.launchers.arguments import Arguments, bundled, installed
from nightlab.tools.launchers.faults import launcher_faults
from nightlab.tools.launchers.interpreter import interpreter_of
from tests.tools.launchers.frameworks import study

PROGRAM = os.environ.get("NIGHTLAB_LLAMAFACTORY") or shutil.which("llamafactory-cli")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no llamafactory-cli here")


def test_the_list_kept_here_is_the_frameworks_own(tmp_path: Path) -> None:
    assert PROGRAM is not None
    python = interpreter_of([PROGRAM], tmp_path)
    assert python is not None
    found = installed(python, "llamafactory", None, dict(os.environ), tmp_path)
    assert isinstance(found, Arguments), found
    kept = bundled("llamafactory")
    if found.version == kept.version:
        assert found.arguments == kept.arguments
    assert kept.arguments.keys() & found.arguments.keys() >= {
        "stage",
        "template",
        "lora_rank",
        "do_sample",
        "pref_beta",
    }


def test_what_the_lab_adds_is_known_to_it(tmp_path: Path) -> None:
    the_study = study(
        "llamafactory",
        {"learning_rate": 1e-4, "effective_batch": 8, "beta": 0.1},
        command=str(PROGRAM),
        settings={"dataset": "train", "eval_dataset": "test", "template": "qwen"},
        predict=True,
        backend={"pass_env": ["PYTHONPATH"]},
    )
    assert launcher_faults(the_study, launcher_for(the_study), tmp_path) == []
