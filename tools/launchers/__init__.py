"""What turns a configuration into a command and files."""

from __future__ import annotations

from nightlab.configs.study import Study
from nightlab.tools.launchers.base import Launch, Launcher

__all__ = ["Launch", "Launcher", "launcher_for"]


def launcher_for(study: Study) -> Launcher:
    """The launcher that the study's `launcher.kind` names."""
    from nightlab.tools.launchers.script import ScriptLauncher

    return ScriptLauncher(study)
