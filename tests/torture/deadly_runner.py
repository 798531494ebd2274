"""A job's runner under which the machine dies: its lab and itself, at a moment around the start of the command.

It stands in for `local_runner.py` while there is a `cut.json` above the job's folder: `{"when": …, "skip": jobs}`.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

RUNNER = Path(__file__).parents[2] / "tools" / "backends" / "local_runner.py"
MARK = "started.json"


def above(name: str) -> Path | None:
    """The file of this name in a folder above the job's."""
    return next((folder / name for folder in Path(sys.argv[1]).parents if (folder / name).exists()), None)


def power_cut() -> None:
    lab = above("lab.json")
    if lab is not None:
        os.kill(json.loads(lab.read_text())["pid"], signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def arm(when: str) -> None:
    replace, popen = Path.replace, subprocess.Popen

    def replace_and_die(path: Path, target: Any) -> Any:
        if Path(target).name == MARK and when == "before the mark":
            power_cut()
        replaced = replace(path, target)
        if Path(target).name == MARK and when == "before the command":
            power_cut()
        return replaced

    def start_and_die(*arguments: Any, **options: Any) -> Any:
        process = popen(*arguments, **options)
        if when == "after the command":
            power_cut()
        return process

    Path.replace = replace_and_die  # type: ignore[method-assign, assignment]
    subprocess.Popen = start_and_die  # type: ignore[misc, assignment]


def main() -> None:
    file = above("cut.json")
    if file is not None:
        cut = json.loads(file.read_text())
        if cut["skip"]:
            file.write_text(json.dumps(cut | {"skip": cut["skip"] - 1}))
        else:
            file.unlink()
            arm(cut["when"])
    runpy.run_path(str(RUNNER), run_name="__main__")


if __name__ == "__main__":
    main()
