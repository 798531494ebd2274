"""The seam between a configuration and what runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from nightlab.configs.study import Scalar

__all__ = ["Exports", "Launch", "Launcher"]


@dataclass(frozen=True)
class Launch:
    """What to execute for one run."""

    command: tuple[str, ...]
    cwd: Path
    env: dict[str, str]


class Launcher(Protocol):
    """Turns a configuration into files (the same for every seed, committed) and a command (one a run)."""

    def files(self, parameters: Mapping[str, Scalar], tree: Path) -> dict[str, str]:
        """Files to write and commit: path relative to the worktree `tree` → text."""
        ...

    def launch(self, parameters: Mapping[str, Scalar], *, seed: int, tree: Path, output: Path) -> Launch:
        """The command of one run in `tree`, with `output` as its own output folder. Raises LauncherError."""
        ...

    def read_back(self, tree: Path) -> dict[str, Scalar] | None:
        """The parameters as the files in `tree` state them, for review; None when they stand in no file."""
        ...


@runtime_checkable
class Exports(Protocol):
    """A launcher that knows how weights become a model of their own."""

    def export_command(self, parameters: Mapping[str, Scalar], *, tree: Path, weights: Path) -> str | None:
        """The command for a shell; None where the weights are a whole model already. Raises LauncherError."""
        ...
