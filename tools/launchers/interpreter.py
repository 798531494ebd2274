"""Which Python a command runs in, so that the framework installed there can be asked for its arguments."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from nightlab.configs.launcher import is_python

__all__ = ["interpreter_of"]


def interpreter_of(words: Sequence[str], folder: Path) -> str | None:
    """The interpreter of a command that begins with Python or with a script of it; None where it cannot be told.

    `folder` is where the command starts.
    """
    program = shutil.which(str(folder / words[0])) if "/" in words[0] else shutil.which(words[0])
    if program is None or is_python(words[0]):
        return program
    return _from_first_line(Path(program)) or _beside(Path(program))


def _from_first_line(program: Path) -> str | None:
    try:
        with program.open("rb") as file:
            first = file.readline(512).decode("utf-8", "replace")
    except OSError:
        return None
    named = first.removeprefix("#!").split() if first.startswith("#!") else []
    # `#!/bin/sh` is how a path with spaces or of great length is written, `env` how a name on the path is.
    return named[0] if named and is_python(named[0]) and Path(named[0]).is_file() else None


def _beside(program: Path) -> str | None:
    """The interpreter of the environment that the program is installed in."""
    python = program.parent / "python"
    is_environment = (program.parent.parent / "pyvenv.cfg").is_file() or (program.parent.parent / "conda-meta").is_dir()
    return str(python) if is_environment and python.is_file() else None
