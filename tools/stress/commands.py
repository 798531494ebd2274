"""The command of a stress check, with its placeholders filled in."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nightlab.configs.stress import StressCheck
from nightlab.configs.study import Scalar, Study
from nightlab.tools.launchers.base import Launch
from nightlab.tools.stress.job import Plan

__all__ = ["Place", "stress_launch"]

_PLACEHOLDER = re.compile(r"\{\{|\}\}|\$\{[^{}]*\}|\{([^{}]*)\}")


@dataclass(frozen=True)
class Place:
    """What a repeat works on: a tree of the experiment's commit, and the run whose output it takes."""

    tree: Path
    run_dir: Path
    output: Path
    """Of that run."""
    seed: int
    """Of that run."""
    results: Path
    """The check's own output folder."""


def stress_launch(study: Study, check: StressCheck, parameters: Mapping[str, Scalar], place: Place) -> Launch:
    """The job of one repeat: the command itself, or what starts the server around it. `{port}` stays as it is."""
    written = study.launcher.written
    given = {
        "seed": str(place.seed),
        "output_dir": str(place.output),
        "run_dir": str(place.run_dir),
        "results_dir": str(place.results),
        "python": sys.executable,
    }
    given |= {"params_file": str(place.tree / written)} if written else {}
    values = {name: str(value) for name, value in parameters.items()} | given
    command = _filled(check.command, values)
    env = {
        "NIGHTLAB_SEED": given["seed"],
        "NIGHTLAB_OUTPUT_DIR": given["results_dir"],
        "NIGHTLAB_RUN_DIR": given["run_dir"],
    }
    if check.serve is not None:
        command = Plan(
            serve=_filled(check.serve.command, values),
            ready=check.serve.ready,
            timeout_seconds=check.serve.timeout_seconds,
            command=command,
            log=place.results / "server.log",
        ).job
    return Launch(command, place.tree / study.launcher.cwd, env)


def _filled(command: str | Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    words = shlex.split(command) if isinstance(command, str) else command

    def text(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        # Names were checked when the study was loaded: `{port}` is filled in when the job runs.
        return values.get(match[1], match[0]) if match[1] is not None else match[0]

    return tuple(_PLACEHOLDER.sub(text, word) for word in words)
